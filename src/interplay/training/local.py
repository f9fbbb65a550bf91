"""A learner whose model is in this process. The local engine samples from the same model object.

Publishing new full weights only sets a version number and copies nothing. If the model computes in bf16, the optimiser
has fp32 copies of the weights and writes them back after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from interplay.algorithms.losses import sft_loss
from interplay.config import TrainSection
from interplay.models import senses
from interplay.models.adapter import Adapter
from interplay.models.latch import latch_of
from interplay.models.staging import to_device
from interplay.training.channels import ChannelLearner
from interplay.training.critic import Critic
from interplay.training.forward import AdapterMixer, logprobs, pieces, predict
from interplay.training.learner import Objective, critic_of
from interplay.training.masters import Masters
from interplay.training.minibatches import token_weights
from interplay.training.optimizers import clipped_step, load_moments, make_optimizer, moments
from interplay.training.ranks import ALONE, ranks_of
from interplay.training.step import step
from interplay.training.tries import Example


class LocalLearner:
    """With `adapter`, only its tensors are trained, and other policies may share the model as their base."""

    apart = False

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        config: TrainSection,
        lr: float,
        seed: int,
        adapter: Adapter | None = None,
    ) -> None:
        self.name, self.model, self.config, self.seed, self.adapter = name, model, config, seed, adapter
        self.device = next(model.parameters()).device
        self.steps = 0
        self.critic: Critic | None = None
        self.written: Callable[[], None] | None = None  # called after every optimiser step
        self.channels: list[ChannelLearner] = []  # those that send vectors to agents on this model
        if adapter is None:
            # A frozen eye or ear is not trained.
            self._named: dict[str, Tensor] = {n: p for n, p in model.named_parameters() if p.requires_grad}
        else:
            model.requires_grad_(False)
            # Sorted by name, since a file may have another order than the model.
            self._named = {
                f"{layer}.{side}": tensor.requires_grad_()
                for layer, pair in sorted(adapter.weights.items())
                for side, tensor in zip(("lora_A", "lora_B"), pair, strict=True)
            }
        self.masters = Masters(self._named.values())
        self.optimizer = make_optimizer(self.masters.own, config, lr)
        self.lr = lr

    def logprobs(self, examples: Sequence[Example]) -> list[list[float]]:
        return self.logprobs_together([self], examples)

    def logprobs_together(self, learners: Sequence[LocalLearner], examples: Sequence[Example]) -> list[list[float]]:
        adapters = {name: adapter for learner in learners for name, adapter in learner.adapters.items()}
        return logprobs(self.model, examples, self.config.micro_batch_tokens, adapters)

    def values(self, examples: Sequence[Example], tokens: bool) -> list[tuple[float, ...]]:
        return critic_of(self).values(examples, tokens)

    def step(self, examples: Sequence[Example], objective: Objective) -> dict[str, float]:
        return step([self], {self.name: examples}, objective)[self.name]

    def step_together(
        self, learners: Sequence[LocalLearner], examples: Mapping[str, Sequence[Example]], objective: Objective
    ) -> dict[str, dict[str, float]]:
        return step(learners, examples, objective)

    @property
    def shares(self) -> object:
        return self.model

    def fit(self, examples: Sequence[Example], tokens: bool) -> dict[str, float]:
        return critic_of(self).step(examples, tokens)

    def weights(self) -> Mapping[str, Tensor]:
        return self._named

    @property
    def adapters(self) -> dict[str, Adapter]:
        """Its adapter, if it has one, by the policy's name."""
        return {} if self.adapter is None else {self.name: self.adapter}

    def imitate(self, examples: Sequence[Example], lr: float | None = None) -> float:
        for group in self.optimizer.param_groups if lr is not None else ():
            group["lr"] = lr
        weight = token_weights(examples, "token")
        mixer = AdapterMixer(self.model, self.adapters)
        losses: list[Tensor] = []
        for batch in pieces(self.model, examples, self.config.micro_batch_tokens):
            samples = [examples[i].sample for i in batch.examples]
            logp_M, _ = predict(self.model, batch, 1.0, mixer.mix(batch), self.config.recompute)
            weights = self.flat([0.0 if batch.repeated else weight[s.id]] * len(s.action) for s in samples)
            loss = sft_loss(logp_M.index_select(0, batch.prediction_N), weights)
            loss.backward()
            self.masters.collect()
            losses.append(loss.detach())
        mixer.collect()
        ranks = ranks_of(self.model)
        ranks.add_gradients(self.masters.whole)
        total = sum(ranks.everywhere(sum(torch.stack(losses).tolist())))
        self.apply(total)
        for channel in self.channels:
            channel.apply(total)
        return total

    def apply(self, loss: float) -> float:
        """Clip the gradients and take an optimiser step; return the gradient norm."""
        who, limit = f"policy '{self.name}'", self.config.grad_clip
        ranks = ranks_of(self.model) if self.adapter is None else ALONE  # every rank has the whole adapter
        with latch_of(self.model).writing() if self.adapter is None else nullcontext():
            norm = clipped_step(self.optimizer, limit, loss, who, "lower train.lr", ranks)
            self.masters.publish()
            ranks.release()
            sense = senses.of(self.model)
            if sense is not None and sense.thawed and self.adapter is None:
                sense.moved()
            if self.written is not None:
                self.written()
        return norm

    def flat(self, parts: Iterable[Iterable[float]]) -> Tensor:
        """Numbers of many samples as one tensor."""
        return to_device(np.fromiter(chain.from_iterable(parts), np.float32), self.device)

    @property
    def rounded(self) -> bool:
        return self.model.dtype is not torch.float32

    @property
    def size(self) -> int:
        return sum(p.numel() for p in self.masters.parameters)

    def delivered(self) -> AbstractContextManager[None]:
        return nullcontext()  # the engine reads the same tensors

    def close(self) -> None:
        """Does nothing: it has no processes."""

    # -- state ----------------------------------------------------------------------------------------------------

    def reset_optimizer(self, lr: float) -> None:
        self.optimizer = make_optimizer(self.masters.own, self.config, lr)
        self.lr = lr
        for channel in self.channels:
            channel.reset_optimizer()

    def begin_again(self) -> None:
        self.masters.reread()
        self.reset_optimizer(self.lr)

    def state_dict(self) -> dict[str, Any]:
        optimizer = moments(self.optimizer, self.masters.parameters)
        state = {"optimizer": optimizer, "masters": self.masters.state(), "steps": self.steps}
        return ranks_of(self.model).whole(state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        load_moments(self.optimizer, state["optimizer"], self.masters.parameters)
        self.masters.load(state["masters"])
        self.steps = state["steps"]
