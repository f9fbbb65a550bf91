"""One policy's parameters, optimiser and schedule: log-probs, and a step.

Every policy owns all of these, so a step of one leaves the others bit-identical; a policy without tokens takes no
step. The model is the very object the engine samples from: publishing is `Engine.publish`, and copies nothing. Where it
computes in bf16, the optimiser holds fp32 masters and writes them back after every step.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from interplay.algorithms.losses import Outputs, Targets, sft_loss
from interplay.config import TrainSection
from interplay.errors import GuardError
from interplay.models.adapter import Adapter
from interplay.training.forward import Mixer, logprobs, pieces, predict, temperature_of
from interplay.training.optimizers import clipped_step, load_moments, make_optimizer
from interplay.types import Turn, seed_of

Loss = Callable[[Targets, Outputs], tuple[Tensor, dict[str, float]]]


class Learner:
    """With `adapter`, its tensors are what is trained, and the model is a base that other policies may share."""

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
        own = list(model.parameters())
        if adapter is not None:
            model.requires_grad_(False)
            # By name: a file holds them in another order than the model.
            own = [t.requires_grad_() for _, pair in sorted(adapter.weights.items()) for t in pair]
        self.masters = Masters(own)
        self.optimizer = make_optimizer(self.masters.own, config, lr)
        self.lr = lr

    def logprobs(self, turns: Sequence[Turn]) -> list[list[float]]:
        """log π(action | prompt) of each turn under the current weights."""
        return logprobs(self.model, turns, self.config.micro_batch_tokens, adapters([self]))

    def step(self, turns: Sequence[Turn], loss: Loss, average: str | int, keep_zeros: bool) -> dict[str, float]:
        """One training step over credited turns: epochs × minibatches optimiser steps."""
        return step([self], {self.name: turns}, loss, average, keep_zeros)[self.name]

    def imitate(self, turns: Sequence[Turn]) -> float:
        """One optimiser step towards given replies; the mean negative log-likelihood per token."""
        weight = token_weights(turns, "token")
        mixer = Mixer(self.model, adapters([self]))
        total = 0.0
        for batch in pieces(self.model, turns, self.config.micro_batch_tokens):
            members = [turns[i] for i in batch.turns]
            logp_M, _ = predict(self.model, batch, 1.0, mixer.mix(batch), self.config.recompute)
            loss = sft_loss(
                logp_M.index_select(0, batch.prediction_N), self.flat([weight[t.id]] * len(t.action) for t in members)
            )
            loss.backward()
            self.masters.collect()
            total += loss.item()
        mixer.collect()
        self.apply(total)
        return total

    def apply(self, loss: float) -> float:
        who, limit = f"policy '{self.name}'", self.config.grad_clip
        norm = clipped_step(self.optimizer, self.masters.own, limit, loss, who, "lower train.lr")
        self.masters.publish()
        return norm

    def flat(self, parts: Any) -> Tensor:
        return torch.from_numpy(np.fromiter(chain.from_iterable(parts), np.float32)).to(self.device)

    @property
    def rounded(self) -> bool:
        """The model computes in less than fp32."""
        return self.model.dtype is not torch.float32

    # -- state ----------------------------------------------------------------------------------------------------

    def reset_optimizer(self, lr: float) -> None:
        """A clean optimiser at `lr`: between imitation and reinforcement learning."""
        self.optimizer = make_optimizer(self.masters.own, self.config, lr)
        self.lr = lr

    def begin_again(self) -> None:
        """The weights were replaced: forget what the optimiser knows of the ones before."""
        self.masters.reread()
        self.reset_optimizer(self.lr)

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "masters": self.masters.state(), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        load_moments(self.optimizer, state["optimizer"])
        self.masters.load(state["masters"])
        self.steps = state["steps"]


def adapters(learners: Sequence[Learner]) -> dict[str, Adapter]:
    return {x.name: x.adapter for x in learners if x.adapter is not None}


def step(
    learners: Sequence[Learner], turns: Mapping[str, Sequence[Turn]], loss: Loss, average: str | int, keep_zeros: bool
) -> dict[str, dict[str, float]]:
    """One training step of policies that share a model: its adapters go through it in one forward and backward pass.

    Everything else stays apart: minibatches, denominators, the gate, clipping, the optimiser."""
    credited = {x.name: [t for t in turns[x.name] if t.advantage is not None] for x in learners}
    parts = {x.name: _begin(x, credited[x.name]) for x in learners}
    everyone = [t for x in learners for t in credited[x.name]]
    old: dict[str, list[float]] = {}
    if any(len(p) > 1 for p in parts.values()):  # later minibatches need the policy as it was before the first
        first = learners[0]
        found = logprobs(first.model, everyone, first.config.micro_batch_tokens, adapters(learners))
        old = {t.id: lp for t, lp in zip(everyone, found, strict=True)}
    totals: dict[str, dict[str, float]] = {x.name: {} for x in learners}
    for k in range(max(map(len, parts.values()))):
        now = [x for x in learners if k < len(parts[x.name])]
        mine = {x.name: parts[x.name][k] for x in now}
        for name, metrics in _optimise(now, mine, loss, average, keep_zeros, old, k == 0):
            whole = totals[name]
            for key, value in metrics.items():
                before = whole.get(key, 0.0)
                worst = key.startswith(("gap", "ratio"))
                whole[key] = max(before, value) if worst else before + value / len(parts[name])
    for learner in learners:
        learner.steps += 1
        lr = learner.optimizer.param_groups[0]["lr"]
        totals[learner.name] |= {"lr": lr, "turns": float(len(credited[learner.name]))}
    return totals


def _begin(learner: Learner, turns: Sequence[Turn]) -> list[list[Turn]]:
    now = learner.lr * _factor(learner.config, learner.steps)
    for group in learner.optimizer.param_groups:
        group["lr"] = now
    return minibatches(turns, learner.config, seed_of("policy", learner.seed, learner.name, learner.steps))


@dataclass
class _Tally:
    """What one policy's minibatch came to."""

    metrics: dict[str, float] = field(default_factory=dict)
    gap: float = 0.0
    far: float = 0.0
    ratio: float = 0.0  # the same two of the learner with itself, where its two passes should agree
    strayed: float = 0.0
    tokens: int = 0
    weight: float = 0.0


def _optimise(
    learners: Sequence[Learner],
    parts: Mapping[str, Sequence[Turn]],
    loss: Loss,
    average: str | int,
    keep_zeros: bool,
    old: Mapping[str, list[float]],
    first_part: bool,
) -> Iterator[tuple[str, dict[str, float]]]:
    """One optimiser step of each learner. Nobody moves before everybody's gate is passed."""
    weight = {key: w for part in parts.values() for key, w in token_weights(part, average).items()}
    # A turn without advantage counts in the denominators but has no gradient: it need not be computed.
    turns = [t for x in learners for t in parts[x.name] if keep_zeros or t.advantage]
    if not turns:
        return
    first = learners[0]
    whose = {t.id: x.name for x in learners for t in parts[x.name]}
    mixer = Mixer(first.model, adapters(learners))
    tallies: dict[str, _Tally] = {}
    for batch in pieces(first.model, turns, first.config.micro_batch_tokens):
        members = [turns[i] for i in batch.turns]
        logp_M, entropy_M = predict(first.model, batch, temperature_of(turns), mixer.mix(batch), first.config.recompute)
        logp_N, entropy_N = (x.index_select(0, batch.prediction_N) for x in (logp_M, entropy_M))
        objective = logp_N.new_zeros(())
        for name, mine, at in _apart(members, whose, first.device):
            tally = tallies.setdefault(name, _Tally())
            outputs = Outputs(logp_N, entropy_N)
            if at is not None:
                outputs = Outputs(logp_N.index_select(0, at), entropy_N.index_select(0, at))
            before = first.flat(old[t.id] for t in mine) if old else outputs.logprobs_N.detach()
            sampled = first.flat(t.logprobs for t in mine)
            spread = _Spread(mine, first.device)
            by_token = any(t.token_advantages for t in mine)
            targets = Targets(
                first.flat(t.token_advantages or [t.advantage or 0.0] * len(t.action) for t in mine)
                if by_token
                else spread([t.advantage or 0.0 for t in mine]),
                before,
                spread([weight[t.id] for t in mine]),
                first.flat(t.ref_logprobs or () for t in mine) if mine[0].ref_logprobs else None,
                sampled,
                spread(list(range(len(mine)))),
            )
            value, metrics = loss(targets, outputs)
            objective = objective + value
            apart = (before - sampled).abs().nan_to_num(math.inf, posinf=math.inf)
            tally.gap = max(tally.gap, apart.max().item())
            tally.far += apart.sum().item()
            tally.tokens += len(apart)
            tally.weight += targets.weights_N.sum().item()
            if first_part and old:
                stray = (outputs.logprobs_N.detach() - before).abs().nan_to_num(math.inf, posinf=math.inf)
                tally.ratio = max(tally.ratio, stray.max().item())
                tally.strayed += stray.sum().item()
            for key, number in (metrics | {"loss": value.item()}).items():
                tally.metrics[key] = tally.metrics.get(key, 0.0) + number
        objective.backward()
        for learner in learners:
            learner.masters.collect()
    mixer.collect()
    moving = [x for x in learners if x.name in tallies]
    for learner in moving:
        _refuse_gap(learner, tallies[learner.name], learners)
    for learner in moving:
        tally = tallies[learner.name]
        norm = learner.apply(tally.metrics["loss"])
        gaps = {"gap": tally.gap, "gap_mean": tally.far / tally.tokens}
        if first_part:
            gaps |= {"ratio": math.exp(tally.ratio), "ratio_mean": math.exp(tally.strayed / tally.tokens)}
        # Means over what was computed: turns without advantage may not be, and a constant length is no count.
        means = {key: value / tally.weight for key, value in tally.metrics.items() if key != "loss"}
        yield learner.name, {"loss": tally.metrics["loss"], **means, **gaps, "grad_norm": norm}


class _Spread:
    """One number per turn, to each of its tokens."""

    def __init__(self, turns: Sequence[Turn], device: torch.device) -> None:
        self._lengths = torch.tensor([len(t.action) for t in turns], device=device)

    def __call__(self, values: list[Any]) -> Tensor:
        return torch.tensor(values, device=self._lengths.device).repeat_interleave(self._lengths)


def _apart(
    turns: Sequence[Turn], whose: Mapping[str, str], device: torch.device
) -> Iterator[tuple[str, list[Turn], Tensor | None]]:
    """Each learner's turns, and where their tokens stand among all tokens of `turns`; None: everywhere."""
    if len({whose[t.id] for t in turns}) == 1:
        yield whose[turns[0].id], list(turns), None
        return
    by_name: dict[str, tuple[list[Turn], list[range]]] = {}
    at = 0
    for turn in turns:
        mine, spans = by_name.setdefault(whose[turn.id], ([], []))
        mine.append(turn)
        spans.append(range(at, at + len(turn.action)))
        at += len(turn.action)
    for name, (mine, spans) in by_name.items():
        yield name, mine, torch.tensor([i for span in spans for i in span], device=device)


def _refuse_gap(learner: Learner, tally: _Tally, everyone: Sequence[Learner]) -> None:
    """Promise 2. In bf16 single tokens may be far apart: there the mean is what must be small. And before the first
    step of a batch the ratio to the policy as it was is 1."""
    config, rounded = learner.config, learner.rounded
    key, limit = ("gap_mean_stop", config.gap_mean_stop) if rounded else ("gap_stop", config.gap_stop)
    gap, stray = (tally.far / tally.tokens, tally.strayed / tally.tokens) if rounded else (tally.gap, tally.ratio)
    if max(gap, stray) <= limit:
        return
    for other in everyone:
        other.optimizer.zero_grad(set_to_none=True)
    if gap > limit:
        raise GuardError(
            f"policy '{learner.name}': engine and learner disagree by {gap:.2e} in log-prob, past train.{key} "
            f"({limit:g}); the samples were not drawn from these weights."
        )
    raise GuardError(
        f"policy '{learner.name}': at the first minibatch the ratio to the policy before the step is "
        f"{math.exp(stray):.4f} where nothing has moved, past train.{key} ({limit:g} in log-prob): two passes over the "
        "same tokens disagree."
    )


class Masters:
    """What the optimiser steps: fp32 parameters themselves, and fp32 copies of those that compute in less."""

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self.parameters = [p for p in parameters if p.requires_grad]
        self.own = [p if p.dtype is torch.float32 else p.detach().float() for p in self.parameters]
        self._copies = [(m, p) for m, p in zip(self.own, self.parameters, strict=True) if m is not p]

    @torch.no_grad()
    def collect(self) -> None:
        """Add the gradients of a micro-batch to the masters', in fp32."""
        for master, parameter in self._copies:
            if parameter.grad is not None:
                if master.grad is None:
                    master.grad = parameter.grad.float()
                else:
                    master.grad += parameter.grad
                parameter.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        if self._copies:
            torch._foreach_copy_([p for _, p in self._copies], [m for m, _ in self._copies])

    @torch.no_grad()
    def reread(self) -> None:
        for master, parameter in self._copies:
            master.copy_(parameter)

    def state(self) -> list[Tensor]:
        return [m for m, _ in self._copies]

    @torch.no_grad()
    def load(self, state: Sequence[Tensor]) -> None:
        for (master, _), saved in zip(self._copies, state, strict=True):
            master.copy_(saved)


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


def _factor(config: TrainSection, step: int) -> float:
    """The share of the learning rate in force at a step."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return 1.0
    done = min(1.0, (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps))
    shape = 1.0 - done if config.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return config.final_lr + (1 - config.final_lr) * shape
