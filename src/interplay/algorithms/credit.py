"""Arithmetic over plain records that the algorithms share. No torch.

Credit reads the turns that were played (in a tree: the candidates), never playouts. A frozen policy's turns may
get an advantage too; only those of trainable policies reach a batch.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from interplay.config import RewardSection
from interplay.errors import GuardError
from interplay.types import Episode, Level, Rewards, Role, Turn


def mix(rewards: Rewards, role: Role, weights: RewardSection) -> float:
    """One number for `role` from its own and the team's rewards; what was never scored is left out."""
    level = {Level.PROCESS: weights.process, Level.AGENT: weights.agent, Level.TEAM: weights.team}
    return sum(
        level[r.level] * weights.weights.get(r.name, 1.0) * r.value for r in rewards.of(role) if r.value is not None
    )


def returns(turns: Sequence[Turn], weights: RewardSection) -> list[float]:
    """Discounted returns of one role's turns, in order: G_t = r_t + γ·G_{t+1}."""
    out: list[float] = []
    ahead = 0.0
    for turn in reversed(turns):
        ahead = mix(turn.rewards, turn.role, weights) + weights.gamma * ahead
        out.append(ahead)
    return out[::-1]


def candidate_return(turn: Turn, weights: RewardSection) -> float:
    """In a tree: what this candidate earned on its own fork. What the kept line earned later plays no part."""
    if turn.outlook is None:
        raise GuardError(f"candidate {turn.id} was never scored; it has no return.")
    return mix(turn.outlook, turn.role, weights)


def lines(episodes: Iterable[Episode]) -> list[list[Turn]]:
    """Each role's model turns of each episode, as played."""
    out = []
    for episode in episodes:
        by_role: dict[Role, list[Turn]] = defaultdict(list)
        for turn in episode.line():
            if turn.is_model:
                by_role[turn.role].append(turn)
        out += list(by_role.values())
    return out


def groups(turns: Iterable[Turn], grouping: tuple[str, ...]) -> list[list[Turn]]:
    """Turns that share the keys in `grouping`, checked for what the grouping promises (promise 3)."""
    by_key: dict[tuple[object, ...], list[Turn]] = defaultdict(list)
    for turn in turns:
        by_key[turn.keys.pick(grouping)].append(turn)
    same_prompt = "decision" in grouping or "prompt" in grouping
    for key, members in by_key.items():
        if same_prompt and len({t.keys.prompt for t in members}) > 1:
            raise GuardError(f"the group {dict(zip(grouping, key, strict=True))} holds different prompts.")
        if len({(t.keys.task, t.keys.role) for t in members}) > 1:
            raise GuardError(f"the group {dict(zip(grouping, key, strict=True))} mixes tasks or roles.")
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


def gae(rewards: Sequence[float], values: Sequence[float], bootstrap: float, gamma: float, lam: float) -> list[float]:
    """Generalised advantages over one role's turns: A_t = δ_t + γλ·A_{t+1}, δ_t = r_t + γ·V_{t+1} − V_t."""
    out = [0.0] * len(rewards)
    ahead, following = 0.0, bootstrap
    for t in range(len(rewards) - 1, -1, -1):
        ahead = rewards[t] + gamma * following - values[t] + gamma * lam * ahead
        out[t], following = ahead, values[t]
    return out


def summary(turns: Iterable[Turn]) -> Mapping[str, float]:
    """How much signal the advantages carry: the share of exact zeros per role."""
    by_role: dict[Role, list[float]] = defaultdict(list)
    for turn in turns:
        if turn.advantage is not None:
            by_role[turn.role].append(turn.advantage)
    return {f"credit/zero_share/{r}": sum(a == 0.0 for a in v) / len(v) for r, v in sorted(by_role.items())}
