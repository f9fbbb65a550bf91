"""Where a training step's episodes come from: tasks are drawn, seated and played as a stream, and pulled by groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from interplay.engines.census import census
from interplay.rollout.runner import Runner
from interplay.rollout.stream import DrawnTask, Group, Pace, Stage, Stream
from interplay.rollout.team import speech_of
from interplay.training.state import RunState
from interplay.types import Episode, Occupant, Role, Snapshot, Task
from interplay.types.occupant import everyone


class Feed:
    """`stage` adds rewards to a group after play, such as a judge's."""

    def __init__(self, state: RunState, runner: Runner, stage: Stage | None = None) -> None:
        self.state, self.runner = state, runner
        recipe = state.plan.recipe
        self.settings, self.batch = recipe.stream, recipe.rollout.tasks
        pace = Pace(self.batch, runner.plan.replicas, self.settings.max_staleness, recipe.rollout.concurrency)
        census().deterministic = self.deterministic
        self.stream = Stream(pace, self._draw, runner.episode, stage, self._idle)
        runner.gate = self.stream.gate
        self._seating = state.team.seating
        self._tasks: dict[int, list[Task]] = {}  # of the training steps that some task was drawn for
        self._used: Counter[Snapshot] = Counter()  # by groups that are played or wait to be pulled
        self._seats: dict[int, Mapping[Role, Occupant]] = {}  # of those groups
        self._held: set[Snapshot] = set()  # by an evaluation beside the stream
        self.dropped = 0

    @property
    def deterministic(self) -> bool:
        if self.settings.deterministic is not None:
            return self.settings.deterministic
        on_cpu = all(m.loaded.model.device.type == "cpu" for m in self.state.team.members.values())
        return on_cpu and self.settings.max_staleness == 0

    def begin(self) -> None:
        """Start playing; what an earlier process had issued and not trained on is issued again."""
        state = self.state
        saved = state.stream or {}
        self.stream.begin(state.step_index, saved.get("issued", state.step_index * self.batch), saved.get("again", ()))

    async def pull(self) -> list[Group]:
        """The groups of the next training step. Those whose episodes are all too old are replaced by others. To those
        that teach the algorithm nothing others are added, as many as it asks for at most: they are still measured."""
        groups: list[Group] = []
        missing, spare = self.batch, self.batch * self.state.algorithm.resample
        while missing:
            taken = await self.stream.pull(missing)
            for group in taken:
                self._release(group.number)
            kept = [g for g in taken if self.settings.stale == "mask" or self._keep_fresh(g)]
            groups += kept
            empty = min(spare, sum(not self._teaches(g) for g in kept)) if spare else 0
            missing, spare = missing - len(kept) + empty, spare - empty
            if again := len(taken) - len(kept) + empty:
                self.stream.drop(again)
        return sorted(groups, key=lambda g: g.number)

    def _teaches(self, group: Group) -> bool:
        good = [e for e in group.played if e.error is None]
        return bool(good) and self.state.algorithm.teaches(good)

    def _keep_fresh(self, group: Group) -> bool:
        """Drop the episodes of a group with tokens that are too old; whether any is left."""
        fresh = [e for e in group.played if self.lag(e) <= self.settings.max_staleness]
        self.dropped += len(group.played) - len(fresh)
        group.episodes = [*fresh]
        return bool(fresh)

    def lag(self, episode: Episode) -> int:
        """How old the oldest token is that could be trained on, in training steps."""
        state = self.state
        lags = [
            max(state.versions.lags(turn.policy, sample.versions, state.step_index), default=0)
            for turn in episode.turns
            if turn.policy in state.learners and turn.playout is None
            for sample in turn.samples
        ]
        return max(lags, default=0)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must know: which tasks were issued, and which of them no step was trained on."""
        return {"issued": self.stream.issued, "again": self.stream.unconsumed}

    # -- tasks ----------------------------------------------------------------------------------------------------

    def _draw(self, number: int) -> DrawnTask:
        """Task n belongs to training step n // batch. The first one of a step is drawn with those of the whole step, by
        the curriculum and the league as they are then."""
        state, step = self.state, number // self.batch
        if step not in self._tasks:
            self._begin_step(step)
        task = self._tasks[step][number % self.batch]
        whose = state.plan if state.season is None else state.season.league
        seats = self._seats[number] = whose.seats_for(task, step)
        self._used.update(_snapshots(seats))
        seating = self._seating(lambda _: seats, speech_of(state.plan.recipe))
        return DrawnTask(task, lambda: seating(task), state.step_index)

    def _begin_step(self, step: int) -> None:
        state, count = self.state, self.batch
        if state.curriculum is not None:
            make = lambda i, options: state.plan.task(i, options=options)  # noqa: E731
            self._tasks[step] = state.curriculum.choose(step, count, make)
        else:
            self._tasks[step] = [state.plan.task(step * count + i) for i in range(count)]
        for old in [s for s in self._tasks if s < state.step_index - self.settings.max_staleness]:
            del self._tasks[old]
        self.seat_snapshots(step)
        if not self.settings.max_staleness:
            for engine in state.team.engines:  # nothing cached by an evaluation, or in an earlier step, is reused
                engine.flush()

    def _release(self, number: int) -> None:
        self._used -= Counter(_snapshots(self._seats.pop(number)))

    def hold(self, copies: Iterable[Snapshot], step: int) -> None:
        """These stay in memory, read anew, until others are held."""
        self._held = set()
        self.seat_snapshots(step)
        self._held = set(copies)
        self.seat_snapshots(step)

    def seat_snapshots(self, step: int) -> None:
        """Whom a step needs as they were: the start where a matchup names it, references, the league's opponents, and
        whoever still sits in an episode."""
        state = self.state
        drawn = set() if state.season is None else state.season.opponents(step)
        state.snapshots.seat(state.plan.starts | set(state.references.values()) | drawn | set(self._used) | self._held)

    def _idle(self) -> bool:
        found = [engine.stats() for engine in self.state.team.engines]
        return not any(s.running or s.waiting for s in found)


def _snapshots(seats: Mapping[Role, Occupant]) -> list[Snapshot]:
    """The frozen copies that sit somewhere."""
    sitting = [who for occupant in seats.values() for who in everyone(occupant)]
    return [who for who in sitting if isinstance(who, Snapshot) and not who.is_now]


def consumed(groups: Sequence[Group], step: int, learners: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What stream.jsonl keeps of the groups that a step was trained on, in the order they were taken."""
    rows = []
    for group in groups:
        versions: dict[str, list[int]] = {}
        for turn in (t for e in group.played for t in e.turns if t.policy in learners and t.playout is None):
            for sample in turn.samples:
                low, high = versions.get(turn.policy, [sample.version, sample.version])
                versions[turn.policy] = [min(low, *sample.versions), max(high, *sample.versions)]
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
