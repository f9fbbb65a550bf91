"""An algorithm that a recipe composes of a sampling plan, a grouping, a credit rule, and a loss.

    [algorithm]
    name = "custom"
    plan = { kind = "replay", candidates = 4, playouts = 2 }
    grouping = ["episode", "decision", "role"]
    credit = "leave_one_out"
    loss = "cispo"

The plans are: `independent` episodes; a `tree`, which draws several replies to every prompt and continues with one of
them; `crossed`, a tree that also scores every combination of replies of the roles that act at once; and `replay`, which
continues with the policy's first reply, and also draws other replies at each decision and plays them to the end.

The grouping lists some of the keys that every turn has: task, replica, episode, decision (the turn), role, phase, tool
(the tool call) and prompt. With independent episodes, the value of a turn is the return of its episode. If the grouping
has a key that differs within an episode (decision, phase, tool or prompt), it is the return from this turn on. With the
other plans, the value of a turn is the return of the candidate. A turn is never compared with another decision of its
own episode, because its action influenced the return of that decision.

Named algorithms are special cases: this recipe is C3 with CISPO's loss. A composition that cannot work is refused, and
the error says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field, model_validator

from interplay.algorithms import credit
from interplay.algorithms.algorithm import (
    PLAYED,
    Algorithm,
    Continuation,
    CriticSettings,
    Independent,
    Joint,
    Keep,
    LossSettings,
    SamplingPlan,
    Tree,
    register,
)
from interplay.config import Section
from interplay.errors import ConfigError, did_you_mean
from interplay.types import KEY_NAMES, Credit, Episode, Turn

INSIDE = {"decision", "phase", "tool", "prompt"}
_WITH_CRITIC = {(kind, "critic") for kind in ("tree", "crossed", "replay")}


class PlanSettings(Section):
    kind: Literal["independent", "tree", "crossed", "replay"]
    replicas: int = Field(1, ge=1, description="episodes per task")
    candidates: int = Field(4, ge=1, description="all but independent: replies per decision")
    continuation: Continuation = Field(
        "playout", description="all but independent: how the rest of a reply's return is estimated after its own step"
    )
    playouts: int = Field(1, ge=1, description="all but independent: playouts of each reply")
    keep: Keep = Field("greedy", description="tree, crossed: which reply the episode continues with")
    keep_temperature: float = Field(1.0, gt=0, description="tree, crossed: temperature of the softmax over returns")
    joint: Literal["first", "aligned"] = Field(
        "first", description="tree: the replies of other roles that act at the same time"
    )

    @model_validator(mode="after")
    def _has_only_its_own(self) -> PlanSettings:
        free = {"independent": {"replicas"}, "replay": {"replicas", "candidates", "continuation", "playouts"}}
        every = set(type(self).model_fields) - {"kind"}
        allowed = free.get(self.kind, every - {"joint"} if self.kind == "crossed" else every)
        for name in sorted(self.model_fields_set - allowed - {"kind"}):
            raise ConfigError(
                f"algorithm.plan.{name} has no meaning with kind = '{self.kind}'; remove it. A plan of kind "
                f"'{self.kind}' has these settings: {', '.join(sorted(allowed))}."
            )
        if "playouts" in self.model_fields_set and self.continuation not in PLAYED:
            raise ConfigError(
                f"algorithm.plan.playouts is set, but algorithm.plan.continuation is '{self.continuation}'; expected "
                "'playout', or playouts to be left out."
            )
        return self

    def plan(self, compares: bool) -> SamplingPlan:
        if self.kind == "independent":
            return Independent(self.replicas)
        keep: Keep = "first" if self.kind == "replay" else self.keep
        joint: Joint = "crossed" if self.kind == "crossed" else self.joint
        return Tree(
            self.candidates, self.continuation, self.playouts, keep, self.keep_temperature, self.replicas, joint,
            compares=compares,
        )  # fmt: skip


class CustomSettings(LossSettings):
    plan: PlanSettings
    grouping: list[str]
    credit: Literal["mean", "scaled", "leave_one_out", "wins", "batch"] = Field(
        "mean", description="how a group's returns become advantages; batch whitens per policy and role, without groups"
    )
    critic: CriticSettings = CriticSettings()

    @model_validator(mode="after")
    def _can_work(self) -> CustomSettings:
        keys = set(self.grouping)
        for key in self.grouping:
            if key not in KEY_NAMES:
                hint = " A role's turn is called 'decision'." if key == "turn" else ""
                raise ConfigError(f"algorithm.grouping names '{key}'; {did_you_mean(key, KEY_NAMES)}{hint}")
        if "role" not in keys or not keys & {"task", "episode"}:
            raise ConfigError(
                f"algorithm.grouping is {self.grouping}: its groups would mix tasks or roles, whose returns are not "
                "comparable; expected 'role' and one of 'task' and 'episode' in it."
            )
        if "critic" in self.model_fields_set and (self.plan.kind, self.plan.continuation) not in _WITH_CRITIC:
            raise ConfigError(
                f"algorithm.critic is set, but a plan of kind '{self.plan.kind}' does not use a critic here; expected "
                "plan.continuation = 'critic' in a tree, or critic to be left out."
            )
        if self.credit != "batch":
            self._groups_have_members(keys)
        return self

    def _groups_have_members(self, keys: set[str]) -> None:
        plan = self.plan
        if plan.kind != "independent":
            if not {"episode", "decision"} <= keys and "prompt" not in keys:
                raise ConfigError(
                    f"algorithm.grouping is {self.grouping}, but a {plan.kind} compares replies to one prompt; "
                    "expected 'episode', 'decision' and 'role', or 'prompt' in it."
                )
            if plan.candidates < 2:
                raise ConfigError(
                    "algorithm.plan.candidates is 1, so every group would have one member and no baseline; expected at "
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
                f"algorithm.grouping is {self.grouping}; with independent episodes, every group would have one member "
                "and no baseline; expected 'task' in place of 'episode', plan.kind = 'tree', or credit = 'batch'."
            )
        if alone:
            raise ConfigError(
                f"algorithm.grouping is {self.grouping}; with independent episodes, each group would hold turns of a "
                "single episode. Earlier turns influence the return of later ones, so later turns cannot be their "
                "baseline; expected 'task' in place of 'episode' and 'replica', plan.kind = 'tree', or credit = "
                "'batch'."
            )
        if not alone and plan.replicas < 2:
            raise ConfigError(
                "algorithm.plan.replicas is 1, so every group would have one member and no baseline; expected at "
                "least 2, or credit = 'batch'."
            )


@register("custom")
class Custom(Algorithm):
    Settings = CustomSettings
    settings: CustomSettings

    @property
    def plan(self) -> SamplingPlan:
        one_prompt = {"episode", "decision"} <= set(self.settings.grouping)
        return self.settings.plan.plan(compares=one_prompt and self.settings.credit != "batch")

    @property
    def critic(self) -> CriticSettings | None:
        p = self.plan
        return self.settings.critic if isinstance(p, Tree) and p.continuation == "critic" else None

    def credit(self, episodes: Sequence[Episode], given: Credit) -> Mapping[str, float]:
        units = self._units(episodes)
        turns = [t for unit, _ in units for t in unit]
        if self.settings.credit == "batch":
            for unit, value in units:
                for turn in unit:
                    given.give(turn, value)
            for members in credit.by_seat(turns):
                credit.whiten(members, given)
            return credit.summary(turns, given)
        rule, lonely = credit.RULES[self.settings.credit], 0
        of = {unit[0].id: (unit, value) for unit, value in units}
        for group in credit.groups([unit[0] for unit, _ in units], tuple(self.settings.grouping)):
            rivals = [[of[t.id][1] for t in group if _comparable(first, t)] for first in group]
            lonely += not any(rivals)
            whole = rule([of[t.id][1] for t in group]) if all(len(r) == len(group) - 1 for r in rivals) else None
            for n, first in enumerate(group):
                unit, value = of[first.id]
                for turn in unit:
                    given.give(turn, whole[n] if whole is not None else rule([value, *rivals[n]])[0])
        return {"credit/groups_of_one": lonely, **credit.summary(turns, given)}

    def _units(self, episodes: Sequence[Episode]) -> list[tuple[list[Turn], float]]:
        """The units that are compared. A unit is a list of turns that share one value, with that value."""
        if isinstance(self.plan, Tree):
            return [([t], credit.candidate_return(t, self.reward)) for t in credit.candidates(episodes)]
        lines = [(line, credit.returns(line, self.reward)) for line in credit.lines(episodes)]
        if INSIDE & set(self.settings.grouping):
            after = [pair for line, ahead in lines for pair in zip(line, ahead, strict=True)]
            return [([turn], ahead) for turn, ahead in after if turn.is_model]
        return [(line, ahead[0]) for line, ahead in lines]


def _comparable(turn: Turn, other: Turn) -> bool:
    """Whether the return of `other` may be part of the baseline of `turn`. The same policy must have drawn it, and the
    action of `turn` must not have influenced it, so other decisions of the same episode are excluded."""
    apart = turn.keys.episode != other.keys.episode or turn.decision == other.decision
    return turn is not other and turn.policy == other.policy and apart
