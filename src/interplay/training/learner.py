"""One policy's parameters, optimiser and schedule: log-probs, values, and a step.

Every policy owns all of these, so a step of one leaves the others bit-identical; a policy without tokens takes no
step. The model is the very object the engine samples from: publishing is `Engine.publish`, and copies nothing.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from interplay.algorithms.losses import Outputs, Targets, sft_loss, value_loss
from interplay.config import TrainSection
from interplay.engines.local.attention import Causal, Masked, using
from interplay.errors import GuardError
from interplay.training.batch import MicroBatch, lay, micro_batches
from interplay.types import Turn, seed_of

Loss = Callable[[Targets, Outputs], tuple[Tensor, dict[str, float]]]


class Learner:
    def __init__(self, name: str, model: PreTrainedModel, config: TrainSection, lr: float, seed: int) -> None:
        self.name, self.model, self.config, self.seed = name, model, config, seed
        self.device = next(model.parameters()).device
        self.steps = 0
        self.optimizer = _adamw(model, config, lr)
        self.lr = lr

    # -- forward --------------------------------------------------------------------------------------------------

    def _pieces(self, turns: Sequence[Turn]) -> list[MicroBatch]:
        limit = self.config.micro_batch_tokens
        return list(micro_batches(lay(turns, row_limit=limit), turns, limit, self.device))

    def logprobs(self, turns: Sequence[Turn]) -> list[list[float]]:
        """log π(action | prompt) of each turn under the current weights."""
        return logprobs(self.model, turns, self.config.micro_batch_tokens)

    # -- steps ----------------------------------------------------------------------------------------------------

    def step(self, turns: Sequence[Turn], loss: Loss, average: str | int, keep_zeros: bool) -> dict[str, float]:
        """One training step over credited turns: epochs × minibatches optimiser steps."""
        turns = [t for t in turns if t.advantage is not None]
        now = self.lr * _factor(self.config, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = now
        parts = minibatches(turns, self.config, seed_of("policy", self.seed, self.name, self.steps))
        old: dict[str, list[float]] = {}
        if len(parts) > 1:  # later minibatches need the policy as it was before the first
            old = {t.id: lp for t, lp in zip(turns, self.logprobs(turns), strict=True)}
        totals: dict[str, float] = {}
        for part in parts:
            for key, value in self._optimise(part, loss, average, keep_zeros, old).items():
                totals[key] = (
                    max(totals.get(key, 0.0), value) if key == "gap" else totals.get(key, 0.0) + value / len(parts)
                )
        self.steps += 1
        return totals | {"lr": now, "turns": float(len(turns))}

    def _optimise(
        self, part: Sequence[Turn], loss: Loss, average: str | int, keep_zeros: bool, old: Mapping[str, list[float]]
    ) -> dict[str, float]:
        weight = token_weights(part, average)
        # A turn without advantage counts in the denominators but has no gradient: it need not be computed.
        turns = [t for t in part if keep_zeros or t.advantage]
        if not turns:
            return {}
        totals: dict[str, float] = {}
        gap = 0.0
        for batch in self._pieces(turns):
            members = [turns[i] for i in batch.turns]
            logp_M, entropy_M = predict(self.model, batch, _temperature(turns))
            outputs = Outputs(logp_M.index_select(0, batch.prediction_N), entropy_M.index_select(0, batch.prediction_N))
            before = self._flat(old[t.id] for t in members) if old else outputs.logprobs_N.detach()
            targets = Targets(
                self._flat(t.token_advantages or [t.advantage or 0.0] * len(t.action) for t in members),
                before,
                self._flat([weight[t.id]] * len(t.action) for t in members),
                self._flat(t.ref_logprobs or () for t in members) if members[0].ref_logprobs else None,
                self._flat(t.logprobs for t in members),
                self._flat([i] * len(t.action) for i, t in enumerate(members)).long(),
            )
            value, metrics = loss(targets, outputs)
            value.backward()
            apart = (before - self._flat(t.logprobs for t in members)).abs()
            gap = max(gap, apart.nan_to_num(math.inf, posinf=math.inf).max().item())
            for key, number in (metrics | {"loss": value.item()}).items():
                totals[key] = totals.get(key, 0.0) + number
        if gap > self.config.gap_stop:  # before the weights move
            self.optimizer.zero_grad(set_to_none=True)
            raise GuardError(
                f"policy '{self.name}': engine and learner disagree by {gap:.2e} in log-prob, past train.gap_stop "
                f"({self.config.gap_stop:g}); the samples were not drawn from these weights."
            )
        totals["grad_norm"] = self._apply(totals["loss"])
        return totals | {"gap": gap}

    def imitate(self, turns: Sequence[Turn]) -> float:
        """One optimiser step towards given replies; the mean negative log-likelihood per token."""
        weight = token_weights(turns, "token")
        total = 0.0
        for batch in self._pieces(turns):
            members = [turns[i] for i in batch.turns]
            logp_M, _ = predict(self.model, batch, 1.0)
            loss = sft_loss(
                logp_M.index_select(0, batch.prediction_N), self._flat([weight[t.id]] * len(t.action) for t in members)
            )
            loss.backward()
            total += loss.item()
        self._apply(total)
        return total

    def _apply(self, loss: float) -> float:
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip))
        if not (math.isfinite(norm) and math.isfinite(loss)):
            self.optimizer.zero_grad(set_to_none=True)
            raise GuardError(
                f"policy '{self.name}' got a loss of {loss} and a gradient norm of {norm}; the step was not taken: "
                "lower train.lr or look at the last episodes for broken rewards."
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def _flat(self, parts: Any) -> Tensor:
        return torch.tensor([x for part in parts for x in part], dtype=torch.float32, device=self.device)

    # -- state ----------------------------------------------------------------------------------------------------

    def reset_optimizer(self, lr: float) -> None:
        """A clean optimiser at `lr`: between imitation and reinforcement learning."""
        self.optimizer = _adamw(self.model, self.config, lr)
        self.lr = lr

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps = state["steps"]


class Critic:
    """A value for every prompt: its own trunk and a head that starts at zero."""

    def __init__(self, model: PreTrainedModel, config: TrainSection, lr: float, clip: float | None) -> None:
        self.model, self.config, self.clip = model, config, clip
        self.device = next(model.parameters()).device
        size = model.config.get_text_config().hidden_size
        self.head = nn.Linear(size, 1).to(self.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.module = nn.ModuleDict({"trunk": model.base_model, "head": self.head})
        self.optimizer = _adamw(self.module, config, lr)
        self.steps = 0

    def _pieces(self, turns: Sequence[Turn], tokens: bool = False) -> list[MicroBatch]:
        limit = self.config.micro_batch_tokens
        trie = lay(turns, row_limit=limit, actions=tokens)
        return list(micro_batches(trie, turns, limit, self.device, actions=tokens))

    def _predict(self, batch: MicroBatch) -> Tensor:
        return (
            self.head(hidden_states(self.model.base_model, batch))
            .float()
            .squeeze(-1)
            .index_select(0, batch.prediction_N)
        )

    @torch.no_grad()
    def values(self, turns: Sequence[Turn]) -> list[float]:
        out = [0.0] * len(turns)
        for batch in self._pieces(turns):
            for i, value in zip(batch.turns, self._predict(batch).tolist(), strict=True):
                out[i] = value
        return out

    @torch.no_grad()
    def token_values(self, turns: Sequence[Turn]) -> list[tuple[float, ...]]:
        """A value before each sampled token."""
        out: list[tuple[float, ...]] = [()] * len(turns)
        for batch in self._pieces(turns, tokens=True):
            flat = iter(self._predict(batch).tolist())
            for i in batch.turns:
                out[i] = tuple(itertools.islice(flat, len(turns[i].action)))
        return out

    def step(self, turns: Sequence[Turn]) -> dict[str, float]:
        """Move towards `turn.target`, or `token_targets`: epochs × minibatches optimiser steps, as the policy takes."""
        turns = [t for t in turns if t.target is not None or t.token_targets is not None]
        tokens = bool(turns) and turns[0].token_targets is not None
        parts = minibatches(turns, self.config, seed_of("critic", self.steps))
        total = 0.0
        for part in parts:
            count = sum(len(t.action) for t in part) if tokens else len(part)
            for batch in self._pieces(part, tokens):
                members = [part[i] for i in batch.turns]
                column = lambda f: torch.tensor([x for t in members for x in f(t)], device=self.device)  # noqa: B023, E731
                wanted = column(lambda t: t.token_targets or [t.target])
                old = column(lambda t: t.token_values or [t.value or 0.0])
                weights = torch.full_like(wanted, 1.0 / count)
                loss = value_loss(self._predict(batch), wanted, old, weights, self.clip)
                loss.backward()
                total += loss.item() / len(parts)
            norm = float(nn.utils.clip_grad_norm_(self.module.parameters(), self.config.grad_clip))
            if not math.isfinite(norm):
                self.optimizer.zero_grad(set_to_none=True)
                raise GuardError(
                    f"a critic got a gradient norm of {norm}; the step was not taken: "
                    "lower the critic's lr or look at the last episodes for broken rewards."
                )
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return {"value_loss": total}

    def state_dict(self) -> dict[str, Any]:
        return {"module": self.module.state_dict(), "optimizer": self.optimizer.state_dict(), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.steps = state["steps"]


def predict(model: PreTrainedModel, batch: MicroBatch, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies of the M predictions, in fp32, after temperature."""
    logits_MV = model.get_output_embeddings()(hidden_states(model.base_model, batch)).float() / temperature
    logp_MV = torch.log_softmax(logits_MV, dim=-1)
    entropy_M = -(logp_MV.exp() * logp_MV).sum(-1)
    return logp_MV.gather(1, batch.target_M.unsqueeze(1)).squeeze(1), entropy_M


@torch.no_grad()
def logprobs(model: PreTrainedModel, turns: Sequence[Turn], max_tokens: int) -> list[list[float]]:
    """log π(action | prompt) of each turn under `model`, at the temperature the turns were sampled with."""
    out: list[list[float]] = [[] for _ in turns]
    for batch in micro_batches(lay(turns, row_limit=max_tokens), turns, max_tokens, model.device):
        logp_M, _ = predict(model, batch, _temperature(turns))
        flat = logp_M.index_select(0, batch.prediction_N).tolist()
        for i in batch.turns:
            out[i], flat = flat[: len(turns[i].action)], flat[len(turns[i].action) :]
    return out


def hidden_states(decoder: nn.Module, batch: MicroBatch) -> Tensor:
    """The hidden states [M, C] at the columns that predict."""
    layout = Causal() if batch.mask_B1LL is None else Masked(batch.mask_B1LL)
    with using(layout):
        out = decoder(input_ids=batch.ids_BL, position_ids=batch.positions_BL, use_cache=False)
    flat = batch.row_M * batch.ids_BL.shape[1] + batch.column_M
    return out.last_hidden_state.flatten(0, 1).index_select(0, flat)


def minibatches(turns: Sequence[Turn], config: TrainSection, seed: int) -> list[list[Turn]]:
    """The turns of each optimiser step: `epochs` passes, each cut into shuffled `minibatches`."""
    out: list[list[Turn]] = []
    for epoch in range(config.epochs if turns else 0):
        order = list(range(len(turns)))
        if config.minibatches > 1:
            random.Random(seed_of(seed, epoch)).shuffle(order)
        size = math.ceil(len(turns) / config.minibatches)
        out += [[turns[i] for i in sorted(order[k : k + size])] for k in range(0, len(order), size)]
    return out


def token_weights(turns: Sequence[Turn], average: str | int) -> dict[str, float]:
    """The weight of one token of each turn, so that all weights together are 1; given a constant length, of that many
    tokens per turn."""
    if isinstance(average, int):
        return {t.id: 1.0 / (average * len(turns)) for t in turns}
    if average == "turn":
        return {t.id: 1.0 / (len(t.action) * len(turns)) for t in turns}
    total = sum(len(t.action) for t in turns)
    return {t.id: 1.0 / total for t in turns}


def _temperature(turns: Sequence[Turn]) -> float:
    temperatures = {t.temperature for t in turns}
    if len(temperatures) != 1:
        raise GuardError(f"one policy's turns were sampled at temperatures {sorted(temperatures)}; expected one.")
    return temperatures.pop()


def _adamw(module: nn.Module, config: TrainSection, lr: float) -> torch.optim.AdamW:
    betas = (config.beta1, config.beta2)
    return torch.optim.AdamW(module.parameters(), lr=lr, betas=betas, weight_decay=config.weight_decay)


def _factor(config: TrainSection, step: int) -> float:
    """The share of the learning rate in force at a step."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return 1.0
    done = min(1.0, (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps))
    shape = 1.0 - done if config.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return config.final_lr + (1 - config.final_lr) * shape
