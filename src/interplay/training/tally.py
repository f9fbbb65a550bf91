"""The metrics of a step: rewards of the episodes, statistics of turns, and work of the engines."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from interplay.agents.calls import MALFORMED
from interplay.algorithms import credit
from interplay.config import RewardSection
from interplay.rollout.stream import Group
from interplay.rollout.team import Team
from interplay.types import Episode, Level, Rewards, Role, Status, reply_share
from interplay.types.occupant import learns


def tally(episodes: Sequence[Episode], learners: Collection[str], weights: RewardSection) -> dict[str, float]:
    """Metrics of episodes without errors: every component of the reward, and how the learners played.

    `reward` and its parts are what the policies earn by their own choices. A tree that continues with the best of
    several replies plays better than its policy, so the reward of its lines is called `reward_kept`. If it is unknown
    what the policy itself earns, there is no `reward`, and the parts are called `reward_kept/…` too.
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
    metrics["turns_illegal"] = reply_share(episodes, learners, lambda t: t.illegal)
    metrics["turns_cut"] = reply_share(episodes, learners, lambda t: t.status is Status.LENGTH)
    metrics["turns_merged"] = sum(t.last.extends is not None for t in trainable) / max(1, len(trainable))
    told = Counter(t.last.history for t in trainable if t.last.history)  # how programs repeat replies
    metrics |= {f"history/{how}": count / len(trainable) for how, count in sorted(told.items())}
    if calls := [c for t in trainable for c in t.samples[:-1]]:
        metrics["tool_calls"] = len(calls) / len(trainable)
        metrics["tool_calls_malformed"] = sum(MALFORMED in c.tool for c in calls) / len(calls)
    metrics["episodes_truncated"] = sum(e.truncated for e in episodes)
    metrics["reply_tokens"] = sum(t.sampled for t in trainable) / max(1, len(trainable))
    metrics["turns_per_episode"] = len(played) / len(episodes)
    return metrics


def _earned(
    name: str, plays: Sequence[tuple[Episode, Sequence[Rewards]]], learners: Collection[str], weights: RewardSection
) -> dict[str, float]:
    """Metrics under `name`: the mean weighted reward in the seats of learners, each component of the reward over all
    seats, and the contribution of each level. All episodes count the same, and so do all plays of one episode."""
    seated = {who for e, _ in plays for who in e.seats.values()}
    learning = {who for who in seated if learns(who, learners)}
    mine = [(played, role) for e, played in plays for role, who in e.seats.items() if who in learning]
    found: dict[tuple[str, Role], list[float]] = defaultdict(list)
    for _, played in plays:
        for r in (r for rewards in played for r in rewards if r.value is not None):
            found[r.name, r.role or "team"].append((r.value or 0.0) / len(played))
    parts: dict[Level, float] = defaultdict(float)
    for played, role in mine:
        for r in (r for rewards in played for r in rewards.of(role) if r.value is not None):
            parts[r.level] += credit.weight_of(r, weights) * (r.value or 0.0) / len(mine) / len(played)
    components = {f"{name}/{what}/{role}": values for (what, role), values in found.items()}
    levels = {f"{name.replace('reward', 'reward_level')}/{level.value}": part for level, part in parts.items()}
    metrics = {key: sum(values) / len(plays) for key, values in sorted(components.items())}
    whole = [sum(credit.mix(rewards, role, weights) for rewards in played) / len(played) for played, role in mine]
    return metrics | {name: sum(whole) / max(1, len(mine)), **dict(sorted(levels.items()))}


def used_tokens(groups: Sequence[Group], trained: Sequence[Episode], discarded: Sequence[Episode]) -> Counter[str]:
    """The tokens that each policy sampled for a step. Failed and discarded episodes count too, and so do rejected
    candidates, playouts, the calls of judges and the words that judges compare replies with."""
    used: Counter[str] = Counter()
    for episode in discarded:
        used.update(episode.used)
    designs = [e for e in trained if not e.used]  # a designer's, which are stored without `used`
    for turn in (t for e in designs for t in e.turns):
        used[turn.policy] += turn.sampled
    for episode in (e for group in groups for e in group.played):
        used.update(episode.used)
        for turn in episode.judged:
            used[turn.policy] += turn.sampled
    return used


def update_cost(prefix: str, seconds: float, size: int) -> dict[str, float]:
    """How long `size` bytes of new weights took to reach the engines."""
    return {f"{prefix}update_seconds": seconds, f"{prefix}update_seconds_per_gb": seconds / max(size, 1) * 1e9}


class Meter:
    """Counts the tokens that the engines processed between `start` and `stop`."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self._before = [0] * 5
        self.sampled, self.asked, self.saved = 0, 0, 0  # tokens: sampled, in prompts, and of those cached
        self.drafted, self.accepted = 0, 0  # tokens that speculative sampling guessed, and those that were right

    def start(self) -> None:
        self._before = self._read()

    def stop(self) -> None:
        made = (now - before for before, now in zip(self._before, self._read(), strict=True))
        self.sampled, self.asked, self.saved, self.drafted, self.accepted = made

    def _read(self) -> list[int]:
        found = [engine.stats() for engine in self.team.engines]
        each = [
            (s.sampled_tokens, s.prompt_tokens, s.cached_tokens, s.drafted_tokens, s.accepted_tokens) for s in found
        ]
        return [sum(column) for column in zip((0,) * 5, *each, strict=True)]

    def metrics(self) -> dict[str, float]:
        """Which share of the prompts' tokens was not computed again, and with speculative sampling how many tokens were
        guessed, and how many of them were right."""
        found = {"prompt_tokens_saved": self.saved / max(1, self.asked)}
        if self.drafted:
            found |= {"tokens_drafted": float(self.drafted), "tokens_accepted": float(self.accepted)}
        return found


class Clock:
    """Seconds per phase of a step."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self._last = time.monotonic()

    @property
    def total(self) -> float:
        return sum(self.times.values())

    def metrics(self) -> dict[str, float]:
        return {f"seconds/{name}": seconds for name, seconds in self.times.items()}

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.times[name] = now - self._last
        self._last = now
