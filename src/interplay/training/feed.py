"""The source of episodes for training steps: draw tasks, seat players, play them as a stream, and pull groups."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from interplay.engines.census import census
from interplay.rollout.curriculum import Curriculum, as_of
from interplay.rollout.evolve import Evolution
from interplay.rollout.runner import Runner
from interplay.rollout.stream import DrawnTask, Group, Pace, Play, Stage, Stream
from interplay.rollout.team import speech_of
from interplay.training.state import RunState
from interplay.types import Episode, Occupant, Role, Snapshot, Task
from interplay.types.occupant import everyone


class Feed:
    """`stage` adds rewards to a group after play, for example those of a judge. `play` plays an episode in place of the
    runner."""

    def __init__(self, state: RunState, runner: Runner, stage: Stage | None = None, play: Play | None = None) -> None:
        self.state, self.runner = state, runner
        recipe = state.plan.recipe
        self.settings, self.batch = recipe.stream, recipe.rollout.tasks
        pace = Pace(self.batch, runner.plan.replicas, self.settings.max_staleness, recipe.rollout.concurrency)
        census().deterministic = state.team.deterministic
        self.stream = Stream(pace, self._draw, play or runner.episode, stage)
        runner.pause = self.stream.pause
        self._seating = state.team.seating
        self._tasks: dict[int, list[Task]] = {}  # of the open training steps, by step
        # The states of curriculum and league that the tasks of the open steps were drawn from.
        self._origins: dict[int, dict[str, Any]] = {}
        self._used: Counter[Snapshot] = Counter()  # in groups that are being played or wait to be pulled
        self._seats: dict[int, Mapping[Role, Occupant]] = {}  # of those groups, by their numbers
        self._held: set[Snapshot] = set()  # for an evaluation beside the stream
        self.dropped = 0  # episodes that were too old
        self.replaced = 0  # groups that the last `pull` replaced, because too few of their episodes were left
        self.discarded: list[Episode] = []  # dropped episodes that the trainer has not counted yet

    def begin(self) -> None:
        """Start playing. Tasks that an earlier process issued but did not train on are issued again."""
        state = self.state
        saved = state.stream or {}
        self._origins = {int(step): origin for step, origin in saved.get("origins", {}).items()}
        self.dropped = saved.get("dropped", 0)
        self.stream.begin(state.step_index, saved.get("issued", state.step_index * self.batch), saved.get("again", ()))

    async def pull(self) -> list[Group]:
        """The groups of the next training step. Groups whose episodes are all too old are replaced, and so are those
        with too few episodes. For each group from which the algorithm cannot learn, another group is added, up to the
        algorithm's limit; the group itself stays in the metrics."""
        groups: list[Group] = []
        self.replaced = 0
        missing, spare = self.batch, self.batch * self.state.algorithm.resample
        while missing:
            taken = await self.stream.pull(missing)
            for group in taken:
                self._release(group.number)
            fresh = [g for g in taken if self.settings.stale == "mask" or self._keep_fresh(g)]
            kept = self._without_partial(fresh)
            groups += kept
            empty = min(spare, sum(not self._teaches(g) for g in kept)) if spare else 0
            missing, spare = missing - len(kept) + empty, spare - empty
            if again := len(taken) - len(kept) + empty:
                self.stream.drop(again)
        return sorted(groups, key=lambda g: g.number)

    def _teaches(self, group: Group) -> bool:
        good = [e for e in group.played if e.error is None]
        return bool(good) and self.state.algorithm.teaches(good)

    def _without_partial(self, groups: Sequence[Group]) -> list[Group]:
        """Leave out groups with fewer good episodes than `stream.min_group`, but at most one batch of groups in a step:
        if every episode fails, the run must end with an error and not play for ever."""
        if self.settings.min_group == 1:
            return list(groups)
        few = [g.number for g in groups if sum(e.error is None for e in g.played) < self.settings.min_group]
        out = few[: self.batch - self.replaced]
        self.replaced += len(out)
        self.discarded += [e for g in groups if g.number in out for e in g.played]
        return [g for g in groups if g.number not in out]

    def _keep_fresh(self, group: Group) -> bool:
        """Drop the episodes of a group whose tokens are too old; return whether any are left."""
        fresh: list[Episode] = []
        for episode in group.played:
            (fresh if self.lag(episode) <= self.settings.max_staleness else self.discarded).append(episode)
        self.dropped += len(group.played) - len(fresh)
        group.episodes = [*fresh]
        return bool(fresh)

    def lag(self, episode: Episode) -> int:
        """The age of an episode's oldest trainable token, in training steps."""
        state = self.state
        lags = [
            max(state.versions.lags(turn.policy, sample.versions, state.step_index), default=0)
            for turn in episode.turns
            if turn.policy in state.learners and turn.playout is None
            for sample in turn.samples
        ]
        return max(lags, default=0)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must know: which tasks were issued, which of those were not trained on, what the tasks of
        the open steps were drawn from, which snapshots play in them, and how many episodes were dropped."""
        origins = {str(step): origin for step, origin in self._origins.items() if self._is_open(step)}
        playing = {*self._used, *self._opponents()}
        return {
            "issued": self.stream.issued,
            "again": self.stream.unconsumed,
            "origins": origins,
            "snapshots": sorted(map(str, playing)),
            "dropped": self.dropped,
        }

    # -- tasks ----------------------------------------------------------------------------------------------------

    def _draw(self, number: int) -> DrawnTask:
        """Task n belongs to training step n // batch. All tasks of a step are chosen when its first one is drawn, with
        the curriculum and the league as they are then."""
        state, step = self.state, number // self.batch
        if step not in self._tasks:
            self._begin_step(step)
        task = self._tasks[step][number % self.batch]
        whose = state.plan if state.league is None else state.league
        seats = self._seats[number] = whose.seats_for(task, step)
        self._used.update(snapshots_in(seats))
        seating = self._seating(lambda _: seats, speech_of(state.plan.recipe))
        return DrawnTask(task, lambda: seating(task), self._origins[step]["at"])

    def _begin_step(self, step: int) -> None:
        """Choose the tasks and the opponents of a step. If an earlier process has chosen them, choose the same ones."""
        state, count = self.state, self.batch
        for old in [s for s in self._tasks if not self._is_open(s)]:
            del self._tasks[old], self._origins[old]
        if step in self._origins:
            curriculum = self._restored(step)
        else:
            curriculum = state.curriculum
            self._origins[step] = {
                "at": state.step_index,
                "curriculum": None if curriculum is None else copy.deepcopy(curriculum.state_dict()),
                "league": None if state.league is None else copy.deepcopy(state.league.state_dict()),
            }
        if curriculum is not None:
            make = lambda i, options: state.plan.task(i, options=options)  # noqa: E731
            self._tasks[step] = curriculum.choose(step, count, make)
        else:
            self._tasks[step] = [state.plan.task(step * count + i) for i in range(count)]
        self.seat_snapshots(step)
        if not self.settings.max_staleness:
            for engine in state.team.engines:  # do not reuse what an evaluation or an earlier step cached
                engine.flush()

    def _restored(self, step: int) -> Curriculum | Evolution | None:
        """Draw the opponents of a step from the league as it was; return the curriculum as it was."""
        origin, state = self._origins[step], self.state
        if state.league is not None and origin["league"] is not None:
            state.league.draw_as_of(origin["league"], step)
        if state.curriculum is None or origin["curriculum"] is None:
            return state.curriculum
        return as_of(state.curriculum, origin["curriculum"])

    def _is_open(self, step: int) -> bool:
        """Whether some tasks of a step were not issued yet, or not trained on."""
        waiting = self.stream.unconsumed
        return (step + 1) * self.batch > self.stream.issued or any(n // self.batch == step for n in waiting)

    def _release(self, number: int) -> None:
        self._used -= Counter(snapshots_in(self._seats.pop(number)))

    def hold(self, copies: Iterable[Snapshot]) -> None:
        """Read these snapshots anew and keep them in memory until this is called again."""
        self._held = set()
        self.seat_snapshots()
        self._held = set(copies)
        self.seat_snapshots()

    def seat_snapshots(self, *steps: int) -> None:
        """Load the snapshots that are needed: starts that a matchup names, references, the league's opponents in these
        steps and in the step whose tasks are drawn next, those that still play in an episode, and those that are
        held."""
        state = self.state
        drawn = self._opponents(*steps)
        state.snapshots.seat(state.plan.starts | set(state.references.values()) | drawn | set(self._used) | self._held)

    def _opponents(self, *steps: int) -> set[Snapshot]:
        """The league's opponents in these steps, in the step that is drawn next, and in those of which not all tasks
        were issued."""
        league, coming = self.state.league, self.state.step_index + self.settings.max_staleness
        if league is None:
            return set()
        begun = (s for s in self._tasks if (s + 1) * self.batch > self.stream.issued)
        return {who for step in {*begun, *steps, coming} for who in league.opponents(step)}


def snapshots_in(seats: Mapping[Role, Occupant]) -> list[Snapshot]:
    """The frozen copies among the occupants of these seats."""
    sitting = [who for occupant in seats.values() for who in everyone(occupant)]
    return [who for who in sitting if isinstance(who, Snapshot) and not who.is_now]


def consumed(groups: Sequence[Group], step: int, learners: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of stream.jsonl for the groups that a step was trained on, in order."""
    rows = []
    for group in groups:
        versions: dict[str, list[int]] = {}
        for turn in (t for e in group.played for t in e.turns if t.policy in learners and t.playout is None):
            for sample in turn.samples:
                found = {*sample.versions, *versions.get(turn.policy, ())}
                versions[turn.policy] = [min(found, default=0), max(found, default=0)]
        rows.append(
            {
                "step": step,
                "group": group.number,
                "task": group.drawn.task.id,
                "drawn_at": group.drawn.at,
                "versions": versions,
                "episodes": [e.id for e in group.played],
            }
        )
    return rows
