"""DAPO: changes to GRPO for long reasoning (2503.14476, sec. 3).

*Clip-higher* (0.2 below, 0.28 above) lets unlikely tokens become likely, which prevents a collapse of the entropy.
*Dynamic sampling*: if all episodes of a group earned the same, the group teaches nothing. It is dropped and another
task is played instead, until the batch is full or until `resample` additional batches were played. The loss is averaged
over the *tokens* of the batch and not over replies, so every token of a long reply counts as much as one of a short
reply. *Overlong filtering*: a reply that the token limit cut off is left out of the loss, because its reward says
little about it (`overlong_filter`). Replies close to the limit can get a soft penalty (`overlong`). Whether all
episodes earned the same is decided without such penalties, because the paper compares accuracies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import register
from interplay.algorithms.grpo import GRPO, GRPOSettings
from interplay.types import Credit, Episode, Status, Turn


class DAPOSettings(GRPOSettings):
    clip_high: float = Field(0.28, gt=0, description="the ratio is clipped above 1 plus this")
    average: Literal["token", "turn"] | int = "token"
    resample: int = Field(
        3,
        ge=0,
        description="additional batches of tasks that a step may play to replace groups in which all earned the same",
    )
    overlong_filter: bool = Field(True, description="leave replies that the token limit cut off out of the loss")


@register("dapo")
class DAPO(GRPO):
    Settings = DAPOSettings
    settings: DAPOSettings

    @property
    def resample(self) -> int:
        return self.settings.resample

    def teaches(self, episodes: Sequence[Episode]) -> bool:
        return any(not self._tied(group) for group in credit.line_groups(credit.lines(episodes)))

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        metrics = dict(credit.grade_episodes(episodes, given, self.reward, self.rule))
        tied = [group for group in credit.line_groups(credit.lines(episodes)) if self._tied(group)]
        given.withdraw(t for group in tied for line in group for t in line)
        metrics["credit/groups_dropped"] = len(tied)
        if self.settings.overlong_filter:
            cut = [t for e in episodes for t in e.line() if e.cut is not None or t.status is Status.LENGTH]
            metrics["credit/turns_cut_off"] = sum(given.advantage(t) is not None for t in cut)
            given.withdraw(cut)
        return metrics

    def _tied(self, group: Sequence[Sequence[Turn]]) -> bool:
        """Whether all lines of the group earned the same from the environment. Such a group teaches nothing and would
        only dilute the mean of the loss."""
        earned = [credit.returns(line, self.reward, shaped=False)[0] for line in group]
        return max(earned) - min(earned) < 1e-9
