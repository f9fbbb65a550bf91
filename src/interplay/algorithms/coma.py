"""COMA: compares an action with what the same agent might have done instead (1705.08926, sec. 4).

A_i = Q(s, a) − mean_k Q(s, (a_−i, a_i^k)). The actions of the other agents stay the same. The a_i^k are drawn from the
agent's own policy, independently of a_i. Q is a central critic's value of the state that the joint action leads to.
Only the reply that was played is trained; the other replies form its baseline. C3, in contrast, trains all of them and
estimates their values by playouts. A counterfactual baseline reduces noise, but it does not help to leave a local
optimum: the expected gradient is still that of the return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Continuation, register
from interplay.algorithms.compare import CompareReplies, ReplySettings
from interplay.types import Credit, Episode


class COMASettings(ReplySettings):
    continuation: Continuation = "critic"


@register("coma")
class COMA(CompareReplies):
    Settings = COMASettings

    def rule(self, returns: Sequence[float]) -> list[float]:
        return credit.leave_one_out(returns)

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        metrics = super().credit(episodes, given)
        given.withdraw(t for t in credit.candidates(episodes) if not t.kept)
        return metrics
