"""What the learner saw of each token in a training step, for the records: the gap to the engine, and the entropy.

Both come from the forward pass of the step, so they cost no extra pass. They are read from the device once, after the
step, and only for replies that are recorded: a step may train on many more. They are rounded, since people look at
them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import Tensor

from interplay.types import Credit, Sample


class TokenWatch:
    """`wanted` are the ids of the samples that are recorded."""

    def __init__(self, credit: Credit, wanted: Collection[str]) -> None:
        self.credit, self._wanted, self._left = credit, frozenset(wanted), set(wanted)
        self._seen: list[tuple[Sequence[Sample], Tensor, Tensor]] = []

    def see(self, samples: Sequence[Sample], gap_N: Tensor, entropy_N: Tensor) -> None:
        """Keep log π_learner − log π_engine and the entropy of every token. Only the first pass over a sample counts:
        in later ones the weights have changed."""
        if self._left and not self._left.isdisjoint([s.id for s in samples]):
            self._left.difference_update([s.id for s in samples])
            self._seen.append((samples, gap_N, entropy_N))

    def write(self) -> None:
        """Write what was seen into the credit."""
        for samples, gap_N, entropy_N in self._seen:
            gaps, entropies, at = gap_N.tolist(), entropy_N.tolist(), 0
            for sample in samples:
                end = at + len(sample.action)
                if sample.id in self._wanted and sample.id not in self.credit.gap:
                    self.credit.gap[sample.id] = _rounded(gaps[at:end])
                    self.credit.entropy[sample.id] = _rounded(entropies[at:end])
                at = end
        self._seen.clear()


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.3g}") for value in values)
