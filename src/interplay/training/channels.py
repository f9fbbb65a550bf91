"""The learner of a soft channel. Its gradients come from the loss of the agent that receives its vectors.

A channel is trained like a policy: it has its own parameters, optimiser, learning rate and clipping. A step of the
agents leaves the channel bit-identical, and a step of the channel leaves the agents bit-identical.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedModel

from interplay.config import ChannelSection, TrainSection
from interplay.models.channel import Channel
from interplay.models.latch import latch_of
from interplay.training.minibatches import rate_factor
from interplay.training.optimizers import clipped_step, load_moments, make_optimizer


class ChannelLearner:
    """`model` is the base whose agents receive the vectors."""

    def __init__(self, channel: Channel, model: PreTrainedModel, config: TrainSection) -> None:
        self.channel, self.model, self.config = channel, model, config
        self.name, self.steps = channel.name, 0
        self.parameters = list(channel.parameters())
        self.optimizer = make_optimizer(self.parameters, config, config.lr)
        self._metrics: dict[str, float] = {}

    def reset_optimizer(self) -> None:
        self.optimizer = make_optimizer(self.parameters, self.config, self.config.lr)

    def begin(self) -> None:
        """Set the learning rate of a training step."""
        self._metrics = {}
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr * rate_factor(self.config, self.steps)

    def apply(self, loss: float) -> None:
        """Clip the gradients and take an optimiser step, if a backward pass has reached the channel."""
        if all(p.grad is None for p in self.parameters):
            return
        who, remedy = f"channel '{self.name}'", f"lower channels.{self.name}.lr"
        with latch_of(self.model).writing():
            norm = clipped_step(self.optimizer, self.config.grad_clip, loss, who, remedy)
            self.channel.version += 1
        self._metrics = {"grad_norm": norm, "lr": self.optimizer.param_groups[0]["lr"]}
        if not self.channel.shape.tokens:
            self._metrics["gate"] = torch.tanh(self.channel.gate).item()

    def end(self) -> dict[str, float]:
        """End a training step; returns the metrics of its last optimiser step, or nothing if there was none."""
        self.steps += bool(self._metrics)
        return self._metrics

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "steps": self.steps, "version": self.channel.version}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        load_moments(self.optimizer, state["optimizer"])
        self.steps, self.channel.version = state["steps"], state["version"]


def channel_settings(section: ChannelSection, train: TrainSection) -> TrainSection:
    """[train] with the channel's own settings applied. The moments of its small matrices are kept in fp32."""
    own = {k: v for k in ("lr", "weight_decay", "grad_clip") if (v := getattr(section, k)) is not None}
    return train.model_copy(update={**own, "optimizer": "adamw"})
