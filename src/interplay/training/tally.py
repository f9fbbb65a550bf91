"""What a step came to, as metrics by name: what the episodes earned, how their turns went, what the engines did."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from interplay.agents.calls import MALFORMED
from interplay.algorithms import credit
from interplay.config import RewardSection
from interplay.rollout.team import Team
from interplay.types import Episode, Rewards
from interplay.types.occupant import learns


def tally(episodes: Sequence[Episode], learners: Collection[str], weights: RewardSection) -> dict[str, float]:
    """Every component of the reward, and how those who learn did; of episodes that the machinery did not fail.

    `reward` and its parts are what the policies earn by their own choices. A tree that goes on with the best of several
    replies plays better than its policy: what its lines earned is `reward_kept`. Where nothing shows what the policy
    itself earns, there is no `reward`, and the parts are called `reward_kept/…` too.
    """
    known = [e for e in episodes if e.own]
    metrics = _turns(episodes, learners)
    if known:
        metrics |= _earned("reward", [(e, e.own) for e in known], learners, weights)
    if any(e.plays is not None for e in episodes):
        kept = _earned("reward_kept", [(e, (e.rewards,)) for e in episodes], learners, weights)
        metrics |= {"reward_kept": kept["reward_kept"]} if known else kept
    return metrics


def _turns(episodes: Sequence[Episode], learners: Collection[str]) -> dict[str, float]:
    played = [t for e in episodes for t in e.line() if t.is_model]
    trainable = [t for t in played if t.policy in learners]
    metrics: dict[str, float] = {}
    metrics["turns_illegal"] = sum(t.illegal for t in trainable) / max(1, len(trainable))
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


def _earned(
    name: str, plays: Sequence[tuple[Episode, Sequence[Rewards]]], learners: Collection[str], weights: RewardSection
) -> dict[str, float]:
    """Under `name`: what the seats of those who learn earned with the recipe's weights; each component of the reward
    over all seats; and each level's part of the whole. Episodes count alike, and so do the plays of one."""
    mine = [(played, role) for e, played in plays for role, who in e.seats.items() if learns(who, learners)]
    components: dict[str, list[float]] = defaultdict(list)
    for _, played in plays:
        for r in (r for rewards in played for r in rewards if r.value is not None):
            components[f"{name}/{r.name}/{r.role or 'team'}"].append((r.value or 0.0) / len(played))
    levels: dict[str, float] = defaultdict(float)
    for played, role in mine:
        for r in (r for rewards in played for r in rewards.of(role) if r.value is not None):
            part = credit.weight_of(r, weights) * (r.value or 0.0) / len(mine) / len(played)
            levels[f"{name.replace('reward', 'reward_level')}/{r.level.value}"] += part
    metrics = {key: sum(values) / len(plays) for key, values in sorted(components.items())}
    whole = [sum(credit.mix(rewards, role, weights) for rewards in played) / len(played) for played, role in mine]
    return metrics | {name: sum(whole) / max(1, len(mine)), **dict(sorted(levels.items()))}


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
