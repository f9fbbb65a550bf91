"""Run by test_cuda.py under TRITON_INTERPRET=1: compares the plain runner with the GPU runner."""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

sys.path.insert(0, str(Path(__file__).parent))
import quick_triton  # noqa: F401
from families import WORDS, make
from helpers import random_adapter, serve
from transformers import AutoModelForCausalLM

from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine, cuda, pack
from interplay.engines.local.cuda import CudaRunner
from interplay.engines.local.legal_nodes import LegalNodes
from interplay.engines.local.speculation import Speculation
from interplay.errors import EngineError
from interplay.models import kernels
from interplay.models import plain as torch_only
from interplay.models.adapter import Adapter
from interplay.models.fused import Block, Fused, suits


class Eager:
    """Replaces a CUDA graph: replaying it runs the step. `out` are the hidden states of the last replay."""

    def __init__(self, step: Callable[[], torch.Tensor], rows: int, width: int) -> None:
        self.step, self.out = step, torch.zeros(rows, width)

    def replay(self) -> None:
        self.out.copy_(self.step())


class EagerRecorder:
    """Takes the place of what captures graphs of steps; the first argument of a step is its number of rows."""

    def __init__(self, width: int) -> None:
        self.width, self.warms_up = width, False

    def record(self, step: Any) -> Any:
        graph = Eager(step, step.args[0], self.width)
        if self.warms_up:
            graph.replay()
            self.warms_up = False
        return graph, graph.out

    def renew(self) -> None:
        pass


class Interpreted(CudaRunner):
    def __init__(self, model: Any, *args: Any, **options: Any) -> None:
        super().__init__(model, *args, **options)
        self.fused = Fused(model, kernels) if suits(model) else None  # made for a GPU only, otherwise
        self.passed = list[tuple[int, int]]()  # sequences and tokens of each pass over new tokens
        self._sent: list[torch.Tensor] = []
        self._recorder = EagerRecorder(self.head.weight.shape[1])

    def _begin(self) -> None:
        pass

    def _send(self, count: int) -> None:
        """The results reach the host only when it waits for them."""
        self._sent = [part[:count].clone() for part in self._sampled]
        for part in self._results:
            part.fill_(-1)

    def _read(self, count: int) -> Any:
        for target, source in zip(self._results, self._sent, strict=True):
            target[:count].copy_(source)
        return [part[:count].numpy() for part in self._results]

    def _place(self, lookup: Any, size: int, drafts: Any) -> bool:
        placed = super()._place(lookup, size, drafts)
        for sequence in self._seated:  # the text in which drafts are looked up has every token
            at = self._texts._places[sequence][2]
            assert lookup.text[at : at + len(sequence.tokens)].tolist() == sequence.tokens
        return placed

    def _pass(self, new: Any) -> Any:
        self.passed.append((len(new), sum(len(n.ids) for n in new)))
        return super()._pass(new)

    def _capture(self, size: int, sampled: int, adapters: bool) -> Any:
        self._recorder.warms_up = all(known != sampled for _, known, _ in self._graphs)  # the first of each kind
        return super()._capture(size, sampled, adapters)


def few_programs() -> None:
    """Each program of a kernel is slow Python here: few parts per context, yet whole ones and cut ones both, and small
    passes over new tokens, so that some requests need several of them."""
    kernels.attention.decode_splits = lambda batch, groups: 2 if batch <= 4 else 1
    kernels.adapters.FEW_TILE = kernels.adapters.MANY_TILE
    kernels.products._wide_tiles = lambda N, K: kernels.products._Tiles(128, 64, 3)
    pack.MOST, pack.SEQUENCES = 24, 3
    cuda.padded = lambda tokens: -(-tokens // 8) * 8


def requests() -> list[Request]:
    rng = random.Random(0)
    prompt = tuple(rng.randrange(2, WORDS) for _ in range(19))
    out = []
    for i in range(4):
        ids = prompt[: rng.randint(1, 19)] + tuple(rng.randrange(2, WORDS) for _ in range(rng.randint(0, 9)))
        heat = [1.0, 0.7, 0.0, 1.0][i]
        who = [None, "a", "b", "b"][i]
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
        *(
            Request((5, i), (*ids * 4, *ids[:i]), 0, Sampling(), who, forced=(4, 5, 6))
            for who in (None, "a")
            for i in (0, 1, 8)
        ),
    ]


def with_masks(plain: LocalEngine, ours: LocalEngine) -> None:
    """Masked replies are sampled in the graph, beside others. There is room for few tries at once, and none for one of
    them, which is sampled in plain torch."""
    few = ((30, 8, 1), (7, 9, 1), (7, 40, 41, 1), (12, 1))
    many = tuple((a, b, 1) for a in (50, 9, 33) for b in range(60, 66))
    too_many = tuple((a, b, 1) for a in range(10, 20) for b in range(60, 66))
    runner, slow = ours.runner, list[int]()
    runner._legal = LegalNodes(kernels.Tries(*(part[:60] for part in runner.rows.tries)))
    sampled = runner._one_by_one
    runner._one_by_one = lambda *given: (slow.append(1), sampled(*given))[1]
    prompt = tuple(range(20, 40))

    def ask(i: int, legal: Any, heat: float = 1.0, who: str | None = None) -> Request:
        return Request((i,), prompt[: 9 + i], 70 + i, Sampling(heat, 4 + i, (8, 9)), who, legal=legal)

    for round in (
        [ask(0, few), ask(1, ()), ask(2, many, 0.7, "a"), ask(3, few, 0.0), ask(4, few), ask(5, many)],
        [ask(6, many[:9]), ask(7, few[:2]), ask(8, few[1:3], 0.7)],
        [ask(9, many[9:]), ask(10, many[1:])],
    ):
        same(plain, ours, round)
    assert not slow
    same(plain, ours, [ask(9, few), ask(10, too_many), ask(0, ())])
    assert slow
    same(plain, ours, [ask(0, few)])
    runner._one_by_one = sampled


class Numbers:
    """The part of a tokenizer that stop strings need: every token is its number in brackets."""

    def decode(self, tokens: list[int], **options: Any) -> str:
        return "".join(f"[{t}]" for t in tokens)


def same(plain: LocalEngine, ours: LocalEngine, wanted: list[Request]) -> None:
    for request, a, b in zip(wanted, serve(plain, wanted), serve(ours, wanted), strict=True):
        assert (a.tokens, a.stop, a.versions) == (b.tokens, b.stop, b.versions), (request, a, b)
        torch.testing.assert_close(torch.tensor(a.logprobs), torch.tensor(b.logprobs), atol=2e-4, rtol=1e-3)


def with_drafts(plain: LocalEngine, ours: LocalEngine) -> None:
    """A second epoch with the same random numbers, in which the first one's replies are right drafts, and a third one
    with others. Another reply begins in the middle: it joins a step that has drafts."""
    ours.speculation = Speculation("on", 3)
    prompt = tuple(range(20, 40))
    legal = ((7, 8, 9, 10, 1), (7, 8, 9, 11, 1))
    asked = [
        Request((0,), prompt, 11, Sampling(0.5, 5, (1,))),
        Request((1,), prompt, 12, Sampling(0.5, 5, (1,)), "a"),
        Request((2,), prompt[:9] * 3, 13, Sampling(0.5, 4, (1,))),  # in a later step than the others
    ]
    for epoch in (0, 0, 1):
        same(plain, ours, [replace(r, seed=r.seed + 50 * epoch) for r in asked])
    stats = ours.stats()
    assert 0 < stats.accepted_tokens < stats.drafted_tokens, stats
    longer = replace(asked[0], sampling=Sampling(0.5, 14))  # it begins before the masked reply, and goes on after it
    same(plain, ours, [longer, replace(asked[0], key=(3,), ids=prompt[:13] * 5, seed=4, legal=legal)])
    assert ours.stats().accepted_tokens > stats.accepted_tokens
    ours.speculation = None


def with_limits(plain: LocalEngine, ours: LocalEngine) -> None:
    """Stop strings, masks and replies that are scored."""
    free = Request((0,), (9, 8, 7), 5, Sampling(1.0, 8))
    a, b = serve(plain, [free])[0].tokens[3:5]  # the host learns of it when the GPU is tokens past it
    same(plain, ours, [replace(free, sampling=Sampling(1.0, 8, stop_strings=(f"{a}][{b}",))), replace(free, seed=6)])
    same(plain, ours, restricted())


def with_few_tokens(plain: LocalEngine, ours: LocalEngine) -> None:
    """Replies to be scored: with their prompt, after a prompt in the cache that ends in the middle of a block, and
    while other requests are sampled. The end of such a prompt is computed again, together with the reply."""
    prompt, passed = tuple(range(40, 58)), ours.runner.passed
    for ids, again in ((prompt[:4], 4), (prompt, 2)):
        same(plain, ours, [Request((0,), ids, 1, Sampling(1.0, 3))])
        for who in (None, "a"):
            passed.clear()
            same(plain, ours, [Request((1,), ids, 0, Sampling(), who, forced=(4, 5, 6))])
            cached = who is None
            assert passed == [(1, again + 2)] if cached else passed == [(2, len(ids) + again + 2)]
    passed.clear()
    same(
        plain,
        ours,
        [Request((2,), prompt[:3], 2, Sampling(1.0, 6)), Request((3,), prompt[1:4], 0, Sampling(), forced=(4, 5))],
    )
    assert passed == [(3, 3 + 3 + 3 + 1)]  # two prompts, the second one again, and the first token of its reply


def with_several_passes(plain: LocalEngine, ours: LocalEngine) -> None:
    """More tokens and sequences than fit into one pass: a prompt is cut, and some sequences are in a later pass."""
    ours.runner.passed.clear()
    ids = tuple(range(30, 58))
    wanted = [Request((i,), ids[i:], i, Sampling(1.0, 2), "a" if i == 2 else None) for i in (0, 2)]
    wanted += [Request((i,), ids[i : i + 3], i, Sampling(1.0, 2)) for i in range(4, 9)]
    same(plain, ours, wanted)
    tokens, sequences = ([p[i] for p in ours.runner.passed] for i in (1, 0))
    assert pack.MOST in tokens and pack.SEQUENCES in sequences, ours.runner.passed


def with_other_adapters(plain: LocalEngine, ours: LocalEngine) -> None:
    for engine in (plain, ours):
        base = engine.runner.model
        engine.load("b", random_adapter(base, 6, 3), 1)
        engine.unload("a")
        engine.load("a", random_adapter(base, 62, 4, scale=0.1), 2)  # past the room there was: everything moves
    assert not ours.runner._graphs and not ours.runner._passes
    same(plain, ours, requests()[1:4])


def with_small_adapters() -> None:
    """An adapter may add less than one step of the output's precision. On average over many outputs, it must not be
    lost. This is tested in fp16, because the interpreter computes wrong products in bf16."""
    generator = torch.Generator().manual_seed(0)
    T, K, N, R = 64, 32, 64, 16
    x, weight, down = ((torch.randn(shape, generator=generator) / K**0.5).half() for shape in ((T, K), (N, K), (R, K)))
    up = (torch.randn((R, N), generator=generator) * 2e-5).half()
    block = Block((), torch.cat((weight, down)), N, None, (0,), up)
    bank = SimpleNamespace(owner=torch.zeros(R, dtype=torch.int32), scales=torch.full((R,), 2.0))
    out = kernels.adapted(x, block, bank, torch.zeros(T, dtype=torch.int32))
    base, added = x.float() @ weight.float().t(), 2 * (x.float() @ down.float().t()) @ up.float()
    assert added.abs().mean() < 2**-11 * base.abs().mean()
    assert out.dtype is torch.half
    kept = ((out.float() - base) * added).sum() / (added * added).sum()
    # The rounding error of an output is spread evenly over 2^-11 of its size: the standard error of `kept`.
    error = 2**-11 / 3**0.5 * base.pow(2).mean().sqrt() / (added.pow(2).sum().sqrt())
    assert abs(kept - 1) < 4 * error < 0.4, (kept, error)


def with_gates() -> None:
    """Gate, up, bias and adapters in one kernel are, to the bit, the rounded outputs and then `silu_mul`. Sums over
    many inputs come in parts."""
    for K, parts in ((16, 1), (296, 2)):
        _with_gates(K, parts)


def _with_gates(K: int, parts: int) -> None:
    generator = torch.Generator().manual_seed(1)
    T, N, R = 37, 96, 5
    draw = lambda *shape: torch.randn(shape, generator=generator)  # noqa: E731
    block = Block((), draw(2 * N + 2 * R, K), 2 * N, draw(2 * N + 2 * R), (0, N), draw(2 * R, 2 * N))
    assert block.up is not None and block.bias is not None
    block.up[:R, N:], block.up[R:, :N], block.bias[2 * N :] = 0, 0, 0  # as in a model: each layer's own columns
    bank = SimpleNamespace(owner=torch.tensor([0, 0, 1, 1, -2], dtype=torch.int32), scales=draw(R))
    who = torch.randint(-1, 2, (T,), generator=generator, dtype=torch.int32)
    x = draw(T, K) / K**0.5
    tiles = patch.object(kernels.products, "_wide_tiles", lambda N, K: kernels.products._Tiles(64, 128, 3, 100))
    with tiles:
        assert kernels.products.wide_parts(x, block.storage, block.rows).shape[0] == parts
        apart = kernels.adapted(x, block, bank, who)
        assert torch.equal(kernels.adapted(x, block, bank, who, gated=True), kernels.silu_mul(apart, N))
    torch.testing.assert_close(apart, torch_only.adapted(x, block, bank, who), atol=1e-4, rtol=1e-4)


def with_few_rows() -> None:
    """Products of few rows, whose sums may be split, are those of plain torch, and `add_norm` adds their parts."""
    generator = torch.Generator().manual_seed(2)
    draw = lambda *shape: torch.randn(shape, generator=generator)  # noqa: E731
    for T, K, N in ((3, 296, 72), (70, 40, 33), (5, 648, 100)):
        x, residual = draw(T, K), draw(T, N)
        with_bias, without = (Block((), draw(2 * N + 7, K), 2 * N, b, (0,)) for b in (draw(2 * N + 7), None))
        half = Block((), without.storage, N, None, (0,))
        for block in (with_bias, without):
            for gated in (False, True):
                wanted = torch_only.joined(x, block, gated)
                torch.testing.assert_close(kernels.joined(x, block, gated), wanted, atol=1e-4, rtol=1e-4)
        parts = kernels.joined(x, half, parts=True)
        assert parts.shape == (1 if K < 256 else 2 if K < 512 else 4, T, N)
        torch.testing.assert_close(parts.sum(0), torch_only.joined(x, half), atol=1e-4, rtol=1e-4)
        sums = residual.clone(), residual.clone()
        normed = [
            module.add_norm(given, total, torch.ones(N), 1e-6)
            for module, given, total in zip((kernels, torch_only), (parts, parts.sum(0)), sums, strict=True)
        ]
        torch.testing.assert_close(normed[0], normed[1], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(sums[0], sums[1], atol=1e-5, rtol=1e-5)


def main(family: str) -> None:
    few_programs()
    torch.set_num_threads(1)
    # Two layers show that each has its own cache and kind; for the other families, one is compared.
    thorough = family in ("qwen2", "gpt2")  # a fused one, and one as it is
    plain_model, model = (make(family, layers=2 if thorough or family == "gemma3" else 1) for _ in range(2))
    numbers: Any = Numbers()
    plain = LocalEngine(plain_model, 4096, 16, tokenizer=numbers)
    ours = LocalEngine(model, 4096, 16, prefill_tokens=30, tokenizer=numbers)
    ours.runner = Interpreted(model, 4096 // 16 + 1, 16, 256, chunk=4)
    both = ((plain, plain_model), (ours, model))
    for engine, base in both:
        with contextlib.suppress(EngineError):
            engine.load("a", Adapter(1, 1.0, {"nowhere": (torch.zeros(1, 1), torch.zeros(1, 1))}), 0)
        engine.load("a", random_adapter(base, 4, 1), 0)
        engine.load("b", random_adapter(base, 6, 2, part="mlp"), 0)
    same(plain, ours, requests())
    if thorough:  # the rest does not depend on the layers
        with_drafts(plain, ours)
        with_limits(plain, ours)
        with_masks(plain, ours)
        with_few_tokens(plain, ours)
        with_several_passes(plain, ours)
        with_other_adapters(plain, ours)
    if family == "gemma3":  # it has windows
        with_several_passes(plain, ours)
    if family == "qwen2":  # the kernels alone
        with_small_adapters()
        with_gates()
        with_few_rows()
    for engine, _ in both:
        engine.update(1)
        assert engine.scheduler.cache.free == engine.scheduler.cache.total
        engine.close()
    with tempfile.TemporaryDirectory() as folder:  # parameters that are views of one storage are saved all the same
        model.config._attn_implementation = "sdpa"
        model.save_pretrained(folder)
        saved = AutoModelForCausalLM.from_pretrained(folder)
        for name, parameter in plain_model.named_parameters():
            assert torch.equal(saved.get_parameter(name), parameter), name
    print("equal")


if __name__ == "__main__":
    main(sys.argv[1])
