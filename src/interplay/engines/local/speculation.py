"""Speculative sampling: when the engine uses drafts (`drafts.py`), and how many of their tokens were right.

One forward pass computes a request's latest token and its draft together. Every position then samples its own token
with its own random number, exactly as without drafts, and the sampled tokens count up to the first one that differs
from the draft. So drafts change how long the work takes, and the result only by rounding: in fp32 on a CPU, log-probs
differ in their last bits, and on a GPU as much as they do between batches of different sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from typing import Any, Literal

from interplay.engines.local.drafts import Drafts
from interplay.engines.local.scheduler import Sequence

# The rules of "auto". They count tokens and never read a clock, so that a repeated run decides the same.
AUTO_ROWS = 128  # most tokens of a step, drafts included: above this, a GPU's step takes longer with every token
# A step with drafts is assumed to take the time of this many steps without drafts.
COST = 1.75  # if the host proposes them
LOOKUP_COST = 1.25  # if the runner looks them up itself
RETRY = 256  # steps without drafts after which acceptance is measured again
_RECENT = 512  # drafted tokens over which acceptance is measured
_HOPE = 8  # at the start, this many tokens count as drafted and accepted


class Speculation:
    """With mode "on", drafts are used whenever there are any. With "auto", they are used if the batch is small and if
    recent drafts were right often enough to pay."""

    def __init__(self, mode: Literal["on", "auto"], tokens: int = 4) -> None:
        self.mode, self.drafts = mode, Drafts(tokens)
        self.drafted = self.accepted = 0  # tokens, since the engine was made
        self._recent = [_HOPE, _HOPE]  # accepted, drafted
        self._skipped = 0

    @property
    def rate(self) -> float:
        """The share of recently drafted tokens that were accepted."""
        accepted, drafted = self._recent
        return accepted / drafted

    def propose(self, sequences: Seq[Sequence], rows: int) -> dict[Sequence, list[int]]:
        """The drafts to use in this step; empty if it is to be a step without. The runner can compute `rows` tokens."""
        if not self.wanted(len(sequences), rows, COST):
            return {}
        found = self.drafts.propose(sequences)
        if self.mode == "on":
            return found
        expected = self.rate * sum(map(len, found.values()))
        return found if expected >= (COST - 1) * len(sequences) else {}

    def wanted(self, count: int, rows: int, cost: float) -> bool:
        """Whether a step of `count` sequences is to have drafts, if there are any. The runner can compute `rows`
        tokens, and such a step takes the time of `cost` steps without drafts."""
        if not count or not self.fits(count, rows):
            return False
        if not self.pays(cost):
            self._skipped += 1
            if self._skipped < RETRY:
                return False
            self._recent, self._skipped = [_HOPE, _HOPE], 0  # measure again
        return True

    def fits(self, count: int, rows: int) -> bool:
        """Whether a step has room for the drafts of `count` sequences."""
        return count * (1 + self.drafts.length) <= (rows if self.mode == "on" else min(rows, AUTO_ROWS))

    def pays(self, cost: float) -> bool:
        """Whether full drafts for all sequences would pay."""
        return self.mode == "on" or self.rate * self.drafts.length >= cost - 1

    def note(self, drafted: int, accepted: int) -> None:
        """Count a draft: it had `drafted` tokens, and the first `accepted` of them were right."""
        self.drafted += drafted
        self.accepted += accepted
        self._recent[0] += accepted
        self._recent[1] += drafted
        if self._recent[1] > _RECENT:
            self._recent = [count // 2 for count in self._recent]

    def state_dict(self) -> dict[str, Any]:
        return {**self.drafts.state_dict(), "recent": self._recent, "skipped": self._skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.drafts.load_state_dict(state)
        self._recent, self._skipped = list(state["recent"]), int(state["skipped"])
