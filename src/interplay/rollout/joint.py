"""Value joint actions on forks, and choose which joint actions a tree plan values.

Forks share the environment's randomness, so joint actions differ only by what was done.
"""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace

from interplay.algorithms import Tree
from interplay.algorithms.credit import CRITIC, coalition, order_seed, orders
from interplay.engines.census import census
from interplay.envs import Env
from interplay.errors import InterplayError, ReplayError
from interplay.rollout.decision import Decision
from interplay.rollout.line import Playout, all_of, outcome, seen_in, step
from interplay.types import Level, Outlook, Reward, Rewards, Role, Turn, seed_of

PlayedOut = Coroutine[None, None, Playout]


@dataclass(frozen=True)
class Valued:
    """The worth of a joint action to each role (step rewards plus continuation), the roles whose actions the
    environment refused, and the turns of the playouts if they are recorded. `worth` is empty if every playout
    failed."""

    worth: Mapping[Role, Rewards] = field(default_factory=dict)
    refused: frozenset[Role] = frozenset()
    playouts: list[Turn] = field(default_factory=list)


async def value_joint(d: Decision, joint: Mapping[Role, Turn], roles: Sequence[Role], path: tuple[int, ...]) -> Valued:
    """Step a joint action on a fork, and value it for all roles; with a critic, only for `roles`. `path` distinguishes
    the playouts of this joint action from those of others."""
    fork = d.env.fork()
    try:
        rewards = await step(fork, joint)
        over = not await seen_in(fork)
    except ReplayError:  # an outside program cannot be brought to this decision again
        return Valued()
    if over:
        rewards += await outcome(fork)
    refused, worth = _refused(joint, rewards), since(d.stamp.decision, rewards)
    if over or d.plan.continuation == "none":
        _book(d, path, [rewards] * d.plan.playouts)
        return Valued({r: worth.of(r) for r in d.agents}, refused)
    if d.plan.continuation == "critic":
        critic = d.foresight.critic
        assert critic is not None
        values = await all_of(critic.value(r, fork, joint[r]) for r in roles)
        ahead = {r: Rewards((Reward(CRITIC, Level.PROCESS, r, v),)) for r, v in zip(roles, values, strict=True)}
        return Valued({r: worth.of(r) + ahead[r] for r in roles}, refused)
    done = await census().gather(_playouts(d, fork, joint, path))
    good = [x for x in done if not isinstance(x, BaseException)]
    for x in done:
        if isinstance(x, BaseException) and not isinstance(x, InterplayError):
            raise x
    if not good:
        return Valued()
    _book(d, path, [rewards + played.rewards for played in good])
    whole = {r: worth.of(r) + Rewards.mean((p.ahead[r] for p in good), len(good)) for r in d.agents}
    return Valued(whole, refused, [t for played in good for t in played.turns])


def since(decision: int, rewards: Rewards) -> Rewards:
    """Rewards without those that name an earlier turn, which are no part of the worth of this decision."""
    if all(r.turn is None for r in rewards):
        return rewards
    return Rewards(tuple(r for r in rewards if r.turn is None or r.turn >= decision))


def _refused(joint: Mapping[Role, Turn], rewards: Rewards) -> frozenset[Role]:
    """The roles whose actions were refused. If several roles acted, a team reward does not show which role it was."""
    named = [r.role for r in rewards if r.name == "illegal"]
    return frozenset(role for role in joint if role in named or (len(joint) == 1 and None in named))


def _book(d: Decision, path: tuple[int, ...], plays: Sequence[Rewards]) -> None:
    """Store the rewards of complete plays that begin with a joint action, if this is the opening decision."""
    if d.opening and d.ledger.plays is not None:
        d.ledger.plays[path] = [d.earned + play for play in plays]


def _playouts(d: Decision, fork: Env, joint: Mapping[Role, Turn], path: tuple[int, ...]) -> list[PlayedOut]:
    """Playouts in which the same seats continue from the fork after a joint action."""
    stamp = d.stamp
    seated = {r: agent.fork() for r, agent in d.agents.items()}
    for r, t in joint.items():
        seated[r].commit(d.views[r], t)
    until = frozenset(joint) if d.plan.continuation == "round" else frozenset()
    lines = []
    for n in range(d.plan.playouts):
        inner = replace(
            stamp, decision=stamp.decision + 1, path=(*stamp.path, stamp.decision, *path, n), candidate=0, state=""
        )
        # Playouts of one candidate share the past but have different randomness from here on, as in real play.
        start = fork.fork(seed_of("playout", stamp.seed, stamp.episode, stamp.decision, n))
        lines.append(d.foresight.play_out(start, seated, inner, d.ledger, until))
    return lines


async def score_joints(d: Decision, drawn: Mapping[Role, list[Turn]]) -> list[Turn]:
    """Fill the outlooks of all trainable roles. Each joint action is scored once for all of them."""
    acting = [r for r in drawn if d.agents[r].trainable]
    if not acting:
        return []
    parts_of_a_team = d.plan.joint in ("without", "coalitions")
    joints = _coalitions(d, drawn, acting) if parts_of_a_team else _combinations(drawn, acting, d.plan)
    results = await all_of(value_joint(d, joint, acting, (n,)) for n, (_, joint) in enumerate(joints))
    playouts = [t for found in results for t in found.playouts]
    if parts_of_a_team:
        for role in acting if all(found.worth for found in results) else ():  # all values are needed
            worth = {who: found.worth[role] for (who, _), found in zip(joints, results, strict=True)}
            drawn[role][0].outlook = Outlook(worth[coalition(acting)], worth, role in results[0].refused)
        return playouts
    parts: dict[str, list[Rewards]] = {}
    refused: set[str] = set()
    for (_, joint), found in zip(joints, results, strict=True):
        refused |= {joint[role].id for role in found.refused}
        for role in acting if found.worth else ():
            parts.setdefault(joint[role].id, []).append(found.worth[role])
    for turn in itertools.chain.from_iterable(drawn[r] for r in acting):
        if turn.id in parts:
            turn.outlook = Outlook(Rewards.mean(parts[turn.id], len(parts[turn.id])), refused=turn.id in refused)
    return playouts


Joints = list[tuple[str, dict[Role, Turn]]]  # the coalition (or "") and its joint action


def _combinations(drawn: Mapping[Role, list[Turn]], acting: Sequence[Role], plan: Tree) -> Joints:
    first = {role: turns[0] for role, turns in drawn.items()}
    replies = [drawn[role] for role in acting]
    chosen = zip(*replies, strict=False) if plan.joint == "aligned" else itertools.product(*replies)
    return [("", {**first, **dict(zip(acting, turns, strict=True))}) for turns in chosen]


def _coalitions(d: Decision, drawn: Mapping[Role, list[Turn]], acting: Sequence[Role]) -> Joints:
    """The joint action of each coalition, the whole team first. All but the first use copies of the turns, so that only
    the first can change the turns themselves."""
    if d.plan.joint == "without":
        subsets = [set(acting), *({*acting} - {out} for out in acting)]
    else:
        ways = orders(sorted(acting), order_seed(d.stamp.task, d.stamp.episode, d.stamp.decision))
        prefixes = {coalition(order[:i]): set(order[:i]) for order in ways for i in range(len(order) + 1)}
        subsets = sorted(prefixes.values(), key=lambda s: (-len(s), sorted(s)))
    out: Joints = []
    for present in subsets:
        joint = {role: turns[0] if len(present) == len(acting) else replace(turns[0]) for role, turns in drawn.items()}
        for role in set(acting) - present:
            joint[role] = replace(joint[role], text=d.plan.default, samples=(), spoken=None)
        out.append((coalition(present), joint))
    return out
