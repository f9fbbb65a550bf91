"""What an algorithm is: a sampling plan, a credit rule over plain records, and a loss. No torch on import.

Subclass, set `Settings`, write `credit`; `@register("name")`. The trainer is blind to which one runs.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from pydantic import Field

from interplay.config import Open, RewardSection, Section, validate
from interplay.errors import ConfigError, did_you_mean
from interplay.types import Episode

if TYPE_CHECKING:
    from torch import Tensor

    from interplay.algorithms.losses import Outputs, Targets

Need = Literal["values"]


@dataclass(frozen=True)
class Independent:
    """`replicas` whole episodes of each task."""

    replicas: int = 1


@dataclass(frozen=True)
class Tree:
    """`candidates` replies at every decision of a trainable seat, each on a fork; one fork is kept and goes on.

    A candidate's return is its step rewards plus a continuation: nothing, `playouts` plays to the end by the
    same seats, or a critic's value of the state it led to.
    """

    candidates: int
    continuation: Literal["none", "playout", "critic"]
    playouts: int = 1
    keep: Literal["greedy", "softmax", "uniform"] = "greedy"
    keep_temperature: float = 1.0
    replicas: int = 1


Plan = Independent | Tree


class LossSettings(Section):
    """The policy loss that every algorithm here shares (see `losses.py`)."""

    clip_low: float = Field(0.2, gt=0)
    clip_high: float = Field(0.2, gt=0)
    dual_clip: float | None = Field(
        None, gt=1, description="bounds the loss of bad actions that became likely; 3 is usual"
    )
    average: Literal["token", "turn"] = Field("token", description="what the mean is taken over")
    entropy: float = Field(0.0, ge=0, description="coefficient of the entropy bonus")
    kl: float = Field(0.0, ge=0, description="pull towards the policy as it was when reinforcement learning began")

    @property
    def regularised(self) -> bool:
        """Whether turns without advantage have a gradient all the same."""
        return bool(self.entropy or self.kl)


class CriticSettings(Section):
    """A value network with its own trunk, for the algorithms that have one."""

    lr: float = Field(1e-5, gt=0)
    warmup: int = Field(0, ge=0, description="steps in which only the critic learns")
    clip: float | None = Field(None, gt=0, description="how far a value may move from its old estimate")


class Algorithm(ABC):
    Settings: ClassVar[type[LossSettings]] = LossSettings
    settings: LossSettings
    needs: ClassVar[frozenset[Need]] = frozenset()

    def __init__(self, settings: LossSettings, reward: RewardSection) -> None:
        self.settings = settings
        self.reward = reward

    @property
    @abstractmethod
    def plan(self) -> Plan:
        """How episodes are sampled."""

    @property
    def critic(self) -> CriticSettings | None:
        """The critic this run trains, if it has one."""
        return None

    @abstractmethod
    def credit(self, episodes: Sequence[Episode]) -> Mapping[str, float]:
        """Fill `turn.advantage` of every turn to be trained, from the keys stamped on it; returns metrics."""

    def loss(self, targets: Targets, outputs: Outputs) -> tuple[Tensor, dict[str, float]]:
        """A pure tensor function, summed so that micro-batches add up."""
        from interplay.algorithms.losses import policy_loss

        s = self.settings
        return policy_loss(targets, outputs, s.clip_low, s.clip_high, s.dual_clip, s.entropy, s.kl)

    def state_dict(self) -> dict[str, Any]:
        """Baselines and the like: part of the checkpoint, as plain JSON values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state:
            raise ConfigError(
                f"the checkpoint holds algorithm state {sorted(state)}, but {type(self).__name__} has none."
            )


A = TypeVar("A", bound=type[Algorithm])
_REGISTRY: dict[str, type[Algorithm]] = {}
_MODULES = {name: f"interplay.algorithms.{name}" for name in ("grpo", "at_grpo", "rae", "ppo")}


def register(name: str) -> Callable[[A], A]:
    def add(cls: A) -> A:
        _REGISTRY[name] = cls
        return cls

    return add


def known() -> list[str]:
    return sorted({*_MODULES, *_REGISTRY})


def make(section: Open, reward: RewardSection) -> Algorithm:
    """The algorithm that a recipe names, its settings checked."""
    name = section.name
    if name not in _REGISTRY and name in _MODULES:
        importlib.import_module(_MODULES[name])
    if name not in _REGISTRY:
        raise ConfigError(f"algorithm.name '{name}' is not an algorithm; {did_you_mean(name, known())}")
    cls = _REGISTRY[name]
    return cls(validate(cls.Settings, section.options, prefix="algorithm"), reward)
