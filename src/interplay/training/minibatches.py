"""Split a batch into optimiser steps, weigh the tokens of each, and compute the current learning rate."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from interplay.config import TrainSection
from interplay.training.tries import Example
from interplay.types import seed_of


def minibatches(examples: Sequence[Example], config: TrainSection, seed: int) -> list[list[Example]]:
    """The examples of each optimiser step: `epochs` passes, each split into shuffled `minibatches`.

    With `whole_decisions`, the replies to one decision are in the same step, which compares them and computes their
    prompt only once."""
    groups: dict[str, list[int]] = {}
    for i, example in enumerate(examples):
        groups.setdefault((config.whole_decisions and example.decision) or str(i), []).append(i)
    decisions = list(groups.values())
    out: list[list[Example]] = []
    for epoch in range(config.epochs if examples else 0):
        order = list(range(len(decisions)))
        if config.minibatches > 1:
            random.Random(seed_of(seed, epoch)).shuffle(order)
        size = math.ceil(len(decisions) / config.minibatches)
        for k in range(0, len(order), size):
            taken = sorted(i for d in order[k : k + size] for i in decisions[d])
            out.append([examples[i] for i in taken])
    return out


def token_weights(examples: Sequence[Example], average: str | int, staleness: int = 0) -> dict[str, float]:
    """The weight of one token of each sample, by the sample's id. The weights of all tokens add up to 1. (If `average`
    is a constant length, they do so only if each sample has that many tokens.) An example counts as `share` samples.
    Tokens more than `staleness` training steps old do not count."""
    counts = {e.sample.id: _counted(e, staleness) for e in examples}
    shares = {e.sample.id: e.share if counts[e.sample.id] else 0.0 for e in examples}
    left = sum(shares.values())
    if isinstance(average, int):
        return {name: share / (average * left) if share else 0.0 for name, share in shares.items()}
    if average == "turn":
        return {name: share / (counts[name] * left) if share else 0.0 for name, share in shares.items()}
    total = sum(share * counts[name] for name, share in shares.items())
    return {name: share / total if share else 0.0 for name, share in shares.items()}


def _counted(example: Example, staleness: int) -> int:
    if example.lags is None:
        return len(example.sample.action)
    return sum(lag <= staleness for lag in example.lags)


def rate_factor(config: TrainSection, step: int) -> float:
    """The factor on the learning rate at a step."""
    if step < config.warmup_steps:
        return (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return 1.0
    done = min(1.0, (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps))
    shape = 1.0 - done if config.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return config.final_lr + (1 - config.final_lr) * shape
