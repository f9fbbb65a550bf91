"""A composition spelled out by hand: a sampling plan, a grouping, a credit rule, and a loss.

    [algorithm]
    name = "custom"
    plan = { kind = "tree", candidates = 4, continuation = "playout", keep = "first" }
    grouping = ["episode", "decision", "role"]
    credit = "leave_one_out"
    loss = "cispo"

With an independent plan the value of a turn is its episode's return or, where the grouping looks inside the episode
(decision, phase, tool, prompt), what follows the turn; with a tree it is the candidate's own. Named algorithms are
special cases: this recipe is C3 with CISPO's loss. A composition that cannot work is refused with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field, model_validator

from interplay.algorithms import credit
from interplay.algorithms.algorithm import (
    Algorithm,
    Continuation,
    CriticSettings,
    Independent,
    Joint,
    Keep,
    LossSettings,
    Plan,
    Tree,
    register,
)
from interplay.config import Section
from interplay.errors import ConfigError, did_you_mean
from interplay.types import KEY_NAMES, Episode, Role, Turn

INSIDE = {"decision", "phase", "tool", "prompt"}


class PlanSettings(Section):
    kind: Literal["independent", "tree"]
    replicas: int = Field(1, ge=1, description="episodes per task")
    candidates: int = Field(4, ge=1, description="tree: replies per decision")
    continuation: Continuation = "playout"
    playouts: int = Field(1, ge=1)
    keep: Keep = "first"
    keep_temperature: float = Field(1.0, gt=0)
    joint: Literal["first", "aligned", "crossed"] = "first"


class CustomSettings(LossSettings):
    plan: PlanSettings
    grouping: list[str]
    credit: Literal["mean", "scaled", "leave_one_out", "batch"] = Field(
        "mean", description="how a group's returns become advantages; batch whitens per role and needs no group"
    )
    critic: CriticSettings = CriticSettings()

    @model_validator(mode="after")
    def _can_work(self) -> CustomSettings:
        keys = set(self.grouping)
        for key in self.grouping:
            if key not in KEY_NAMES:
                raise ConfigError(f"algorithm.grouping names '{key}'; {did_you_mean(key, KEY_NAMES)}")
        if "role" not in keys or not keys & {"task", "episode"}:
            raise ConfigError(
                f"algorithm.grouping is {self.grouping}: its groups would mix tasks or roles, whose returns are not "
                "comparable; expected 'role' and one of 'task' and 'episode' in it."
            )
        if self.credit != "batch":
            self._groups_have_members(keys)
        return self

    def _groups_have_members(self, keys: set[str]) -> None:
        plan = self.plan
        if plan.kind == "tree":
            if not {"episode", "decision"} <= keys and "prompt" not in keys:
                raise ConfigError(
                    f"algorithm.grouping is {self.grouping}, but a tree compares replies to one prompt; expected "
                    "'episode', 'decision' and 'role', or 'prompt' in it."
                )
            if plan.candidates < 2:
                raise ConfigError(
                    "algorithm.plan.candidates is 1: every group would have one member and no baseline; expected at "
                    "least 2, or credit = 'batch'."
                )
            return
        if "decision" in keys and "episode" not in keys and "replica" not in keys and "prompt" not in keys:
            raise ConfigError(
                "algorithm.grouping compares a decision across episodes, which have seen different prompts by then; "
                "expected 'prompt' beside it (only equal prompts are compared), or plan.kind = 'tree'."
            )
        alone = "episode" in keys or "replica" in keys
        if alone and (not keys & INSIDE or "decision" in keys):
            raise ConfigError(
                f"algorithm.grouping is {self.grouping}: with independent episodes every group would have one member "
                "and no baseline; expected 'task' in place of 'episode', plan.kind = 'tree', or credit = 'batch'."
            )
        if not alone and plan.replicas < 2:
            raise ConfigError(
                "algorithm.plan.replicas is 1: every group would have one member and no baseline; expected at least 2, "
                "or credit = 'batch'."
            )


@register("custom")
class Custom(Algorithm):
    Settings = CustomSettings
    settings: CustomSettings

    @property
    def plan(self) -> Plan:
        p = self.settings.plan
        if p.kind == "independent":
            return Independent(p.replicas)
        joint: Joint = p.joint
        return Tree(p.candidates, p.continuation, p.playouts, p.keep, p.keep_temperature, p.replicas, joint)

    @property
    def critic(self) -> CriticSettings | None:
        p = self.settings.plan
        return self.settings.critic if p.kind == "tree" and p.continuation == "critic" else None

    def credit(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        units = self._units(episodes)
        turns = [t for unit, _ in units for t in unit]
        if self.settings.credit == "batch":
            by_role: dict[Role, list[Turn]] = defaultdict(list)
            for unit, value in units:
                for turn in unit:
                    turn.advantage = value
                    by_role[turn.role].append(turn)
            for members in by_role.values():
                credit.whiten(members)
            return credit.summary(turns)
        of = {unit[0].id: (unit, value) for unit, value in units}
        grouped = credit.groups([unit[0] for unit, _ in units], tuple(self.settings.grouping))
        for group in grouped:
            advantages = credit.RULES[self.settings.credit]([of[t.id][1] for t in group])
            for first, advantage in zip(group, advantages, strict=True):
                for turn in of[first.id][0]:
                    turn.advantage = advantage
        return {"credit/groups_of_one": sum(len(g) == 1 for g in grouped), **credit.summary(turns)}

    def _units(self, episodes: Sequence[Episode]) -> list[tuple[list[Turn], float]]:
        """What is compared: turns that share one value, and that value."""
        if self.settings.plan.kind == "tree":
            return [([t], credit.candidate_return(t, self.reward)) for t in credit.candidates(episodes)]
        lines = [(line, credit.returns(line, self.reward)) for line in credit.lines(episodes)]
        if INSIDE & set(self.settings.grouping):
            return [([t], ahead) for line, all_ahead in lines for t, ahead in zip(line, all_ahead, strict=True)]
        return [(line, ahead[0]) for line, ahead in lines]
