"""Run by test_senses.py under TRITON_INTERPRET=1: the GPU's engine and learner with pictures, and the plain ones."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
import quick_triton  # noqa: F401
from helpers import random_adapter, serve
from interpreted import Interpreted, few_programs
from sighted import loaded, picture

from interplay.agents.render import Renderer
from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.engines.local.speculation import Speculation
from interplay.models import kernels
from interplay.models.eye import Eye
from interplay.models.fused import Fused, suits
from interplay.training import packed
from interplay.training.batch import micro_batches
from interplay.training.forward import AdapterMixer, _overlay, _turn, hidden_states
from interplay.training.tries import Example, lay
from interplay.types import Message, Sample


def gradients(model: Any, wanted: list[Example], mixed: dict[str, Any], ours: bool) -> list[torch.Tensor]:
    """The hidden states of all predictions, and the gradients of their weighted sum."""
    mixer, found = AdapterMixer(model, mixed), []
    trie = lay(wanted, row_limit=256)
    _turn(model, trie)
    for batch in micro_batches(trie, wanted, 256, torch.device("cpu"), True, ours):
        if ours:
            states = packed.hidden_states(
                Fused(model, kernels), batch, mixer.mix(batch), save=True, overlay=_overlay(model, batch)
            )
            states = states.index_select(0, batch.row_M * batch.ids_BL.shape[1] + batch.column_M)
        else:
            states = hidden_states(model, batch, mixer.mix(batch))
        states = states.index_select(0, batch.prediction_N)
        weight = torch.randn(states.shape, generator=torch.Generator().manual_seed(3))
        (states * weight).sum().backward()
        found += [states[i] for i in range(len(states))]
    mixer.collect()
    tensors = [t for a in mixed.values() for pair in a.weights.values() for t in pair] or list(model.parameters())
    out = [torch.stack(found).detach(), *(t.grad.clone() for t in tensors if t.grad is not None)]
    for tensor in tensors:
        tensor.grad = None
    return out


def same_features(model: Any) -> None:
    """The vision encoder with the GPU's kernels, for pictures of two sizes."""
    generator = torch.Generator().manual_seed(2)
    grids = [(1, 4, 6), (1, 8, 4)]
    pictures = [
        {"pixel_values": torch.randn(h * w, 384, generator=generator), "image_grid_thw": torch.tensor([[t, h, w]])}
        for t, h, w in grids
    ]
    plain, ours = Eye(model), Eye(model)
    ours.kernels = kernels
    for a, b in zip(plain.features(pictures), ours.features(pictures), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


def main(family: str) -> None:
    few_programs()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        own = loaded(family, Path(folder))
    model = own.model
    assert suits(model)
    with torch.no_grad():
        same_features(model)
    renderer = Renderer(own.tokenizer, own.stop_ids, own.senses)
    short = Message("system", ".")  # otherwise the template writes a longer one, and every token is slow Python here
    prompts = [
        renderer.prompt((short, Message("user", text, media=tuple(map(picture, seeds)))))
        for text, seeds in (("see", (1, 2)), ("see", (3,)), ("text", ()))
    ]
    wanted = [
        Request((i,), p.ids, 7 + i, Sampling(1.0, 3), media=p.media, adapter=name)
        for i, (p, name) in enumerate(zip(prompts, ("a", None, "a"), strict=True))
    ]
    adapter = random_adapter(model, 2, 5)
    answers = []
    for gpu in (False, True):
        engine = LocalEngine(model, block_size=16, prefill_tokens=13)
        if gpu:
            engine.runner = Interpreted(model, 4096 // 16 + 1, 16, 256, chunk=3)
        engine.load("a", adapter, 1)
        answers.append(serve(engine, wanted))
        if gpu:  # one with more tokens, twice, so that its first reply is the draft of the second
            engine.speculation = Speculation("on", 2)
            longer = replace(wanted[0], sampling=Sampling(1.0, 5))
            (first,), (again,) = (serve(engine, [longer]) for _ in range(2))
            assert first.tokens == again.tokens and first.tokens[:3] == answers[0][0].tokens
            torch.testing.assert_close(first.logprobs, again.logprobs, atol=1e-4, rtol=0)
            assert engine.stats().accepted_tokens >= 2
        engine.close()
    for plain, ours in zip(*answers, strict=True):
        assert plain.tokens == ours.tokens
        torch.testing.assert_close(torch.tensor(plain.logprobs), torch.tensor(ours.logprobs), atol=1e-4, rtol=0)
    samples = [
        Example("a", Sample(str(r.key), r.ids, a.tokens, a.logprobs, (), "", media=r.media))
        for r, a in zip(wanted, answers[0], strict=True)
    ]
    for mixed in ({}, {"a": random_adapter(model, 2, 5)}):
        model.requires_grad_(not mixed)
        for a in mixed.values():
            for pair in a.weights.values():
                for tensor in pair:
                    tensor.requires_grad_()
        plain, ours = (gradients(model, samples, mixed, kind) for kind in (False, True))
        assert len(plain) == len(ours) > 1
        for a, b in zip(plain, ours, strict=True):
            assert (a - b).norm() <= 1e-4 + 1e-4 * a.norm(), (a.shape, (a - b).norm(), a.norm())
    print("equal")


if __name__ == "__main__":
    main(sys.argv[1])
