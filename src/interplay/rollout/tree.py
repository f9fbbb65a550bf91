"""One decision under a tree plan: sample K candidates from one prompt, score each on a fork, and keep one.

A candidate is scored with candidate 0 of the other roles. The forks share the environment's randomness, so candidates
differ only by their actions. The kept joint action is stepped again on a fork with fresh randomness, so that choosing
the best candidate does not select for luck. Outcomes that only the kept line reaches are not used to compare
candidates.

If the choice does not depend on the scores, play continues while candidates are scored. The playouts of all decisions
of an episode then run at the same time.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from interplay.agents.player import Stamp
from interplay.algorithms import Tree
from interplay.algorithms.credit import candidate_return
from interplay.engines.census import census
from interplay.errors import InterplayError
from interplay.rollout.decision import Choice, Decision
from interplay.rollout.joint import score_joints, since, value_joint
from interplay.rollout.line import all_of, seen_in, step
from interplay.types import Outlook, Role, Turn, seed_of


async def decide(d: Decision) -> Choice:
    """Sample candidates, score them and keep one. Candidates whose sampling failed are left out. If the candidate is
    selected by its return, those whose scoring failed are left out too."""
    if d.plan.shows_own and d.ledger.plays is None and any(d.agents[role].trainable for role in d.views):
        d.ledger.plays, d = {}, replace(d, opening=True)
    drawn = await _draw(d)
    every = list(itertools.chain.from_iterable(drawn.values()))
    d.ledger.spend(every)
    now = {role: agent.fork() for role, agent in d.agents.items()}  # scoring may run after play has moved on
    scoring = d.ledger.later(_score(replace(d, agents=now), drawn))
    choices = drawn
    if d.plan.by_worth:
        await census().join(scoring)
        choices = {role: [t for t in turns if t.outlook is not None] or turns[:1] for role, turns in drawn.items()}
    kept = _keep(d, choices)
    for turn in every:
        turn.kept = turn is kept[turn.role]
    following = d.env.fork(seed_of("kept", d.stamp.seed, d.stamp.episode, d.stamp.decision))
    rewards = await step(following, kept)
    critic = d.foresight.critic
    if critic is not None and await seen_in(following):
        for role, turn in kept.items():
            if d.agents[role].trainable:
                critic.arrived(role, following, turn, since(d.stamp.decision, rewards))
    return Choice(following, kept, every, rewards)


async def _draw(d: Decision) -> dict[Role, list[Turn]]:
    """Sample K replies in trainable seats, and one in all others."""
    agents, views = d.agents, d.views
    wanted = [(r, k) for r in views for k in range(d.plan.candidates if agents[r].trainable else 1)]
    jobs = [agents[r].sample(d.env, views[r], d.stamp.at(d.stamp.decision, k)) for r, k in wanted]
    results = await census().gather(jobs)
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


async def _score(d: Decision, drawn: Mapping[Role, list[Turn]]) -> list[Turn]:
    """Fill the outlooks of the turns of trainable roles; return the playout turns if they are recorded."""
    plan, ledger = d.plan, d.ledger
    if ledger.spent:
        return []
    if plan.joint != "first":
        return await score_joints(d, drawn)
    said = Counter((t.role, t.words) for ts in drawn.values() for t in ts)
    asked = {role: ts for role, ts in drawn.items() if d.agents[role].trainable}
    if plan.compares and not d.opening:
        for role in [role for role, ts in asked.items() if said[role, ts[0].words] == len(ts)]:
            for turn in asked.pop(role):
                turn.outlook = Outlook()  # all candidates are equal: there is nothing to compare
    # Equal candidates lead to the same state. The first is scored for all of them, with the playouts of all.
    distinct = {(t.role, t.words): t for ts in asked.values() for t in reversed(ts)}
    first = {role: ts[0] for role, ts in drawn.items()}

    async def one(turn: Turn, times: int) -> list[Turn]:
        joint = {**first, turn.role: turn}
        whose = (list(joint).index(turn.role),) if len(joint) > 1 else ()  # roles that act at once have separate paths
        whole = replace(d, plan=replace(plan, playouts=plan.playouts * times))
        found = await value_joint(whole, joint, [turn.role], (*whose, turn.candidate))
        if turn.role in found.worth:
            turn.outlook = Outlook(found.worth[turn.role], refused=turn.role in found.refused)
        return found.playouts

    playouts = await all_of(one(turn, said[words]) for words, turn in distinct.items())
    for turn in itertools.chain.from_iterable(asked.values()):
        turn.outlook = distinct[turn.role, turn.words].outlook
    return list(itertools.chain.from_iterable(playouts))


def _keep(d: Decision, drawn: Mapping[Role, list[Turn]]) -> dict[Role, Turn]:
    """Choose one reply of each role. If joints are aligned, all come from the same joint action."""
    plan, reward = d.plan, d.foresight.reward
    values = {
        role: [candidate_return(t, reward) if plan.by_worth else 0.0 for t in turns]
        for role, turns in drawn.items()
        if len(turns) > 1
    }
    chosen = dict.fromkeys(drawn, 0)
    if plan.joint == "aligned":
        joints = [fmean(each) for each in zip(*values.values(), strict=False)]
        chosen |= dict.fromkeys(values, _pick(joints, plan, d.stamp, "") if joints else 0)
    else:
        chosen |= {role: _pick(found, plan, d.stamp, role) for role, found in values.items()}
    return {role: turns[chosen[role]] for role, turns in drawn.items()}


def _pick(values: Sequence[float], plan: Tree, stamp: Stamp, role: Role) -> int:
    if plan.keep == "first":
        return 0
    rng = random.Random(seed_of("keep", stamp.seed, stamp.episode, stamp.decision, role))
    every, best = range(len(values)), max(values)
    if plan.keep == "uniform":
        return rng.choice(every)
    if plan.keep == "greedy":
        return rng.choice([k for k in every if values[k] == best])
    return rng.choices(every, [math.exp((v - best) / plan.keep_temperature) for v in values])[0]
