"""Tests whether length, position, echoes of the question or style influence a judge, and whether its verdicts drift.

A probe changes a reply in a way that cannot make it better, and asks which of the two versions the judge prefers, in
both orders. If the judge prefers the changed one, this is a fault. Position is measured on unchanged pairs, before the
orders are averaged. `Watch` compares gold with proxy over time. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev
from typing import Any

from interplay.errors import ConfigError, did_you_mean
from interplay.rewards.agreement import Z95
from interplay.rewards.preference import Pair, Verdict, both_orders, flip_rate
from interplay.types import Message

Judge = Callable[[Sequence[Pair]], Sequence[Verdict]]  # one verdict for each pair, in the order in which it is shown
MARGIN = 0.05  # deviations of a preference from ½ that are ignored


@dataclass(frozen=True)
class AuditFinding:
    """The result of a check: a number, its 95% interval, and whether it is a fault."""

    check: str
    value: float
    low: float
    high: float
    fault: bool
    words: str


def _padded(pair: Pair, reply: str) -> str:
    """The reply with an addition that says nothing. (A repetition in other words could make the reply clearer.)"""
    return f"{reply} That is to say, all of this is as it was said above, and there is nothing to add to it."


def _echoed(pair: Pair, reply: str) -> str:
    asked = next((m.content for m in reversed(pair.question) if m.role == "user"), "")
    return f"You asked: {asked}\n{reply}"


def _styled(pair: Pair, reply: str) -> str:
    return "**Great question!**\n\n- " + reply.replace("\n", "\n- ") + "\n"


PROBES: Mapping[str, Callable[[Pair, str], str]] = {"length": _padded, "echo": _echoed, "style": _styled}
CHECKS = ("length", "position", "echo", "style", "drift")


def audit(
    judge: Judge, pairs: Sequence[Pair], checks: Sequence[str] = CHECKS, before: Sequence[Verdict] | None = None
) -> list[AuditFinding]:
    """Run the checks on a judge. `before` holds an earlier version's verdicts on these pairs, for drift."""
    for name in checks:
        if name not in CHECKS:
            raise ConfigError(f"'{name}' is not a check of a judge; {did_you_mean(name, CHECKS)}")
    made = [name for name in checks if name != "drift" or before is not None]
    return [finding(name, judge(asked(name, pairs)), before) for name in made]


def asked(check: str, pairs: Sequence[Pair]) -> list[Pair]:
    """The questions of a check: the pairs in the order in which they are shown, then each of them swapped."""
    change = PROBES.get(check)
    shown = (
        pairs if change is None else [replace(p, first=change(p, p.first), second=p.first, label=None) for p in pairs]
    )
    return [*shown, *(p.swapped() for p in shown)]


def finding(check: str, verdicts: Sequence[Verdict], before: Sequence[Verdict] | None = None) -> AuditFinding:
    """The result of a check, from the answers to its questions."""
    there, back = halves(verdicts)
    if check == "position":
        return _position(there, back)
    both = [both_orders(a, b) for a, b in zip(there, back, strict=True)]
    return _drift(both, before or ()) if check == "drift" else _probe(check, both)


def halves(verdicts: Sequence[Verdict]) -> tuple[Sequence[Verdict], Sequence[Verdict]]:
    """The verdicts on the pairs as they were shown, and on the swapped pairs."""
    return verdicts[: len(verdicts) // 2], verdicts[len(verdicts) // 2 :]


def _probe(name: str, verdicts: Sequence[Verdict]) -> AuditFinding:
    value, low, high = _mean([v.p for v in verdicts if v.p is not None])
    words = f"prefers a reply with nothing but {_NAMED[name]} added in {value:.0%} of pairs"
    # There may be good reasons to prefer the unchanged reply, but never to prefer the changed one.
    return AuditFinding(name, value, low, high, low > 0.5 + MARGIN, words)


_NAMED = {"length": "padding", "echo": "the question", "style": "decoration"}


def _position(there: Sequence[Verdict], back: Sequence[Verdict]) -> AuditFinding:
    both = [(a.p + b.p) / 2 for a, b in zip(there, back, strict=True) if a.p is not None and b.p is not None]
    value, low, high = _mean(both)
    flips = flip_rate(list(zip(there, back, strict=True)))
    words = f"prefers the first place in {value:.0%}; changes its mind after a swap in {flips:.0%} of pairs"
    return AuditFinding("position", value, low, high, low > 0.5 + MARGIN or high < 0.5 - MARGIN, words)


def _drift(now: Sequence[Verdict], before: Sequence[Verdict]) -> AuditFinding:
    changed = [float(a.decision != b.decision) for a, b in zip(now, before, strict=True) if None not in (a.p, b.p)]
    value, low, high = _mean(changed)
    words = f"decides {value:.0%} of the same pairs otherwise than before"
    return AuditFinding("drift", value, low, high, low > 0.1, words)


def in_both_orders(judge: Judge, pairs: Sequence[Pair]) -> list[Verdict]:
    """A judge's verdict on each pair, from both orders."""
    there, back = judge(pairs), judge([p.swapped() for p in pairs])
    return [both_orders(a, b) for a, b in zip(there, back, strict=True)]


def _mean(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean with the normal 95% interval, which is infinite for fewer than two values."""
    if len(values) < 2:
        return (values[0] if values else math.nan), -math.inf, math.inf
    centre, half = fmean(values), Z95 * stdev(values) / math.sqrt(len(values))
    return centre, centre - half, centre + half


@dataclass
class Watch:
    """Gold and proxy over time. It warns if gold has fallen by `drop` below its best while the proxy rose, because then
    the policy has learned to exploit the judge. It compares means over `window` measurements, because single ones are
    noisy."""

    drop: float
    window: int = 3
    seen: list[tuple[float, float]] = field(default_factory=list)  # gold and proxy of each measurement

    def see(self, gold: float, proxy: float) -> bool:
        """Add a measurement; return whether to warn."""
        self.seen.append((gold, proxy))
        means = [
            (fmean(g for g, _ in part), fmean(p for _, p in part))
            for end in range(self.window, len(self.seen) + 1)
            for part in [self.seen[end - self.window : end]]
        ]
        if len(means) < 2:
            return False
        best_gold, proxy_then = max(means[:-1])
        now_gold, now_proxy = means[-1]
        return now_gold < best_gold - self.drop and now_proxy > proxy_then

    def state_dict(self) -> list[list[float]]:
        return [list(pair) for pair in self.seen]

    def load_state_dict(self, state: Sequence[Sequence[float]]) -> None:
        self.seen = [(g, p) for g, p in state]


@dataclass
class Fixed:
    """Pairs that a judge is asked about repeatedly in a run, and its previous answers, to measure its drift."""

    pairs: list[Pair] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def state_dict(self) -> list[list[Any]]:
        rows = zip(self.pairs, self.verdicts, strict=True)
        return [[p.id, [[m.role, m.content] for m in p.question], p.first, p.second, v.p] for p, v in rows]

    def load_state_dict(self, state: Sequence[Sequence[Any]]) -> None:
        rows = [(Pair(name, tuple(Message(*m) for m in q), one, other), Verdict(p)) for name, q, one, other, p in state]
        self.pairs, self.verdicts = [p for p, _ in rows], [v for _, v in rows]
