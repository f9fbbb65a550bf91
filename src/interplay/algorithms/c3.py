"""C3: counterfactual replay of each decision (2603.06859).

The transcript is frozen at a decision. The reply is drawn K − 1 more times, and every version is played to the end
`playouts` times. The value Q_k of a reply is the mean return of its playouts. Its advantage is its value minus the mean
value of the *other* replies (leave-one-out): A_k = Q_k − mean_{j≠k} Q_j. Unlike AT-GRPO, the episode continues with the
first reply and not with the best, so the policy itself reaches the decisions that are replayed. Advantages are not
divided by a standard deviation, so the gradient is that of the return itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import register
from interplay.algorithms.compare import CompareReplies, ReplySettings


class C3Settings(ReplySettings):
    playouts: int = Field(2, ge=1, description="playouts of each reply")


@register("c3")
class C3(CompareReplies):
    Settings = C3Settings

    def rule(self, returns: Sequence[float]) -> list[float]:
        return credit.leave_one_out(returns)
