"""A team against one agent at the same budget: the tokens that the team sampled on a task, counted to the last one.

Of each task the team plays one episode; all its agents together sampled B tokens. One agent then gets those B tokens
for the same task (the environment in its one-role form, `eval.single`), in two ways:

longer    one episode, in which a reply may be as long as what is left of B. It may end early and use less.
samples   episode after episode with the usual limits until B is used up, to the token: the reply that reaches B is cut
          there. They are put together by `majority` (the end state that most of those with an answer reached; of
          equals the first) and by `best` (whether any succeeded: what a perfect judge of the samples would get).

Prompts are not counted: a token is one that somebody sampled.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from interplay.agents.model import ModelAgent
from interplay.agents.player import Stamp, View
from interplay.agents.remote import RemoteAgent
from interplay.algorithms import Independent
from interplay.config import TEAM, Recipe
from interplay.envs import Env
from interplay.errors import InterplayError
from interplay.evaluation import intervals
from interplay.evaluation.ablation import single
from interplay.evaluation.field import Chunk, Field
from interplay.evaluation.intervals import Estimate, bootstrap
from interplay.evaluation.measures import Verdict, tokens, verdict
from interplay.rollout.runner import Runner, Seated
from interplay.types import Episode, Observation, Role, Status, Task, Turn, seed_of


@dataclass
class Purse:
    """What is left to spend, and whether a reply was cut off because nothing was."""

    left: int
    cut: bool = False


@dataclass
class Thrifty:
    """A player whose replies end where the purse does. `free`: nothing else limits them. A budget is spent on one line
    of play, so there is no fork."""

    agent: ModelAgent | RemoteAgent
    purse: Purse
    free: bool
    policy: str = ""
    trainable: bool = False
    parent: str | None = None

    def look(self, observation: Observation) -> View:
        return self.agent.look(observation)

    async def sample(self, env: Env, view: View, stamp: Stamp) -> Turn:
        limit = self.purse.left if self.free else min(self.purse.left, self.agent.sampling.max_tokens)
        room = self.agent.engine.limits().context_tokens
        if room is not None and view.prompt is not None:
            limit = min(limit, max(1, room - len(view.prompt.ids)))
        short = replace(self.agent, sampling=replace(self.agent.sampling, max_tokens=limit), budget=self.purse.left)
        turn = await short.sample(env, view, stamp)
        if turn.sampled > self.purse.left or max(s.size for s in turn.samples) > limit:
            raise InterplayError(
                f"{self.policy} was given {limit} tokens and used {turn.sampled}: no budget can be matched."
            )
        self.purse.left -= turn.sampled
        self.purse.cut = self.purse.left == 0 and turn.status is Status.LENGTH
        return turn

    def commit(self, view: View, turn: Turn) -> None:
        self.agent.commit(view, turn)


@dataclass(frozen=True)
class Way:
    """One way of spending the budget. `gap` is how much more the team succeeds, paired by task."""

    name: str
    won: Estimate
    score: Estimate
    budget: float  # tokens a task, in the mean
    used: float
    episodes: float  # a task
    gap: Estimate | None


@dataclass(frozen=True)
class TaskBudget:
    """One task: what the team sampled and the one agent sampled in either way."""

    task: str
    budget: int
    longer: int
    samples: int


@dataclass(frozen=True)
class Matched:
    role: Role
    policy: str
    ways: list[Way]
    tasks: list[TaskBudget]


@dataclass
class _Slot:
    """One task of one seed: the team's episode, and the one agent's."""

    team: Episode
    longer: list[Episode]
    samples: list[Episode]

    @property
    def whole(self) -> bool:
        games = [*self.longer, *self.samples]
        return bool(self.longer and self.samples) and all(e.error is None for e in games)


async def matched(field: Field, team: Sequence[Episode]) -> Matched:
    """`team` holds the team's episodes as `Field.play` gives them; the first of each task sets its budget."""
    recipe = field.plan.recipe
    role, policy = single(field.plan)
    slots = [_Slot(e, [], []) for e in team if e.replica == 0]
    if not any(_used([s.team]) for s in slots):
        raise InterplayError("the team sampled no tokens; there is no budget to match.")
    assert recipe.eval.single is not None
    for name in ("longer", "samples"):
        ahead = iter(slots)
        for part in field.parts(recipe.eval.single.options):
            here = [(t, s) for t, s in zip(part.tasks, ahead, strict=False) if s.team.error is None]
            funded = [(t, s, _used([s.team])) for t, s in here if _used([s.team])]
            how = (name, role, policy, tuple(b for _, _, b in funded))
            tasks = [(t, b) for t, _, b in funded]
            games = await field.keep(
                part,
                {role: field.plan.occupant(policy)},
                how,
                lambda p=part, t=tasks, n=name: _spend(field, p, t, role, policy, n == "longer"),  # type: ignore[misc]
            )
            starts = [i for i, e in enumerate(games) if e.replica == 0]
            for (_, slot, _), start, end in zip(funded, starts, [*starts[1:], len(games)], strict=True):
                setattr(slot, name, games[start:end])
    whole = [s for s in slots if s.whole]
    if not whole:
        errors = [e.error for s in slots for e in (*s.longer, *s.samples) if e.error]
        raise InterplayError(
            f"all games of the one agent failed; the first: {errors[0] if errors else 'none was played'}"
        )
    return Matched(role, policy, _ways(recipe, whole), [_row(s) for s in whole])


def _ways(recipe: Recipe, slots: Sequence[_Slot]) -> list[Way]:
    judged = lambda e: verdict(recipe, e, TEAM)  # noqa: E731
    team = [judged(s.team) for s in slots]

    def way(name: str, found: Sequence[Verdict], games: Sequence[Sequence[Episode]]) -> Way:
        gaps = [float(a.won) - float(b.won) for a, b in zip(team, found, strict=True)]
        return Way(
            name, intervals.share([[v.won] for v in found]), bootstrap([v.score for v in found]),
            fmean(_used([s.team]) for s in slots), fmean(map(_used, games)), fmean(map(len, games)),
            None if name == TEAM else bootstrap(gaps),
        )  # fmt: skip

    best = lambda games: max(map(judged, games))  # won first, then the score  # noqa: E731
    samples = [s.samples for s in slots]
    return [
        way(TEAM, team, [[s.team] for s in slots]),
        way("one agent, longer", [judged(s.longer[0]) for s in slots], [s.longer for s in slots]),
        way("one agent, majority", [judged(_majority(s.samples)) for s in slots], samples),
        way("one agent, best", [best(s.samples) for s in slots], samples),
    ]


def _row(slot: _Slot) -> TaskBudget:
    return TaskBudget(slot.team.task.id, _used([slot.team]), _used(slot.longer), _used(slot.samples))


def _used(games: Sequence[Episode]) -> int:
    return sum(tokens(e, TEAM) for e in games)


async def _spend(
    field: Field, part: Chunk, tasks: Sequence[tuple[Task, int]], role: Role, policy: str, free: bool
) -> list[Episode]:
    """Each task's budget, spent; tasks go on side by side."""
    recipe = field.plan.recipe

    async def one(task: Task, budget: int) -> list[Episode]:
        purse, games = Purse(budget), list[Episode]()
        while purse.left and not (free and games):
            who = field.plan.occupant(policy)
            agent = field.team.agent(role, who, field.speech)
            assert isinstance(agent, ModelAgent | RemoteAgent)
            seated = Seated({role: who}, {role: Thrifty(agent, purse, free, policy)})
            limits = recipe.rollout.model_copy(update={"max_episode_tokens": purse.left})
            seed = seed_of("budget", part.seed + 1, len(games))
            before = purse.left
            (game,) = await Runner(seed, limits, Independent(), recipe.reward).run([task], lambda _: seated)  # noqa: B023
            game.replica, game.id = len(games), f"{task.id}#{len(games)}"
            game.truncated = game.truncated or purse.cut
            games.append(game)
            if game.error is not None:  # the rest of the budget cannot be spent as it would have been: all or nothing
                for earlier in games:
                    earlier.error = game.error
                break
            if purse.left == before:
                raise InterplayError(f"{policy} played {task.id} without a token; there is no budget to match.")
        field.done(games[0])
        return games

    return [game for games in await asyncio.gather(*(one(t, b) for t, b in tasks)) for game in games]


def _majority(games: Sequence[Episode]) -> Episode:
    """The first game of those that reached the most common end; what the budget cut short, or has no answer, has no
    vote."""
    whole = [g for g in games if not g.truncated and g.answered] or list(games)
    (state, _), *_ = Counter(g.final_state for g in whole).most_common(1)
    return next(g for g in whole if g.final_state == state)
