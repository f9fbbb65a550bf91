"""Compares a team with a single agent that gets the same budget: exactly the tokens that the team sampled on a task.

The team plays one episode of each task, in which all its agents together sample B tokens. The single agent then gets B
tokens for the same task (in the one-role form of the environment, `eval.single`) and spends them in two ways:

longer    One episode, in which a reply may use all that is left of B. The episode may end early and use less.
samples   Episode after episode with the usual limits, until exactly B tokens are used: the reply that reaches B is cut
          off. The episodes are combined in two ways. `majority` takes the most common end state among the complete
          episodes with an answer (the first one in a tie). `best` takes the best episode, as a perfect judge would.

Only sampled tokens count. Prompts do not.
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
from interplay.evaluation.measures import GameVerdict, tokens, verdict
from interplay.rollout.runner import Runner, Seated
from interplay.types import Episode, Observation, Role, Status, Task, Turn, seed_of


@dataclass
class Purse:
    """The tokens that are left, and whether the last reply was cut off because none were left."""

    left: int
    cut: bool = False


@dataclass
class Thrifty:
    """A player whose replies are cut off when the purse is empty. With `free`, max_tokens does not limit a reply. A
    budget is spent on one line of play, so this player cannot be forked."""

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
                f"{self.policy} was given {limit} tokens but used {turn.sampled}, so its budget cannot be matched; "
                "remove 'budget' from eval.ablations, or use a model that keeps to max_tokens."
            )
        self.purse.left -= turn.sampled
        self.purse.cut = self.purse.left == 0 and turn.status is Status.LENGTH
        return turn

    def commit(self, view: View, turn: Turn) -> None:
        self.agent.commit(view, turn)


@dataclass(frozen=True)
class Way:
    """One way of spending the budget. `gap` is the success of the team minus that of this way, paired by task."""

    name: str
    won: Estimate
    score: Estimate
    budget: float  # mean tokens per task
    used: float
    episodes: float  # per task
    gap: Estimate | None


@dataclass(frozen=True)
class TaskBudget:
    """The tokens of one task: what the team sampled (the budget), and what the single agent sampled in each way."""

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
    """One task of one seed: the team's episode and the single agent's episodes."""

    team: Episode
    longer: list[Episode]
    samples: list[Episode]

    @property
    def whole(self) -> bool:
        games = [*self.longer, *self.samples]
        return bool(self.longer and self.samples) and all(e.error is None for e in games)


async def matched(field: Field, team: Sequence[Episode]) -> Matched:
    """Compares team and single agent. `team` holds the team's episodes as `Field.play` returns them; the first episode
    of each task sets the budget of that task."""
    recipe = field.plan.recipe
    role, policy = single(field.plan)
    slots = [_Slot(e, [], []) for e in team if e.replica == 0]
    if not any(_used([s.team]) for s in slots):
        raise InterplayError(
            "the team sampled no tokens, so there is no budget to match; remove 'budget' from eval.ablations."
        )
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
            f"all games of the single agent failed; the first error: {errors[0] if errors else 'none was played'}"
        )
    return Matched(role, policy, _ways(recipe, whole), [_row(s) for s in whole])


def _ways(recipe: Recipe, slots: Sequence[_Slot]) -> list[Way]:
    judged = lambda e: verdict(recipe, e, TEAM)  # noqa: E731
    team = [judged(s.team) for s in slots]

    def way(name: str, found: Sequence[GameVerdict], games: Sequence[Sequence[Episode]]) -> Way:
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
    """Spends the budget of every task. Tasks run concurrently."""
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
            if game.error is not None:  # the budget cannot be spent in full, so all games of the task count as failed
                for earlier in games:
                    earlier.error = game.error
                break
            if purse.left == before:
                raise InterplayError(
                    f"{policy} played {task.id} without sampling a token, so there is no budget to match; remove "
                    "'budget' from eval.ablations."
                )
        field.done(games[0])
        return games

    return [game for games in await asyncio.gather(*(one(t, b) for t, b in tasks)) for game in games]


def _majority(games: Sequence[Episode]) -> Episode:
    """The first game that reached the most common end state. Games that were cut off or have no answer are ignored,
    unless there are no others."""
    whole = [g for g in games if not g.truncated and g.answered] or list(games)
    (state, _), *_ = Counter(g.final_state for g in whole).most_common(1)
    return next(g for g in whole if g.final_state == state)
