"""What a step came to, as metrics by name: what the episodes earned, how their turns went, what the engines did."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from interplay.agents.calls import MALFORMED
from interplay.algorithms import credit
from interplay.config import RewardSection
from interplay.rollout.team import Team
from interplay.types import Episode
from interplay.types.occupant import learns


def tally(episodes: Sequence[Episode], learners: Collection[str], weights: RewardSection) -> dict[str, float]:
    """Every component of the reward, and how those who learn did; of episodes that the machinery did not fail."""
    return _components(episodes) | _turns(episodes, learners) | _worth(episodes, learners, weights)


def _components(episodes: Sequence[Episode]) -> dict[str, float]:
    sums: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        for r in episode.rewards:
            if r.value is not None:
                sums[f"reward/{r.name}/{r.role or 'team'}"].append(r.value)
    return {name: sum(values) / len(episodes) for name, values in sorted(sums.items())}


def _turns(episodes: Sequence[Episode], learners: Collection[str]) -> dict[str, float]:
    played = [t for e in episodes for t in e.line() if t.is_model]
    trainable = [t for t in played if t.policy in learners]
    metrics: dict[str, float] = {}
    metrics["turns_illegal"] = sum(t.status == "illegal" for t in trainable) / max(1, len(trainable))
    metrics["turns_cut"] = sum(t.status == "length" for t in trainable) / max(1, len(trainable))
    metrics["turns_merged"] = sum(t.last.extends is not None for t in trainable) / max(1, len(trainable))
    told = Counter(t.last.history for t in trainable if t.last.history)  # by outside programs
    metrics |= {f"history/{how}": count / len(trainable) for how, count in sorted(told.items())}
    if calls := [c for t in trainable for c in t.samples[:-1]]:
        metrics["tool_calls"] = len(calls) / len(trainable)
        metrics["tool_calls_malformed"] = sum(MALFORMED in c.tool for c in calls) / len(calls)
    metrics["episodes_truncated"] = sum(e.truncated for e in episodes)
    metrics["turns_per_episode"] = len(played) / len(episodes)
    return metrics


def _worth(episodes: Sequence[Episode], learners: Collection[str], weights: RewardSection) -> dict[str, float]:
    """What the seats of those who learn earned, with the recipe's weights: the whole, and each level's part of it."""
    ours = {who for e in episodes for who in e.seats.values() if learns(who, learners)}
    mine = [(e, role) for e in episodes for role, who in e.seats.items() if who in ours]
    kept = [credit.mix(e.rewards, role, weights) for e, role in mine]
    drawn = [e.sampled.get(role, value) for (e, role), value in zip(mine, kept, strict=True)]
    parts: dict[str, float] = defaultdict(float)
    for e, role in mine:
        for r in e.rewards.of(role):
            if r.value is not None:
                parts[f"reward_level/{r.level.value}"] += credit.weight_of(r, weights) * r.value / len(mine)
    metrics = {"reward": sum(drawn) / max(1, len(mine)), **dict(sorted(parts.items()))}
    if any(e.sampled for e in episodes):  # the line that a greedy tree keeps is better than the policy
        metrics["reward_kept"] = sum(kept) / max(1, len(mine))
    return metrics


class Meter:
    """What the engines did between `start` and `stop`."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self._before = (0, 0, 0)
        self.sampled, self.asked, self.saved = self._before  # tokens; of the prompts: all, and those found in caches

    def start(self) -> None:
        self._before = self._read()

    def stop(self) -> None:
        before, now = self._before, self._read()
        self.sampled, self.asked, self.saved = now[0] - before[0], now[1] - before[1], now[2] - before[2]

    def _read(self) -> tuple[int, int, int]:
        found = [engine.stats() for engine in self.team.engines]
        return (
            sum(s.sampled_tokens for s in found),
            sum(s.prompt_tokens for s in found),
            sum(s.cached_tokens for s in found),
        )


class Clock:
    """Seconds per phase of a step."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self._last = time.monotonic()

    @property
    def total(self) -> float:
        return sum(self.times.values())

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.times[name] = now - self._last
        self._last = now
