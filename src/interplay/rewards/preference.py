"""Preferences as records: pairs of replies, verdicts about them, how both orders of a pair are combined, and balancing.

A verdict is about the order in which the replies were shown. A judge that looks at the place of a reply instead of the
reply says the opposite about the swapped pair, so both orders together cancel this. A verdict that could not be parsed
abstains (`p` is None): it is never turned into a number with another meaning. No torch.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, TypeVar

from interplay.types import Message, seed_of

Ties = Literal["half", "abstain"]
Balance = Literal["none", "class", "question"]  # of answers
PairBalance = Literal["none", "length"]  # of comparisons
BINS = 10  # differences of lengths that `even_lengths` balances apart
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two replies to one question. `label` is 1 if the first is better, 0 if the second is, ½ for a tie, None if it is
    unknown. `group` names the question: pairs of one question are similar."""

    id: str
    question: tuple[Message, ...]
    first: str
    second: str
    label: float | None = None
    group: str = ""

    def swapped(self) -> Pair:
        """The same two replies in the other order."""
        label = None if self.label is None else 1.0 - self.label
        return replace(self, first=self.second, second=self.first, label=label)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`p` is the probability that the first reply is better, including half of the probability of a tie (`tie`); None
    if the judge abstained. `votes` is the number of answers it was made from. `sampled` verdicts are single decisions;
    the others are probabilities."""

    p: float | None
    tie: float = 0.0
    votes: int = 1
    sampled: bool = False

    def swapped(self) -> Verdict:
        """The verdict for the pair in the other order."""
        return self if self.p is None else replace(self, p=1.0 - self.p)

    @property
    def decision(self) -> int:
        """1 for the first, −1 for the second, 0 for a tie or an abstention."""
        return 0 if self.p is None or self.p == 0.5 else 1 if self.p > 0.5 else -1


ABSTAINED = Verdict(None)


def both_orders(there: Verdict, back: Verdict) -> Verdict:
    """One verdict from the verdicts on a pair and on its swapped pair. Probabilities are averaged; sampled verdicts
    that disagree abstain.

    >>> both_orders(Verdict(0.9), Verdict(0.9)).p  # it always prefers the first place
    0.5
    >>> both_orders(Verdict(1.0, sampled=True), Verdict(1.0, sampled=True)).p is None
    True
    """
    back = back.swapped()
    votes = there.votes + back.votes
    if there.p is None or back.p is None:
        return replace(ABSTAINED, votes=votes)
    if there.sampled and back.sampled and there.decision != back.decision:
        return Verdict(None, votes=votes, sampled=True)
    sampled = there.sampled and back.sampled
    return Verdict((there.p + back.p) / 2, (there.tie + back.tie) / 2, votes, sampled)


def voted(verdicts: Sequence[Verdict]) -> Verdict:
    """Several verdicts on one pair in one order: the mean of those that did not abstain."""
    said = [v for v in verdicts if v.p is not None]
    votes = sum(v.votes for v in verdicts)
    if not said:
        return replace(ABSTAINED, votes=votes)
    sampled = all(v.sampled for v in said)
    return Verdict(fmean(v.p for v in said if v.p is not None), fmean(v.tie for v in said), votes, sampled)


def points(verdict: Verdict, ties: Ties) -> float | None:
    """What the first reply earns by a verdict, from −1 to 1: wins minus losses. With `ties = "abstain"` a tie gives
    nothing."""
    if verdict.p is None or (ties == "abstain" and verdict.p == 0.5):
        return None
    return 2.0 * verdict.p - 1.0


def coverage(verdicts: Iterable[Verdict]) -> float:
    """The share of verdicts that did not abstain."""
    found = [v.p is not None for v in verdicts]
    return sum(found) / len(found) if found else 0.0


def flip_rate(pairs: Sequence[tuple[Verdict, Verdict]]) -> float:
    """How often a judge changes its decision when the replies are swapped, among pairs that it decided in both
    orders."""
    decided = [(a, b) for a, b in pairs if a.decision and b.decision]
    return sum(a.decision == b.decision for a, b in decided) / len(decided) if decided else 0.0


# -- balancing --------------------------------------------------------------------------------------------------------


def in_random_order(pairs: Sequence[Pair], seed: int) -> list[Pair]:
    """Each pair in an order drawn by its own name, so that neither place is right more often."""
    return [p.swapped() if seed_of("order", seed, p.id) % 2 else p for p in pairs]


def balanced(
    rows: Sequence[T],
    right: Callable[[T], bool],
    question: Callable[[T], Hashable],
    how: Balance,
    seed: int = 0,
    most: int | None = None,
) -> list[T]:
    """As many right as wrong rows: over all rows (`class`), or within each question (`question`), where a question with
    rows of only one kind is dropped. Otherwise a verifier learns how difficult a question is, and not whether an answer
    is right (MAPoRL). `seed` decides which rows stay; they keep their order. If there are more than `most`, the first
    ones stay, and as many right as wrong ones of each question.

    >>> rows = [("easy", True), ("easy", True), ("hard", False), ("mixed", True), ("mixed", False)]
    >>> balanced(rows, lambda r: r[1], lambda r: r[0], "question")
    [('mixed', True), ('mixed', False)]
    """
    if how == "none":
        return list(rows[:most])
    groups: dict[Hashable, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for i, row in enumerate(rows):
        groups["" if how == "class" else question(row)][right(row)].append(i)
    pairs: list[tuple[int, int]] = []
    for name, (bad, good) in groups.items():
        rng = random.Random(seed_of("balance", seed, name))
        each = min(len(bad), len(good))
        pairs += zip(rng.sample(bad, each), rng.sample(good, each), strict=True)
    pairs = sorted(pairs, key=max)[: None if most is None else most // 2]
    return [rows[i] for i in sorted(i for pair in pairs for i in pair)]


def even_lengths(rows: Sequence[T], pair: Callable[[T], tuple[str, str, float]], seed: int = 0) -> list[T]:
    """Leave comparisons out until the longer reply wins as often as the shorter one, for small differences of their
    lengths as well as for large ones. Otherwise a judge learns that longer is better, because people prefer the longer
    reply more often than not. `pair` gives the two replies of a row and its label. Rows whose replies are equally long,
    and ties, stay.

    >>> rows = [("long reply", "short", 1.0), ("short", "long reply", 0.0), ("short", "long reply", 1.0)]
    >>> len(even_lengths(rows, lambda row: row))
    2
    """
    gaps = {}
    for i, row in enumerate(rows):
        first, second, label = pair(row)
        if label != 0.5 and len(first) != len(second):
            gaps[i] = (abs(len(first) - len(second)), (len(first) > len(second)) == (label > 0.5))
    order = sorted(gaps, key=lambda i: gaps[i][0])
    parts = {i: n * BINS // len(order) for n, i in enumerate(order)}
    kept = set(balanced(order, lambda i: gaps[i][1], lambda i: parts[i], "question", seed))
    return [row for i, row in enumerate(rows) if i not in gaps or i in kept]


def held_out(group: str, share: float, seed: int) -> bool:
    """Whether a question belongs to the part that is never trained on. Its name decides, so this never changes."""
    return seed_of("held out", seed, group) / 2**63 < share
