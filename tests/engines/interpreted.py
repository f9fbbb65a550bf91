"""Run by test_kernels.py under TRITON_INTERPRET=1: the plain runner and the GPU's, asked the same."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
from families import WORDS, make

from interplay.engines.engine import Adapter, Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.engines.local.adapters import layers, sizes
from interplay.engines.local.cuda import CudaRunner
from interplay.engines.local.fused import Fused, suits
from interplay.types import Completion


class Eager:
    """Stands in for a CUDA graph: replaying it runs the step."""

    def __init__(self, step: Callable[[], torch.Tensor]) -> None:
        self.step = step

    def replay(self) -> None:
        self.out.copy_(self.step())


class Interpreted(CudaRunner):
    def __init__(self, model: Any, *args: Any, **options: Any) -> None:
        super().__init__(model, *args, **options)
        self.fused = Fused(model) if suits(model) else None  # made for a GPU only, otherwise

    def _capture(self, size: int, sampled: bool, adapters: bool) -> Any:
        graph = Eager(lambda: self._step(size, sampled, adapters))
        saved = self.rows.save()
        self.rows.idle(size)
        graph.out = self._step(size, sampled, adapters).clone()
        self.rows.restore(saved)
        return graph, graph.out


def adapter(model: Any, rank: int, seed: int) -> Adapter:
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, layer in layers(model).items():
        k, n = sizes(layer)
        down, up = torch.randn((rank, k), generator=generator), torch.randn((n, rank), generator=generator)
        weights[name] = (0.2 * down, 0.2 * up)
    return Adapter(rank, 0.5, weights)


def requests(mixed: bool) -> list[Request]:
    rng = random.Random(0)
    prompt = tuple(rng.randrange(2, WORDS) for _ in range(19))
    out = []
    for i in range(4):
        ids = prompt[: rng.randint(1, 19)] + tuple(rng.randrange(2, WORDS) for _ in range(rng.randint(0, 9)))
        heat = [1.0, 0.7, 0.0, 1.0][i]
        who = [None, "a", "b", "b"][i] if mixed else None
        out.append(Request((i,), ids, 1000 + i, Sampling(heat, rng.randint(1, 5), (1, 5)), who))
    out.append(Request((90,), prompt, 7, Sampling(1.0, 1)))
    out.append(Request((91,), prompt, 8, Sampling(1.0, 4)))
    return out


def restricted() -> list[Request]:
    ids = tuple(range(2, 12))
    legal = ((7, 8, 1), (7, 1), (9, 1))
    return [
        Request((0,), ids, 3, Sampling(1.0, 3, (1,)), legal=legal),
        Request((1,), ids, 4, Sampling(1.0, 3, (1,), top_k=3, top_p=0.9, min_p=0.05)),
        Request((2,), ids[:5], 4, Sampling(1.0, 3)),
        Request((3,), ids, 0, Sampling(), forced=(4, 5, 6)),
        Request((4,), ids, 0, Sampling(), "a", forced=(4,)),
    ]


def serve(engine: LocalEngine, wanted: list[Request]) -> list[Completion]:
    async def ask() -> list[Completion]:
        return await asyncio.gather(*(engine.generate(r) for r in wanted))

    return asyncio.run(ask())


def main(family: str) -> None:
    torch.set_num_threads(1)
    plain_model, model = make(family), make(family)
    plain = LocalEngine(plain_model, 4096, 16)
    ours = LocalEngine(model, 4096, 16, prefill_tokens=30)
    ours.runner = Interpreted(model, 4096 // 16 + 1, 8, 256, chunk=3)
    for i, wanted in enumerate((requests(mixed=True), restricted())):
        for engine, base in ((plain, plain_model), (ours, model)):
            engine.load("a", adapter(base, 4, 1), i)
            engine.load("b", adapter(base, 6, 2 + i), i)
        expected, found = serve(plain, wanted), serve(ours, wanted)
        for request, a, b in zip(wanted, expected, found, strict=True):
            assert (a.tokens, a.stop) == (b.tokens, b.stop), (request, a, b)
            torch.testing.assert_close(torch.tensor(a.logprobs), torch.tensor(b.logprobs), atol=2e-4, rtol=1e-3)
    for engine in (plain, ours):
        engine.publish(1)
        assert engine.scheduler.cache.free == engine.scheduler.cache.total
        engine.close()
    print("equal")


main(sys.argv[1])
