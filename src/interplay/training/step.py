"""One training step of policies that share a model: one forward and backward pass for all their adapters.

Everything else is separate for each policy: minibatches, denominators, the gate, clipping, the optimiser. No weights
change before all policies have passed the gate between engine and learner (promise 2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from interplay.algorithms.losses import Outputs, Targets
from interplay.config import TrainSection
from interplay.errors import GuardError
from interplay.models.adapter import Adapter
from interplay.models.staging import to_device
from interplay.training.batch import MicroBatch
from interplay.training.channels import ChannelLearner
from interplay.training.forward import AdapterMixer, logprobs, pieces, predict, temperature_of
from interplay.training.learner import Objective
from interplay.training.masters import Masters
from interplay.training.minibatches import minibatches, rate_factor, token_weights
from interplay.training.ranks import ranks_of
from interplay.training.tries import Example
from interplay.types import Sample, seed_of


class Stepping(Protocol):
    """What a step needs from each learner."""

    name: str
    model: PreTrainedModel
    config: TrainSection
    seed: int
    lr: float
    steps: int
    device: torch.device
    masters: Masters
    optimizer: torch.optim.Optimizer
    channels: list[ChannelLearner]

    @property
    def rounded(self) -> bool: ...
    @property
    def adapters(self) -> dict[str, Adapter]: ...
    def apply(self, loss: float) -> float: ...
    def flat(self, parts: Iterator[Sequence[float]]) -> Tensor: ...


def step(
    learners: Sequence[Stepping], examples: Mapping[str, Sequence[Example]], objective: Objective
) -> dict[str, dict[str, float]]:
    """Take one training step of each learner on its examples; return the metrics by policy."""
    credited = {x.name: [e for e in examples[x.name] if e.advantage is not None] for x in learners}
    parts = {x.name: _begin(x, credited[x.name]) for x in learners}
    everyone = [e for x in learners for e in credited[x.name]]
    old: dict[str, list[float]] = {}
    if any(len(p) > 1 for p in parts.values()):  # later minibatches need the log-probs from before the first
        first = learners[0]
        found = logprobs(first.model, everyone, first.config.micro_batch_tokens, _adapters(learners))
        old = {e.sample.id: lp for e, lp in zip(everyone, found, strict=True)}
    wires = learners[0].channels
    for wire in wires:
        wire.begin()
    totals: dict[str, dict[str, float]] = {x.name: {} for x in learners}
    older: dict[str, list[_Account]] = {x.name: [] for x in learners}  # of minibatches with stale tokens
    for k in range(max(map(len, parts.values()))):
        now = [x for x in learners if k < len(parts[x.name])]
        mine = {x.name: parts[x.name][k] for x in now}
        minibatch = _Minibatch(now, mine, objective, old, k == 0)
        for name, metrics in minibatch.optimise():
            whole = totals[name]
            for key, value in metrics.items():
                before = whole.get(key, 0.0)
                worst = key.startswith(("gap", "ratio"))
                whole[key] = max(before, value) if worst else before + value / len(parts[name])
        for name, account in minibatch.accounts.items():
            older[name] += [account] if account.stale else []
    for learner in learners:
        learner.steps += 1
        lr = learner.optimizer.param_groups[0]["lr"]
        totals[learner.name] |= {"lr": lr, "turns": float(len(credited[learner.name]))}
        if stale := older[learner.name]:
            totals[learner.name]["stale_kl"] = sum(a.stale_kl for a in stale) / sum(a.stale for a in stale)
    return totals | {wire.name: metrics for wire in wires if (metrics := wire.end())}


def _adapters(learners: Sequence[Stepping]) -> dict[str, Adapter]:
    return {name: adapter for x in learners for name, adapter in x.adapters.items()}


def _begin(learner: Stepping, examples: Sequence[Example]) -> list[list[Example]]:
    now = learner.lr * rate_factor(learner.config, learner.steps)
    for group in learner.optimizer.param_groups:
        group["lr"] = now
    return minibatches(examples, learner.config, seed_of("policy", learner.seed, learner.name, learner.steps))


@dataclass
class _Account:
    """Running totals over one minibatch of one policy."""

    metrics: dict[str, float] = field(default_factory=dict)
    gap: float = 0.0  # largest difference in log-prob between engine and learner
    far: float = 0.0  # sum of these differences
    ratio: float = 0.0  # largest difference between two passes of the learner over the same weights
    strayed: float = 0.0  # sum of these differences
    tokens: int = 0  # sampled with the newest weights
    weight: float = 0.0
    stale: int = 0  # tokens sampled with older weights
    stale_kl: float = 0.0
    unread: list[tuple[str, Tensor]] = field(default_factory=list)  # numbers that are still on the device

    def read(self) -> None:
        """Read the numbers of all micro-batches from the device at once, since every reading waits for its work."""
        if not self.unread:
            return
        names, tensors = zip(*self.unread, strict=True)
        self.unread = []
        for name, number in zip(names, torch.stack(tensors).tolist(), strict=True):
            if name in ("gap", "ratio"):
                setattr(self, name, max(getattr(self, name), number))
            elif name in ("far", "strayed", "weight", "stale_kl"):
                setattr(self, name, getattr(self, name) + number)
            else:
                self.metrics[name] = self.metrics.get(name, 0.0) + number

    def join(self, other: _Account) -> None:
        """Add the totals of another process."""
        for key, number in other.metrics.items():
            self.metrics[key] = self.metrics.get(key, 0.0) + number
        self.gap, self.ratio = max(self.gap, other.gap), max(self.ratio, other.ratio)
        for total in ("far", "strayed", "tokens", "weight", "stale", "stale_kl"):
            setattr(self, total, getattr(self, total) + getattr(other, total))


def _joined(found: Sequence[dict[str, _Account]]) -> dict[str, _Account]:
    """The accounts of all processes, added up by policy."""
    out = found[0]
    for other in found[1:]:
        for name, account in other.items():
            out.setdefault(name, _Account()).join(account)
    return out


class _Minibatch:
    """One optimiser step of each learner. If there are several, `old` holds the log-probs from before the first."""

    def __init__(
        self,
        learners: Sequence[Stepping],
        parts: Mapping[str, Sequence[Example]],
        objective: Objective,
        old: Mapping[str, list[float]],
        first: bool,
    ) -> None:
        self.learners, self.objective, self.old, self.first = learners, objective, old, first
        self.lead = learners[0]
        spans = (token_weights(part, objective.average, objective.staleness) for part in parts.values())
        every = [w for part in spans for w in part.items()]
        self.weight = dict(every)
        # A sample with zero advantage counts in the denominators but has no gradient, so it is not computed.
        self.examples = [e for x in learners for e in parts[x.name] if objective.keep_zeros or e.has_signal]
        self.accounts: dict[str, _Account] = {}

    def optimise(self) -> Iterator[tuple[str, dict[str, float]]]:
        if not self.examples:
            return
        lead = self.lead
        mixer = AdapterMixer(lead.model, _adapters(self.learners))
        heat = temperature_of(self.examples)
        ranks = ranks_of(lead.model)
        for batch in pieces(lead.model, self.examples, lead.config.micro_batch_tokens):
            logp_M, entropy_M = predict(lead.model, batch, heat, mixer.mix(batch), lead.config.recompute)
            total = 0.0 * logp_M.sum() if batch.repeated else self._total(batch, logp_M, entropy_M)
            total.backward()
            for learner in self.learners:
                learner.masters.collect()
        mixer.collect()
        for account in self.accounts.values():
            account.read()
        self.accounts = _joined(ranks.everywhere(self.accounts))
        # If all tokens of a policy are too old to count, its gradient is 0, and a step would follow momentum alone.
        moving = [x for x in self.learners if x.name in self.accounts and self.accounts[x.name].weight]
        for learner in moving:
            ranks.add_gradients(learner.masters.whole)
        for learner in moving:
            _refuse_gap(learner, self.accounts[learner.name], self.learners)
        for learner in moving:
            yield learner.name, self._moved(learner)
        for wire in self.lead.channels if moving else ():
            wire.apply(sum(account.metrics["loss"] for account in self.accounts.values()))

    def _total(self, batch: MicroBatch, logp_M: Tensor, entropy_M: Tensor) -> Tensor:
        """The loss of all policies on a micro-batch."""
        members = [self.examples[i] for i in batch.examples]
        logp_N, entropy_N = (x.index_select(0, batch.prediction_N) for x in (logp_M, entropy_M))
        total = logp_N.new_zeros(())
        for name, mine, at in _apart(members, self.lead.device):
            outputs = Outputs(logp_N, entropy_N)
            if at is not None:
                outputs = Outputs(logp_N.index_select(0, at), entropy_N.index_select(0, at))
            total = total + self._loss(self.accounts.setdefault(name, _Account()), mine, outputs)
        return total

    def _loss(self, account: _Account, examples: Sequence[Example], outputs: Outputs) -> Tensor:
        """The loss of one policy on a micro-batch; it is also added to the policy's account."""
        flat, samples = self.lead.flat, [e.sample for e in examples]
        before = flat(self.old[s.id] for s in samples) if self.old else outputs.logprobs_N.detach()
        sampled = flat(s.logprobs for s in samples)
        spread = _Spread(samples, self.lead.device)
        targets = Targets(
            self._advantages(examples, spread),
            before,
            self._weights(examples, spread),
            flat(e.reference or () for e in examples) if examples[0].reference else None,
            sampled,
            spread(list(range(len(samples)))),
        )
        value, metrics = self.objective.loss(targets, outputs)
        self._compare(account, before - sampled, examples)
        if self.objective.watch is not None:
            self.objective.watch.see(samples, before - sampled, outputs.entropy_N.detach())
        account.unread.append(("weight", targets.weights_N.sum()))
        if self.first and self.old:
            stray = (outputs.logprobs_N.detach() - before).abs().nan_to_num(math.inf, posinf=math.inf)
            account.unread += [("ratio", stray.max()), ("strayed", stray.sum())]
        account.unread += [*metrics.items(), ("loss", value.detach())]
        return value

    def _compare(self, account: _Account, apart: Tensor, examples: Sequence[Example]) -> None:
        """Account for `apart`, log π_old − log π_rollout. For tokens sampled with the newest weights, engine and
        learner must agree. For older tokens, it measures how far the policy has moved since."""
        if any(e.lags is not None for e in examples):
            lags = np.array([lag for e in examples for lag in e.lags or (0,) * len(e.sample.action)])
            stale, fresh = (np.flatnonzero(found) for found in (lags > 0, lags <= 0))
            # log π_rollout − log π_old: the samples come from the rollout policy
            moved = -apart.index_select(0, to_device(stale, apart.device))
            account.stale += len(stale)
            account.unread.append(("stale_kl", (torch.expm1(-moved) + moved).sum()))
            apart = apart.index_select(0, to_device(fresh, apart.device))
        if len(apart):
            apart = apart.abs().nan_to_num(math.inf, posinf=math.inf)
            account.unread += [("gap", apart.max()), ("far", apart.sum())]
            account.tokens += len(apart)

    def _weights(self, examples: Sequence[Example], spread: _Spread) -> Tensor:
        weights = spread([self.weight[e.sample.id] for e in examples])
        if all(e.lags is None for e in examples):
            return weights
        limit = self.objective.staleness
        counts = [lag <= limit for e in examples for lag in e.lags or (0,) * len(e.sample.action)]
        return weights * to_device(np.array(counts), weights.device)

    def _advantages(self, examples: Sequence[Example], spread: _Spread) -> Tensor:
        if any(isinstance(e.advantage, tuple) for e in examples):
            return self.lead.flat(
                e.advantage if isinstance(e.advantage, tuple) else [e.advantage or 0.0] * len(e.sample.action)
                for e in examples
            )
        return spread([e.advantage or 0.0 for e in examples])

    def _moved(self, learner: Stepping) -> dict[str, float]:
        account = self.accounts[learner.name]
        norm = learner.apply(account.metrics["loss"])
        gaps = {"gap": account.gap, "gap_mean": account.far / max(1, account.tokens)}
        if self.first:
            both = account.tokens + account.stale
            gaps |= {"ratio": math.exp(account.ratio), "ratio_mean": math.exp(account.strayed / both)}
        # Means are over the computed tokens: samples with zero advantage may be left out, and with a constant length
        # the weights do not add up to 1.
        means = {key: value / (account.weight or 1.0) for key, value in account.metrics.items() if key != "loss"}
        return {"loss": account.metrics["loss"], **means, **gaps, "grad_norm": norm}


class _Spread:
    """Repeat one number per sample for each of its tokens."""

    def __init__(self, samples: Sequence[Sample], device: torch.device) -> None:
        self._lengths, self._device = [len(s.action) for s in samples], device

    def __call__(self, values: Sequence[object]) -> Tensor:
        # Repeated on the host. On the device, the host would have to wait to learn the size of the result.
        each = np.repeat(np.asarray(values), self._lengths)
        return to_device(each.astype(np.float32) if each.dtype == np.float64 else each, self._device)


def _apart(examples: Sequence[Example], device: torch.device) -> Iterator[tuple[str, list[Example], Tensor | None]]:
    """Each policy's examples, and the indices of their tokens among all tokens (None: all of them)."""
    if len({e.policy for e in examples}) == 1:
        yield examples[0].policy, list(examples), None
        return
    by_name: dict[str, tuple[list[Example], list[range]]] = {}
    at = 0
    for example in examples:
        mine, spans = by_name.setdefault(example.policy, ([], []))
        mine.append(example)
        spans.append(range(at, at + len(example.sample.action)))
        at += len(example.sample.action)
    for name, (mine, spans) in by_name.items():
        yield name, mine, to_device(np.concatenate([np.arange(s.start, s.stop) for s in spans]), device)


def _refuse_gap(learner: Stepping, account: _Account, everyone: Sequence[Stepping]) -> None:
    """Promise 2: raise if engine and learner disagree. In bf16 single tokens may differ much, so there the mean is
    tested. Also raise if the ratio to the policy before the step is not 1 in the first minibatch."""
    config, rounded = learner.config, learner.rounded
    key, limit = ("gap_mean_stop", config.gap_mean_stop) if rounded else ("gap_stop", config.gap_stop)
    gap, stray = (
        (account.far / max(1, account.tokens), account.strayed / max(1, account.tokens + account.stale))
        if rounded
        else (account.gap, account.ratio)
    )
    if max(gap, stray) <= limit:
        return
    for optimizer in [*(x.optimizer for x in everyone), *(c.optimizer for c in learner.channels)]:
        optimizer.zero_grad(set_to_none=True)
    if gap > limit:
        raise GuardError(
            f"policy '{learner.name}': engine and learner disagree by {gap:.2e} in log-prob, more than train.{key} "
            f"({limit:g}); the samples were not drawn from these weights, or rounding differs too much. See "
            "docs/troubleshooting.md, or set dtype = 'float32'."
        )
    raise GuardError(
        f"policy '{learner.name}': at the first minibatch the ratio to the policy before the step is "
        f"{math.exp(stray):.4f}, but it should be 1, because no weight has changed yet; the limit is train.{key} "
        f"({limit:g} in log-prob). Two passes over the same tokens disagree; set dtype = 'float32', or raise the limit "
        "if rounding explains the difference."
    )
