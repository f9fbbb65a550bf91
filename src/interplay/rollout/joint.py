"""What a joint action is worth on a fork, and which joint actions a tree plan asks about.

Forks share the environment's randomness, so that joints differ by what was done in them.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from interplay.agents.agent import Agent, Stamp, View
from interplay.algorithms import Tree
from interplay.algorithms.credit import CRITIC, coalition, orders
from interplay.envs import Env
from interplay.errors import InterplayError
from interplay.rollout.line import Foresight, Ledger, all_of, step
from interplay.types import Level, Reward, Rewards, Role, Turn, seed_of


async def value_joint(
    foresight: Foresight,
    env: Env,
    agents: Mapping[Role, Agent],
    views: Mapping[Role, View],
    joint: Mapping[Role, Turn],
    roles: Sequence[Role],
    path: tuple[int, ...],
    stamp: Stamp,
    plan: Tree,
    ledger: Ledger,
) -> tuple[dict[Role, Rewards], list[Turn]]:
    """Step rewards plus continuation, and the playout turns, where they are recorded.

    For everybody; with a critic, for those of `roles`. Empty where every playout failed. `path` tells this joint's
    playouts from those of others.
    """
    fork = env.fork()
    rewards = await step(fork, {r: t.text for r, t in joint.items()})
    over = not fork.observe()
    if over or plan.continuation == "none":
        rewards += fork.outcome() if over else Rewards()
        return {r: rewards.of(r) for r in agents}, []
    if plan.continuation == "critic":
        assert foresight.critic is not None
        values = await all_of(foresight.critic.value(r, fork, joint[r]) for r in roles)
        ahead = {r: Rewards((Reward(CRITIC, Level.PROCESS, r, v),)) for r, v in zip(roles, values, strict=True)}
        return {r: rewards.of(r) + ahead[r] for r in roles}, []
    seated = {r: agent.fork() for r, agent in agents.items()}
    for r, t in joint.items():
        seated[r].commit(views[r], t)
    until = frozenset(joint) if plan.continuation == "round" else frozenset()
    lines = []
    for n in range(plan.playouts):
        inner = replace(
            stamp, decision=stamp.decision + 1, path=(*stamp.path, stamp.decision, *path, n), candidate=0, state=""
        )
        # Playouts of one candidate share the deck up to here and differ in what comes, as the play itself would.
        start = fork.fork(seed_of("playout", stamp.seed, stamp.episode, stamp.decision, n))
        lines.append(foresight.play_out(start, seated, inner, ledger, until))
    done = await asyncio.gather(*lines, return_exceptions=True)
    good = [d for d in done if not isinstance(d, BaseException)]
    for d in done:
        if isinstance(d, BaseException) and not isinstance(d, InterplayError):
            raise d
    turns = [t for _, played in good for t in played]
    if not good:
        return {}, turns
    return {r: rewards.of(r) + Rewards.mean((ahead[r] for ahead, _ in good), len(good)) for r in agents}, turns


async def score_joints(
    foresight: Foresight,
    env: Env,
    agents: Mapping[Role, Agent],
    views: Mapping[Role, View],
    drawn: Mapping[Role, list[Turn]],
    stamp: Stamp,
    plan: Tree,
    ledger: Ledger,
) -> list[Turn]:
    """Fill the outlooks of all trainable roles from joint actions that are scored once for everybody."""
    acting = [r for r in drawn if agents[r].trainable]
    if not acting:
        return []
    if plan.joint in ("without", "coalitions"):
        joints = _coalitions(drawn, acting, plan)
    else:
        joints = _combinations(drawn, acting, plan)
    results = await all_of(
        value_joint(foresight, env, agents, views, joint, acting, (n,), stamp, plan, ledger)
        for n, (_, joint) in enumerate(joints)
    )
    playouts = [t for _, turns in results for t in turns]
    if plan.joint in ("without", "coalitions"):
        for role in acting if all(found for found, _ in results) else ():  # one missing value spoils every share
            turn = drawn[role][0]
            turn.coalitions = {who: found[role] for (who, _), (found, _) in zip(joints, results, strict=True)}
            turn.outlook = turn.coalitions[coalition(acting)]
        return playouts
    parts: dict[str, list[Rewards]] = {}
    for (_, joint), (found, _) in zip(joints, results, strict=True):
        ledger.foresee(stamp.decision, found, plan)
        for role in acting if found else ():
            parts.setdefault(joint[role].id, []).append(found[role])
    for turn in itertools.chain.from_iterable(drawn[r] for r in acting):
        if turn.id in parts:
            turn.outlook = Rewards.mean(parts[turn.id], len(parts[turn.id]))
    return playouts


Asked = list[tuple[str, dict[Role, Turn]]]  # the coalition (where there is one) and its joint action


def _combinations(drawn: Mapping[Role, list[Turn]], acting: Sequence[Role], plan: Tree) -> Asked:
    first = {role: turns[0] for role, turns in drawn.items()}
    replies = [drawn[role] for role in acting]
    chosen = zip(*replies, strict=False) if plan.joint == "aligned" else itertools.product(*replies)
    return [("", {**first, **dict(zip(acting, turns, strict=True))}) for turns in chosen]


def _coalitions(drawn: Mapping[Role, list[Turn]], acting: Sequence[Role], plan: Tree) -> Asked:
    """The whole team first. Copies stand for the turns in the others, so that only the first marks the turns."""
    if plan.joint == "without":
        subsets = [set(acting), *({*acting} - {out} for out in acting)]
    else:
        prefixes = {coalition(order[:i]): set(order[:i]) for order in orders(acting) for i in range(len(order) + 1)}
        subsets = sorted(prefixes.values(), key=lambda s: (-len(s), sorted(s)))
    out: Asked = []
    for present in subsets:
        joint = {role: turns[0] if len(present) == len(acting) else replace(turns[0]) for role, turns in drawn.items()}
        for role in set(acting) - present:
            joint[role] = replace(joint[role], text=plan.default, action=(), logprobs=(), calls=())
        out.append((coalition(present), joint))
    return out
