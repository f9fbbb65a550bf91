"""One decision under a tree plan: K candidates from one prompt, a fork for each, one kept.

A candidate is scored with the other roles at their candidate 0. Forks share the environment's randomness, so that
candidates differ by what they did; the joint action that is kept is stepped once on a fork with fresh randomness, so
that choosing the best does not harvest luck. An outcome that only the kept line reaches never enters a group.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from interplay.agents.agent import Agent, Stamp, View
from interplay.algorithms import Tree
from interplay.algorithms.credit import candidate_return
from interplay.envs import Env
from interplay.errors import InterplayError
from interplay.types import Level, Reward, Rewards, Role, Turn, seed_of

if TYPE_CHECKING:
    from interplay.rollout.runner import Ledger, Runner

T = TypeVar("T")


class Critic(Protocol):
    """The value of the state a turn led to, for its role, in the units of its mixed reward."""

    async def value(self, role: Role, env: Env, turn: Turn) -> float: ...


@dataclass
class Choice:
    env: Env
    kept: dict[Role, Turn]
    turns: list[Turn]
    rewards: Rewards


async def decide(
    runner: Runner,
    env: Env,
    agents: Mapping[Role, Agent],
    views: Mapping[Role, View],
    stamp: Stamp,
    plan: Tree,
    ledger: Ledger,
) -> Choice:
    """Sample, score, keep. Candidates whose sampling or scoring failed are left out; the group goes on without."""
    drawn = await _draw(env, agents, views, stamp, plan)
    first = {role: turns[0] for role, turns in drawn.items()}
    playouts: list[Turn] = []
    if not ledger.spent:
        # Candidates that said the same led to the same state: the first is scored for all, with the playouts of all.
        distinct = {(role, t.text): t for role, ts in drawn.items() if agents[role].trainable for t in reversed(ts)}
        said = Counter((role, t.text) for role, ts in drawn.items() for t in ts)
        jobs = [
            _score(
                runner, env, agents, views, {**first, role: turn}, role, stamp,
                replace(plan, playouts=plan.playouts * said[role, text]), ledger,
            )
            for (role, text), turn in distinct.items()
        ]  # fmt: skip
        for result in await all_of(jobs):
            playouts += result
        for turns in drawn.values():
            for turn in turns:
                if (turn.role, turn.text) in distinct:
                    scored = distinct[turn.role, turn.text]
                    turn.outlook, turn.after = scored.outlook, scored.after
    for role, turns in drawn.items():
        ledger.spend(turns)
        if agents[role].trainable:
            drawn[role] = [t for t in turns if t.outlook is not None] or turns[:1]
    kept = {role: _keep(turns, runner, plan, stamp) for role, turns in drawn.items()}
    for turns in drawn.values():
        for turn in turns:
            turn.kept = turn is kept[turn.role]
    following = env.fork(seed_of("kept", stamp.seed, stamp.episode, stamp.decision))
    rewards = following.step({role: turn.text for role, turn in kept.items()})
    return Choice(following, kept, [*itertools.chain.from_iterable(drawn.values()), *playouts], rewards)


async def all_of(jobs: Iterable[Awaitable[T]]) -> list[T]:
    """Every job's result. Where one fails the others are waited for: nothing stays behind in the engine."""
    results = await asyncio.gather(*jobs, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [r for r in results if not isinstance(r, BaseException)]


async def _draw(
    env: Env, agents: Mapping[Role, Agent], views: Mapping[Role, View], stamp: Stamp, plan: Tree
) -> dict[Role, list[Turn]]:
    """K replies in trainable seats, one elsewhere."""
    wanted = [(r, k) for r in views for k in range(plan.candidates if agents[r].trainable else 1)]
    jobs = [agents[r].sample(env, views[r], replace(stamp, candidate=k)) for r, k in wanted]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    drawn: dict[Role, list[Turn]] = {role: [] for role in views}
    failed: BaseException | None = None
    for (role, _), result in zip(wanted, results, strict=True):
        if isinstance(result, Turn):
            drawn[role].append(result)
        elif isinstance(result, InterplayError):
            failed = result
        else:
            raise result
    if failed is not None and not all(drawn.values()):
        raise failed
    return drawn


async def _score(
    runner: Runner,
    env: Env,
    agents: Mapping[Role, Agent],
    views: Mapping[Role, View],
    joint: Mapping[Role, Turn],
    role: Role,
    stamp: Stamp,
    plan: Tree,
    ledger: Ledger,
) -> list[Turn]:
    """Fill one candidate's outlook, step rewards plus continuation; the playout turns, where they are recorded."""
    turn = joint[role]
    fork = env.fork()
    step = fork.step({r: t.text for r, t in joint.items()}).of(role)
    over = not fork.observe()
    if over or plan.continuation == "none":
        turn.outlook = step + (fork.outcome().of(role) if over else Rewards())
        return []
    if plan.continuation == "critic":
        assert runner.critic is not None
        value = await runner.critic.value(role, fork, turn)
        turn.outlook = step + Rewards((Reward("critic", Level.PROCESS, role, value),))
        return []
    seated = {r: agent.fork() for r, agent in agents.items()}
    for r, t in joint.items():
        seated[r].commit(views[r], t)
    lines = []
    whose = (list(joint).index(role),) if len(joint) > 1 else ()  # roles that act at once: each has its own playouts
    for n in range(plan.playouts):
        path = (*stamp.path, stamp.decision, *whose, turn.candidate, n)
        inner = replace(stamp, decision=stamp.decision + 1, path=path, candidate=0)
        # Playouts of one candidate share the deck up to here and differ in what comes, as the play itself would.
        start = fork.fork(seed_of("playout", stamp.seed, stamp.episode, stamp.decision, n))
        lines.append(runner.play_out(start, seated, inner, [role], ledger))
    done = await asyncio.gather(*lines, return_exceptions=True)
    good = [d for d in done if not isinstance(d, BaseException)]
    for d in done:
        if isinstance(d, BaseException) and not isinstance(d, InterplayError):
            raise d
    if good:
        turn.outlook = step + Rewards.mean((ahead[role] for ahead, _ in good), len(good))
    return [t for _, turns in good for t in turns]


def _keep(turns: list[Turn], runner: Runner, plan: Tree, stamp: Stamp) -> Turn:
    if len(turns) == 1:
        return turns[0]
    rng = random.Random(seed_of("keep", stamp.seed, stamp.episode, stamp.decision, turns[0].role))
    values = [candidate_return(t, runner.reward) for t in turns]
    best = max(values)
    if plan.keep == "uniform":
        return rng.choice(turns)
    if plan.keep == "greedy":
        return rng.choice([t for t, v in zip(turns, values, strict=True) if v == best])
    weights = [math.exp((v - best) / plan.keep_temperature) for v in values]
    return rng.choices(turns, weights)[0]
