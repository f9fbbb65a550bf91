"""Online DPO: preferences from a tournament inside each group (DPO, 2305.18290; online, 2402.04792; IPO, 2310.12036).

K replies to one prompt meet each other pairwise; the better of a pair is raised and the other lowered, by as much as
the policy does not yet prefer it: with Δ = (log π_w − log ref_w) − (log π_l − log ref_l), the gradient of −log σ(βΔ)
is that of a policy gradient with advantage βσ(−βΔ) for the winner and its negative for the loser, and that is what is
written here, so that no pair has to meet again in the learner. It is exact for the first optimiser step of a batch and
uses the batch's Δ in later ones. How much better a reply was plays no part, unlike in AT-GRPO, which needs rewards on
one scale.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, Keep, Tree, TreeSettings, register
from interplay.errors import GuardError
from interplay.types import Episode, Turn


class OnlineDPOSettings(TreeSettings):
    candidates: int = Field(4, ge=2, description="replies that meet in a tournament")
    keep: Keep = "uniform"
    beta: float = Field(0.1, gt=0, description="how strongly the reference holds")
    kind: Literal["dpo", "ipo"] = "dpo"


@register("online_dpo")
class OnlineDPO(Algorithm):
    Settings = OnlineDPOSettings
    settings: OnlineDPOSettings

    @property
    def plan(self) -> Tree:
        s = self.settings
        return Tree(s.candidates, s.continuation, s.playouts, s.keep)

    @property
    def reference(self) -> bool:
        return True

    def credit(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        turns = [t for t in credit.candidates(episodes) if t.ref_logprobs is not None]
        if not turns:
            raise GuardError("no candidate has reference log-probs; online DPO needs the score step before credit.")
        pairs = 0
        for group in credit.groups(turns, ("episode", "decision", "role")):
            table = credit.tournament(group, self._compare)
            won = [(i, j) for i, j in itertools.permutations(range(len(group)), 2) if table[i][j] > 0]
            pairs += len(won)
            for turn in group:
                turn.advantage = 0.0
            for i, j in won:
                push = self._push(credit.drift(group[i]) - credit.drift(group[j])) / len(won)
                group[i].advantage += push  # type: ignore[operator]
                group[j].advantage -= push  # type: ignore[operator]
        return {"credit/pairs": pairs, **credit.summary(turns)}

    def _compare(self, one: Turn, other: Turn) -> float:
        return credit.candidate_return(one, self.reward) - credit.candidate_return(other, self.reward)

    def _push(self, margin: float) -> float:
        """How much the loss falls with the margin: −dL/dΔ."""
        beta = self.settings.beta
        if self.settings.kind == "ipo":
            return 2 * (1 / (2 * beta) - margin)
        return beta * 0.5 * (1 - math.tanh(0.5 * beta * margin))
