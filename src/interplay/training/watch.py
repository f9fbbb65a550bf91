"""What the learner saw of each token in a training step, for the records: the gap to the engine, and the entropy.

Both come from the forward pass of the step, so they cost no extra pass. They are rounded, since people look at them.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from interplay.types import Credit, Sample


class TokenWatch:
    def __init__(self, credit: Credit) -> None:
        self.credit = credit

    def see(self, samples: Sequence[Sample], gap_N: Tensor, entropy_N: Tensor) -> None:
        """Note log π_learner − log π_engine and the entropy of every token. Only the first pass over a sample counts:
        in later ones the weights have changed."""
        gaps, entropies, at = gap_N.tolist(), entropy_N.tolist(), 0
        for sample in samples:
            end = at + len(sample.action)
            if sample.id not in self.credit.gap:
                self.credit.gap[sample.id] = _rounded(gaps[at:end])
                self.credit.entropy[sample.id] = _rounded(entropies[at:end])
            at = end


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.3g}") for value in values)
