"""Arithmetic over plain records that the algorithms share. No torch.

Credit is computed from the turns that were played (in a tree, from the candidates), never from turns of playouts. Turns
of a frozen policy may get an advantage too, but only turns of trainable policies enter a batch.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from interplay.config import RewardSection
from interplay.errors import GuardError
from interplay.types import Credit, Episode, Level, Reward, Rewards, Role, Sample, Task, Turn, seed_of

T = TypeVar("T")

Rule = Callable[[Sequence[float]], list[float]]  # turns the returns of a group into advantages
KL, OVERLONG = SHAPED = ("kl", "overlong")  # the rewards that an algorithm's settings add
CRITIC = "critic"  # the reward record that holds a critic's value, to which no weights are applied


def mix(rewards: Rewards, role: Role, weights: RewardSection) -> float:
    """The weighted sum of a role's own rewards and the team's. Rewards that were never scored are left out."""
    return sum([weight_of(r, weights) * r.value for r in rewards.of(role).records if r.value is not None])


def weight_of(reward: Reward, weights: RewardSection) -> float:
    """The weight of a reward: that of its level times that of its name."""
    if reward.name == CRITIC:
        return 1.0
    return getattr(weights, reward.level) * weights.weights.get(reward.name, 1.0)


def own(rewards: Rewards) -> Rewards:
    """The process-level rewards, which belong to this action only."""
    return Rewards(tuple(r for r in rewards if r.level is Level.PROCESS))


def shared(rewards: Rewards) -> Rewards:
    """The agent-level and team-level rewards."""
    return Rewards(tuple(r for r in rewards if r.level is not Level.PROCESS))


def returns(turns: Sequence[Turn], weights: RewardSection, shaped: bool = True) -> list[float]:
    """Discounted returns of one role's turns, in order: G_t = r_t + γ·G_{t+1}. With `shaped` they include the rewards
    that the algorithm's settings added."""
    out: list[float] = []
    ahead = 0.0
    for turn in reversed(turns):
        rewards = turn.rewards if shaped else Rewards(tuple(r for r in turn.rewards if r.name not in SHAPED))
        ahead = mix(rewards, turn.role, weights) + weights.gamma * ahead
        out.append(ahead)
    return out[::-1]


def beyond(
    line: Sequence[Turn], paid: Mapping[str, float], weights: RewardSection, judges: Collection[str] = ()
) -> Iterator[tuple[Turn, float]]:
    """What was earned after the state that each turn of one role led to. This is the target of a critic of states.

    It is the return of the turn minus what its step `paid` (by turn id; turns that are missing there are left out) and
    minus the turn's own shaping and the rewards of `judges` for its reply, because a candidate's outlook holds all of
    these in addition to the critic's value.
    """
    for turn, ahead in zip(line, returns(line, weights), strict=True):
        if turn.id in paid:
            own = Rewards(tuple(r for r in turn.rewards if r.name in SHAPED or r.name in judges))
            yield turn, ahead - paid[turn.id] - mix(own, turn.role, weights)


def candidate_return(turn: Turn, weights: RewardSection) -> float:
    """What a candidate of a tree earned on its own fork. What the played line earned later does not count."""
    if turn.outlook is None:
        raise GuardError(
            f"candidate {turn.id} has no return, because it was never scored on a fork; expected only turns that "
            "credit.candidates lists."
        )
    return mix(turn.outlook.rewards, turn.role, weights)


def lines(episodes: Iterable[Episode]) -> list[list[Turn]]:
    """For each episode and role, the turns that were played, if a model took at least one of them. Turns that a bot
    took for the role are included, because the role earned their rewards."""
    out = []
    for episode in episodes:
        by_role: dict[Role, list[Turn]] = defaultdict(list)
        for turn in episode.line():
            by_role[turn.role].append(turn)
        out += [line for line in by_role.values() if any(turn.is_model for turn in line)]
    return out


def in_play(episode: Episode) -> dict[str, Rewards]:
    """The rewards of each played turn. If a limit cut the episode off, the rewards that the environment gave for ending
    there are left out. PPO and others estimate the value of what would have followed, and must not count both."""
    earned = {turn.id: list(turn.rewards) for turn in episode.line()}
    if episode.cut is not None:
        for role in {turn.role for turn in episode.line()}:
            line = episode.line(role)[::-1]
            for reward in episode.cut.outcome.of(role):
                if holder := next((t.id for t in line if reward in earned[t.id]), None):
                    earned[holder].remove(reward)
    return {name: Rewards(tuple(records)) for name, records in earned.items()}


def by_seat(turns: Iterable[Turn]) -> list[list[Turn]]:
    """Groups model turns by policy and role. Another policy in the same role, such as a frozen opponent or partner,
    earns different returns, which must not enter the policy's mean or deviation."""
    out: dict[tuple[str, Role], list[Turn]] = defaultdict(list)
    for turn in turns:
        if turn.is_model:
            out[turn.policy, turn.role].append(turn)
    return list(out.values())


def groups(turns: Iterable[Turn], grouping: tuple[str, ...]) -> list[list[Turn]]:
    """Groups turns by the keys in `grouping`. Checks that no group mixes tasks or roles, nor prompts if the grouping
    promises equal prompts (promise 3)."""
    by_key: dict[tuple[object, ...], list[Turn]] = defaultdict(list)
    for turn in turns:
        by_key[turn.keys.pick(grouping)].append(turn)
    same_prompt = "decision" in grouping or "prompt" in grouping
    for key, members in by_key.items():
        if same_prompt and len({t.keys.prompt for t in members}) > 1:
            raise GuardError(
                f"the group {dict(zip(grouping, key, strict=True))} holds different prompts; expected a grouping with "
                "'prompt', or with 'episode' and 'decision'."
            )
        if len({(t.keys.task, t.keys.role) for t in members}) > 1:
            raise GuardError(
                f"the group {dict(zip(grouping, key, strict=True))} mixes tasks or roles; expected 'role', and 'task' "
                "or 'episode', in the grouping."
            )
    return list(by_key.values())


def centred(values: Sequence[float], scale: bool, epsilon: float = 1e-6) -> list[float]:
    """Values minus their mean, divided by their standard deviation if `scale`; ties become exact zeros."""
    mean = math.fsum(values) / len(values)
    shifted = [v - mean for v in values]
    if max(map(abs, shifted)) < 1e-9:
        return [0.0] * len(values)
    if not scale:
        return shifted
    deviation = math.sqrt(math.fsum(s * s for s in shifted) / len(shifted))
    return [s / (deviation + epsilon) for s in shifted]


def leave_one_out(values: Sequence[float]) -> list[float]:
    """Each value minus the mean of the *other* values, on which it has no influence. A single value becomes 0."""
    n = len(values)
    return [v * n / (n - 1) for v in centred(values, False)] if n > 1 else [0.0] * n


def grade_episodes(
    episodes: Iterable[Episode], given: Credit, weights: RewardSection, rule: Rule
) -> Mapping[str, float]:
    """Compares whole episodes: the returns of a role's lines within (task, role). All turns of a line get the same
    advantage."""
    played = lines(episodes)
    grouped = line_groups(played)
    for group in grouped:
        for line, advantage in zip(group, rule([returns(line, weights)[0] for line in group]), strict=True):
            for turn in line:
                given.give(turn, advantage)
    lonely = sum(len(g) == 1 for g in grouped)
    return {"credit/groups_of_one": lonely, **summary((t for line in played for t in line), given)}


def line_groups(played: Iterable[list[Turn]]) -> list[list[list[Turn]]]:
    """Groups lines of play by task and role."""
    of = {line[0].id: line for line in played}
    return [[of[first.id] for first in group] for group in groups([line[0] for line in of.values()], ("task", "role"))]


def candidates(episodes: Iterable[Episode]) -> list[Turn]:
    """The candidates of a tree that were scored."""
    return [t for e in episodes for t in e.turns if t.playout is None and t.outlook is not None]


def grade_candidates(
    episodes: Iterable[Episode], given: Credit, weights: RewardSection, rule: Rule
) -> Mapping[str, float]:
    """Compares the replies to one prompt: the returns of the candidates within (episode, decision, role)."""
    turns = candidates(episodes)
    grouped = groups(turns, ("episode", "decision", "role"))
    for group in grouped:
        advantages = rule([candidate_return(t, weights) for t in group])
        for turn, advantage in zip(group, advantages, strict=True):
            given.give(turn, advantage)
    return {"credit/groups_of_one": sum(len(g) == 1 for g in grouped), **summary(turns, given)}


def whiten(turns: Sequence[Turn], given: Credit) -> None:
    """Scales advantages to mean 0 and deviation 1 over the sampled tokens of these turns, tool calls included. If all
    are equal, they become exact zeros."""
    samples = [sample for turn in turns for sample in turn.samples if sample.action]
    found = [given.advantages[sample.id] for sample in samples]
    parts = [
        list(a) if isinstance(a, tuple) else [a] * len(sample.action) for sample, a in zip(samples, found, strict=True)
    ]
    flat = [a for part in parts for a in part]
    mean = math.fsum(flat) / len(flat)
    differ = max(flat) - min(flat) > 1e-9
    shifted = [[a - mean if differ else 0.0 for a in part] for part in parts]
    deviation = math.sqrt(math.fsum(a * a for part in shifted for a in part) / len(flat))
    for sample, before, part in zip(samples, found, shifted, strict=True):
        white = tuple([a / (deviation + 1e-6) for a in part])
        given.advantages[sample.id] = white if isinstance(before, tuple) else white[0]


def gae(
    rewards: Sequence[float], values: Sequence[float], bootstrap: float, gamma: float | Sequence[float], lam: float
) -> list[float]:
    """Generalised advantage estimation over one role's turns or tokens: A_t = δ_t + γλ·A_{t+1}, with
    δ_t = r_t + γ·V_{t+1} − V_t (1506.02438, sec. 3). If `gamma` is a sequence, each γ discounts what follows its
    step."""
    gammas = [gamma] * len(rewards) if isinstance(gamma, float | int) else gamma
    out = [0.0] * len(rewards)
    ahead, following = 0.0, bootstrap
    for t in range(len(rewards) - 1, -1, -1):
        ahead = rewards[t] + gammas[t] * following - values[t] + gammas[t] * lam * ahead
        out[t], following = ahead, values[t]
    return out


# -- shaping ----------------------------------------------------------------------------------------------------------


def overlong(tokens: int, length: int, margin: int) -> float:
    """DAPO, sec. 3.4: 0 up to `length` − `margin` tokens, then evenly down to −1 at `length`, and −1 beyond."""
    return -min(1.0, max(0.0, (tokens - (length - margin)) / margin))


def drift(turn: Turn, given: Credit) -> float:
    """log π − log ref, summed over all tokens that were sampled for a decision."""
    return math.fsum(math.fsum(s.logprobs) - math.fsum(given.reference.get(s.id, ())) for s in turn.samples)


def token_drifts(sample: Sample, given: Credit) -> list[float]:
    """log π − log ref of each token; 0 if there is no reference."""
    reference = given.reference.get(sample.id, sample.logprobs)
    return [mine - theirs for mine, theirs in zip(sample.logprobs, reference, strict=True)]


def shape(episodes: Sequence[Episode], given: Credit, kl: float, length: tuple[int, int] | None) -> Mapping[str, float]:
    """Adds the rewards `kl` and `overlong` to model turns. `kl` is −coefficient · Σ(log π − log π_ref) over the turn:
    the k1 estimate, without a gradient."""
    if not kl and length is None:
        return {}
    sums: dict[str, float] = defaultdict(float)
    for turn in (t for e in episodes for t in e.turns if t.is_model and t.playout is None):
        extra = []
        if kl and turn.last.id in given.reference:
            extra.append(Reward(KL, Level.PROCESS, turn.role, -kl * drift(turn, given)))
        if length is not None:
            extra.append(Reward(OVERLONG, Level.PROCESS, turn.role, overlong(turn.sampled, *length)))
        turn.rewards += Rewards(tuple(extra))
        if turn.outlook is not None:
            turn.outlook = replace(turn.outlook, rewards=turn.outlook.rewards + Rewards(tuple(extra)))
        if turn.kept:
            for reward in extra:
                sums[f"reward/{reward.name}/{turn.role}"] += (reward.value or 0.0) / len(episodes)
    return dict(sorted(sums.items()))


# -- coalitions -------------------------------------------------------------------------------------------------------


def coalition(roles: Iterable[Role]) -> str:
    """How a set of roles is written in `Outlook.coalitions`."""
    return ",".join(sorted(roles))


def team(turn: Turn) -> list[Role]:
    """The roles that acted at the decision of this turn: the largest coalition that was scored."""
    assert turn.outlook is not None
    return max((who.split(",") for who in turn.outlook.coalitions if who), key=len)


def order_seed(task: Task, episode: str, decision: int) -> int:
    """The seed for the orders of one decision. Rollout and credit must use the same orders."""
    return seed_of("orders", task.seed, episode, decision)


def orders(roles: Sequence[Role], seed: int) -> list[tuple[Role, ...]]:
    """Orders in which the roles of a team can join, for Shapley values. Up to four roles, these are all orders.

    With more roles, these are all rotations of a few random orders, and their reverses. Every role then stands at every
    place equally often, and before and after every other role equally often. The Shapley values are exact if what a
    role adds depends only on how many roles joined before it. In general they are unbiased over decisions, and the
    standard error at one decision is at most R / (2·√b), where R is the range of what a role can add and
    b = max(1, 24 // roles) is the number of random orders.
    """
    size = len(roles)
    if size <= 4:
        return list(itertools.permutations(roles))
    rng = random.Random(seed)
    drawn = [rng.sample(list(roles), size) for _ in range(max(1, 24 // size))]
    turned = [tuple(order[k:] + order[:k]) for order in drawn for k in range(size)]
    return turned + [order[::-1] for order in turned]


def shapley(worth: Mapping[str, float], roles: Sequence[Role], seed: int) -> dict[Role, float]:
    """What each role adds when it joins, averaged over `orders`. The values sum to v(N) − v(∅), whichever orders are
    used."""
    ways = orders(roles, seed)
    out = dict.fromkeys(roles, 0.0)
    for order in ways:
        for i, role in enumerate(order):
            gain = worth[coalition(order[: i + 1])] - worth[coalition(order[:i])]
            out[role] += gain / len(ways)
    return out


# -- preferences ------------------------------------------------------------------------------------------------------


def preference(compare: Callable[[T, T], float | None], one: T, other: T) -> float:
    """1 if `one` is better, −1 if `other` is. The judge is asked in both orders; if it abstains or its answers
    disagree, the result is 0.

    `compare(a, b)` is positive if a is better, negative if b is, and None if the judge cannot say.
    """
    there, back = compare(one, other), compare(other, one)
    if there is None or back is None or there * back >= 0:
        return 0.0
    return math.copysign(1.0, there)


def tournament(items: Sequence[T], compare: Callable[[T, T], float | None]) -> list[list[float]]:
    """Compares all pairs: entry [i][j] is 1 if i is preferred to j, −1 if j is preferred to i, else 0."""
    table = [[0.0] * len(items) for _ in items]
    for i, j in itertools.combinations(range(len(items)), 2):
        table[i][j] = preference(compare, items[i], items[j])
        table[j][i] = -table[i][j]
    return table


def wins(values: Sequence[float]) -> list[float]:
    """(wins − losses) / matchups of each value against all others. Only the order of the values counts, not their
    distance. A single value becomes 0."""
    table = tournament(values, lambda one, other: one - other)
    return [sum(row) / max(1, len(values) - 1) for row in table]


RULES: Mapping[str, Rule] = {
    "mean": lambda values: centred(values, False),
    "scaled": lambda values: centred(values, True),
    "leave_one_out": leave_one_out,
    "wins": wins,
}


def summary(turns: Iterable[Turn], given: Credit) -> Mapping[str, float]:
    """Metrics on how much signal the advantages carry: for each role, the share that is exactly zero."""
    by_role: dict[Role, list[float]] = defaultdict(list)
    for turn in turns:
        advantage = given.advantage(turn)
        if advantage is not None:
            by_role[turn.role].append(advantage)
    return {f"credit/zero_share/{r}": sum(a == 0.0 for a in v) / len(v) for r, v in sorted(by_role.items())}
