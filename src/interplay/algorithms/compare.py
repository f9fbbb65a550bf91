"""Base classes for algorithms that compare whole episodes of one task, or replies to one prompt.

A subclass adds its `rule`, which turns the returns of a group into advantages.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import Field

from interplay.algorithms import credit
from interplay.algorithms.algorithm import Algorithm, Independent, Keep, LossSettings, SamplingPlan, Tree, TreeSettings
from interplay.types import Credit, Episode


class EpisodeSettings(LossSettings):
    group: int = Field(8, ge=2, description="episodes per task")


class CompareEpisodes(Algorithm):
    """Plays `group` episodes of each task, and compares the episode returns of a role within (task, role)."""

    Settings = EpisodeSettings
    settings: EpisodeSettings

    @property
    def plan(self) -> SamplingPlan:
        return Independent(self.settings.group)

    @abstractmethod
    def rule(self, returns: Sequence[float]) -> list[float]:
        """Turns the returns of a group into advantages."""

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        return credit.grade_episodes(episodes, given, self.reward, self.rule)


class ReplySettings(TreeSettings):
    candidates: int = Field(4, ge=2, description="K, the number of replies to each prompt")


class KeepSettings(ReplySettings):
    keep: Keep = Field(
        "greedy", description="how the reply that the episode continues with is chosen; greedy and softmax use returns"
    )
    keep_temperature: float = Field(1.0, gt=0, description="temperature of the softmax over returns")


class CompareReplies(Algorithm):
    """Draws K replies at every decision, each on its own fork, and compares their returns within (episode, decision,
    role).

    If `rule` gives advantage 0 to equal returns, decisions at which all replies are the same are not played out."""

    Settings = ReplySettings
    settings: ReplySettings

    @property
    def plan(self) -> Tree:
        s = self.settings
        compares = not any(a for value in (-1.0, 0.5) for a in self.rule([value] * s.candidates))
        plan = Tree(s.candidates, s.continuation, s.playouts, "first", compares=compares)
        if isinstance(s, KeepSettings):
            plan = replace(plan, keep=s.keep, keep_temperature=s.keep_temperature)
        return plan

    @abstractmethod
    def rule(self, returns: Sequence[float]) -> list[float]:
        """Turns the returns of a group into advantages."""

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        return credit.grade_candidates(episodes, given, self.reward, self.rule)
