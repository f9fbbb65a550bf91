"""RLOO: each episode against the mean of the *others* of its group (Back to Basics, 2402.14740).

A_i = R_i − mean_{j≠i} R_j. GRPO's mean includes the episode itself, which shrinks the gradient by (G − 1)/G and,
divided by a deviation that depends on it too, bends it; this baseline does not know the episode and leaves the
gradient as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from interplay.algorithms import credit
from interplay.algorithms.algorithm import register
from interplay.algorithms.compare import CompareEpisodes


@register("rloo")
class RLOO(CompareEpisodes):
    def rule(self, returns: Sequence[float]) -> list[float]:
        return credit.leave_one_out(returns)
