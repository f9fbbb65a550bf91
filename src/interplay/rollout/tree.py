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
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from interplay.agents.agent import Agent, Stamp, View
from interplay.algorithms import Tree
from interplay.algorithms.credit import candidate_return
from interplay.envs import Env
from interplay.errors import InterplayError
from interplay.rollout.joint import all_of, score_joints, step, value_joint
from interplay.types import Rewards, Role, Turn, seed_of

if TYPE_CHECKING:
    from interplay.rollout.runner import Ledger, Runner


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
    if not ledger.spent and plan.joint != "first":
        playouts = await score_joints(runner, env, agents, views, drawn, stamp, plan, ledger)
    elif not ledger.spent:
        # Candidates that said the same led to the same state: the first is scored for all, with the playouts of all.
        distinct = {_words(t): t for role, ts in drawn.items() if agents[role].trainable for t in reversed(ts)}
        said = Counter(_words(t) for ts in drawn.values() for t in ts)
        jobs = [
            _score(
                runner, env, agents, views, {**first, turn.role: turn}, turn.role, stamp,
                replace(plan, playouts=plan.playouts * said[words]), ledger,
            )
            for words, turn in distinct.items()
        ]  # fmt: skip
        for result in await all_of(jobs):
            playouts += result
        for turns in drawn.values():
            for turn in turns:
                if (scored := distinct.get(_words(turn))) is not None:
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
    rewards = await step(following, {role: turn.text for role, turn in kept.items()})
    return Choice(following, kept, [*itertools.chain.from_iterable(drawn.values()), *playouts], rewards)


def _words(turn: Turn) -> tuple[str, ...]:
    """All that a role said at a decision, its tool calls included: what it will remember of it."""
    return turn.role, *(call.text for call in turn.whole)


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
    whose = (list(joint).index(role),) if len(joint) > 1 else ()  # roles that act at once: each has its own playouts
    path = (*whose, turn.candidate)
    found, playouts = await value_joint(runner, env, agents, views, joint, [role], path, stamp, plan, ledger)
    turn.outlook = found.get(role)
    return playouts


def _keep(turns: list[Turn], runner: Runner, plan: Tree, stamp: Stamp) -> Turn:
    if len(turns) == 1:
        return turns[0]
    if plan.keep == "first":
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
