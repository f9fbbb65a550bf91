"""Functions for the engine's tests: send requests, compare with a plain forward pass, check that nothing is left."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from families import WORDS
from torch import Tensor

from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.models.adapter import Adapter, sizes
from interplay.models.stacked import layers
from interplay.types import Completion


def words(rng: random.Random, length: int) -> tuple[int, ...]:
    return tuple(rng.randrange(2, WORDS) for _ in range(length))


def ask(key: int, prompt: tuple[int, ...], max_tokens: int = 8, temperature: float = 1.0, **more: Any) -> Request:
    return Request((key,), prompt, 1000 + key, Sampling(temperature, max_tokens), **more)


def serve(engine: LocalEngine, requests: Sequence[Request]) -> list[Completion]:
    async def all_at_once() -> list[Completion]:
        return await asyncio.gather(*(engine.generate(r) for r in requests))

    return asyncio.run(asyncio.wait_for(all_at_once(), timeout=600))  # a step of an interpreted kernel is slow


class Hold:
    """Stops an engine before the first step for which `when` is true, until `release` is called or `when` is false.

    An engine takes its steps on a thread of its own, and does not wait for the test. Without a hold, all replies may be
    finished before the test's own thread continues on a busy machine."""

    def __init__(self, engine: LocalEngine, when: Callable[[], bool]) -> None:
        self.stopped, self._released = False, threading.Event()
        step = engine.step

        def held() -> list[Callable[[], None]]:
            until = time.monotonic() + 60
            while when() and not self._released.is_set() and time.monotonic() < until:
                self.stopped = True
                time.sleep(0.001)
            return step()

        engine.step = held  # type: ignore[method-assign]

    async def reached(self) -> None:
        """Return when the engine stands still."""
        while not self.stopped:
            await asyncio.sleep(0.001)

    def release(self) -> None:
        self._released.set()


@torch.no_grad()
def full_forward(model: Any, prompt: Sequence[int], action: Sequence[int], temperature: float = 1.0) -> Tensor:
    """The log-prob of each token of the action, one sequence at a time, without a cache."""
    logits = model(torch.tensor([[*prompt, *action]])).logits[0, len(prompt) - 1 : -1].float() / temperature
    return torch.log_softmax(logits, -1)[torch.arange(len(action)), torch.tensor(action)]


def close_to(logprobs: Sequence[float], expected: Tensor) -> None:
    torch.testing.assert_close(torch.tensor(logprobs), expected, atol=1e-4, rtol=0)


def random_adapter(model: Any, rank: int, seed: int, scale: float = 0.5, part: str = "") -> Adapter:
    """Every layer whose name contains `part` gets weights that change the logits visibly."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, layer in layers(model).items():
        if part in name:
            k, n = sizes(layer)
            down, up = torch.randn((rank, k), generator=generator), torch.randn((n, rank), generator=generator)
            weights[name] = (0.2 * down, 0.2 * up)
    return Adapter(rank, scale, weights)


@torch.no_grad()
def merged(model: Any, adapter: Adapter) -> Any:
    """`model` itself, with W + scale · up · down in place of each W."""
    modules: Mapping[str, Any] = dict(model.named_modules())
    for name, (down, up) in adapter.weights.items():
        weight = modules[name].weight
        change = adapter.scale * up @ down
        weight += change if weight.shape == change.shape and isinstance(modules[name], torch.nn.Linear) else change.T
    return model


def empty(engine: LocalEngine) -> bool:
    """After a flush, every block is free again and has no reference."""
    engine.update(engine.version + 1)
    cache = engine.scheduler.cache
    return cache.free == cache.total and not any(cache._refs) and not engine.scheduler._unfinished
