"""The interface of a learner: the parameters, optimiser and schedule of one policy.

Every policy has its own, so a step of one policy leaves the others bit-identical. A policy without tokens takes no
step. `local.py` is a learner with its model in this process, `sharded.py` one with processes of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor
from transformers import PreTrainedModel

from interplay.algorithms.losses import Outputs, Targets
from interplay.config import TrainSection
from interplay.errors import GuardError
from interplay.models.adapter import Adapter
from interplay.training.tries import Example
from interplay.training.watch import TokenWatch

if TYPE_CHECKING:
    from interplay.training.critic import Critic

Loss = Callable[[Targets, Outputs], tuple[Tensor, dict[str, Tensor]]]


@dataclass(frozen=True)
class Objective:
    """What a step minimises: a loss over tokens, what its mean is taken over, and whether tokens with zero advantage
    still have a gradient (from an entropy bonus or a KL penalty). Tokens whose weights are more than `staleness`
    training steps old are left out of both the loss and its mean. `watch` is shown every trained token."""

    loss: Loss
    average: str | int = "token"
    keep_zeros: bool = False
    staleness: int = 0
    watch: TokenWatch | None = None


class Learner(Protocol):
    name: str
    config: TrainSection
    steps: int  # training steps taken
    model: PreTrainedModel  # the one that the local engine samples from
    adapter: Adapter | None
    critic: Critic | None
    written: Callable[[], None] | None  # called after every optimiser step
    apart: bool  # whether the engine has weights of its own, and not the learner's

    @property
    def shares(self) -> object:
        """Learners that share this object can take a step together."""
        ...

    @property
    def rounded(self) -> bool:
        """Whether the model computes in lower precision than fp32."""
        ...

    @property
    def size(self) -> int:
        """The number of trained parameters."""
        ...

    def logprobs(self, examples: Sequence[Example]) -> list[list[float]]:
        """log π(action | prompt) of each sample under the current weights."""
        ...

    def logprobs_together(self, learners: Sequence[Any], examples: Sequence[Example]) -> list[list[float]]:
        """The same for samples of several learners with the same `shares`, in one pass."""
        ...

    def values(self, examples: Sequence[Example], tokens: bool) -> list[tuple[float, ...]]:
        """The critic's value at the end of each prompt or, with `tokens`, before each sampled token."""
        ...

    def step(self, examples: Sequence[Example], objective: Objective) -> dict[str, float]:
        """One training step over credited samples: epochs × minibatches optimiser steps. Returns metrics."""
        ...

    def step_together(
        self, learners: Sequence[Any], examples: Mapping[str, Sequence[Example]], objective: Objective
    ) -> dict[str, dict[str, float]]:
        """One training step of several learners with the same `shares`; returns metrics by policy."""
        ...

    def imitate(self, examples: Sequence[Example], lr: float | None = None) -> float:
        """One optimiser step towards given replies, with learning rate `lr` if it is given; returns the mean negative
        log-likelihood per token."""
        ...

    def fit(self, examples: Sequence[Example], tokens: bool) -> dict[str, float]:
        """One training step of the critic towards the examples' targets."""
        ...

    def weights(self) -> Mapping[str, Tensor]:
        """The trained tensors by name."""
        ...

    def delivered(self) -> AbstractContextManager[None]:
        """Inside, the engine's copy of the weights, if it has one, holds the trained ones, and nothing reads it."""
        ...

    def reset_optimizer(self, lr: float) -> None:
        """Make a new optimiser with learning rate `lr`."""
        ...

    def begin_again(self) -> None:
        """Make a new optimiser after the weights were replaced."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...

    def close(self) -> None:
        """End the processes of the learner, if it has any."""
        ...


def critic_of(learner: Learner) -> Critic:
    """The critic of a policy. It is whole and in this process, also if the policy is sharded."""
    if learner.critic is None:
        raise GuardError(f"policy '{learner.name}' has no critic; expected an algorithm that trains one.")
    return learner.critic
