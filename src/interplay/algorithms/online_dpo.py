"""Online DPO: preferences from a tournament inside each group (DPO, 2305.18290; online, 2402.04792; IPO, 2310.12036).

The K replies to one prompt are compared pairwise. The better reply of a pair is raised and the other lowered, and the
update is larger if the policy does not prefer the better reply yet. With
Δ = (log π_w − log ref_w) − (log π_l − log ref_l), the gradient of −log σ(βΔ) is a policy gradient with advantage
βσ(−βΔ) for the winner and −βσ(−βΔ) for the loser. The code computes these advantages, so the two replies of a pair need
not be in the same batch of the learner. This is exact for the first optimiser step of a batch; later steps use the Δ
from before the first one.

IPO pulls Δ to 1/(2β) and no further. `wins` does not use the reference: the advantage is (wins − losses) / matchups.
Only which reply was better counts, not by how much. AT-GRPO, in contrast, needs rewards on one scale.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Keep, register
from interplay.algorithms.compare import CompareReplies, KeepSettings
from interplay.errors import GuardError
from interplay.types import Credit, Episode, Turn


class OnlineDPOSettings(KeepSettings):
    keep: Keep = "uniform"
    beta: float = Field(0.1, gt=0, description="strength of the pull towards the reference")
    kind: Literal["dpo", "ipo", "wins"] = Field(
        "dpo", description="how a pair of replies is trained: by the loss of DPO or IPO, or by counting wins and losses"
    )


@register("online_dpo")
class OnlineDPO(CompareReplies):
    Settings = OnlineDPOSettings
    settings: OnlineDPOSettings

    @property
    def reference(self) -> bool:
        return self.settings.kind != "wins" or super().reference

    def rule(self, returns: Sequence[float]) -> list[float]:
        return credit.wins(returns)

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        if self.settings.kind == "wins":
            return super().credit(episodes, given)
        scored = credit.candidates(episodes)
        turns = [t for t in scored if t.last.id in given.reference]
        if scored and not turns:
            raise GuardError("no candidate has reference log-probs; online DPO needs the score step before credit.")
        pairs = 0
        for group in credit.groups(turns, ("episode", "decision", "role")):
            table = credit.tournament(group, self._compare)
            won = [(i, j) for i, j in itertools.permutations(range(len(group)), 2) if table[i][j] > 0]
            pairs += len(won)
            drifts = [credit.drift(t, given) for t in group]
            pushes = self._pushes([drifts[i] - drifts[j] for i, j in won])
            total = [0.0] * len(group)
            for (i, j), push in zip(won, pushes, strict=True):
                total[i] += push
                total[j] -= push
            for turn, advantage in zip(group, total, strict=True):
                given.give(turn, advantage)
        return {"credit/pairs": pairs, **credit.summary(turns, given)}

    def _compare(self, one: Turn, other: Turn) -> float:
        return credit.candidate_return(one, self.reward) - credit.candidate_return(other, self.reward)

    def _pushes(self, margins: Sequence[float]) -> list[float]:
        """The negative slope of the loss in each margin, −dL/dΔ."""
        import torch

        from interplay.algorithms.losses import dpo_loss, ipo_loss

        if not margins:
            return []
        margin_P = torch.tensor(margins, dtype=torch.float64, requires_grad=True)
        loss = (dpo_loss if self.settings.kind == "dpo" else ipo_loss)(margin_P, self.settings.beta)
        (slope,) = torch.autograd.grad(loss, margin_P)
        return [-x for x in slope.tolist()]
