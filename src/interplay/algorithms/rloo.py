"""RLOO: compares each episode with the mean of the *other* episodes of its group (Back to Basics, 2402.14740).

A_i = R_i − mean_{j≠i} R_j. GRPO's mean includes the episode itself, which scales the gradient by (G − 1)/G. Dividing by
a standard deviation that also depends on the episode makes the gradient biased. The baseline of RLOO does not depend on
the episode, so it leaves the expected gradient unchanged.
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
