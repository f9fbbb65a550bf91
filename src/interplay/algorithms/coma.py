"""COMA: what was done against what the same agent might have done instead (1705.08926, eq. 4).

A_i = Q(s, a) − mean_k Q(s, (a_−i, a_i^k)): the others' actions stay, the a_i^k are drawn from the agent's own policy,
independently of a_i. Q is a central critic's value of the state that the joint action leads to. Only the reply that was
really played is trained; the others are its baseline. C3 trains all of them, and values them by playing on.
A counterfactual baseline takes away noise, not a local optimum: the expected gradient is that of the return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, Continuation, Tree, TreeSettings, register
from interplay.types import Episode


class COMASettings(TreeSettings):
    candidates: int = Field(4, ge=2, description="the reply played and those it is compared with")
    continuation: Continuation = "critic"


@register("coma")
class COMA(Algorithm):
    Settings = COMASettings
    settings: COMASettings

    @property
    def plan(self) -> Tree:
        s = self.settings
        return Tree(s.candidates, s.continuation, s.playouts, keep="first")

    def credit(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        metrics = credit.grade_candidates(episodes, self.reward, credit.leave_one_out)
        for turn in credit.candidates(episodes):
            if not turn.kept:
                turn.advantage = None
        return metrics
