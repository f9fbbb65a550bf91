"""C3: counterfactual replay of each decision (2603.06859).

The transcript is frozen at a decision, the reply is drawn K − 1 times more, and every version is played out `playouts`
times; a reply's value Q_k is the mean of its leaves, its advantage A_k = Q_k − mean_{j≠k} Q_j, that value minus the
mean of its *siblings'* (leave-one-out). Unlike AT-GRPO the play goes on with the first reply, not the best: the
decisions that are replayed are those the policy really meets, and no deviation is divided by, so the gradient is that
of the return itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import register
from interplay.algorithms.compare import CompareReplies, ReplySettings


class C3Settings(ReplySettings):
    playouts: int = Field(2, ge=1, description="leaves per version")


@register("c3")
class C3(CompareReplies):
    Settings = C3Settings

    def rule(self, returns: Sequence[float]) -> list[float]:
        return credit.leave_one_out(returns)
