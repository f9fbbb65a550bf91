"""The two things that most algorithms compare: whole episodes of one task, or replies to one prompt.

An algorithm is then one of these with a rule of its own, how a group's returns become advantages.
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
    """`group` episodes of each task; the return of a role over its episode, within (task, role)."""

    Settings = EpisodeSettings
    settings: EpisodeSettings

    @property
    def plan(self) -> SamplingPlan:
        return Independent(self.settings.group)

    @abstractmethod
    def rule(self, returns: Sequence[float]) -> list[float]:
        """A group's returns to its advantages."""

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        return credit.grade_episodes(episodes, given, self.reward, self.rule)


class ReplySettings(TreeSettings):
    candidates: int = Field(4, ge=2, description="K, replies to each prompt")


class KeepSettings(ReplySettings):
    keep: Keep = Field("greedy", description="which reply the play goes on with, by its return")
    keep_temperature: float = Field(1.0, gt=0, description="of the softmax over returns")


class CompareReplies(Algorithm):
    """K replies at every decision, each on a fork of its own; their returns, within (episode, decision, role).

    Where `rule` gives equal returns no advantage, a decision at which all replies are the same is not played out."""

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
        """A group's returns to its advantages."""

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        return credit.grade_candidates(episodes, given, self.reward, self.rule)
