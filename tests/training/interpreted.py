"""Run by test_packed.py under TRITON_INTERPRET=1: the learner's fused kernels and plain autograd, asked the same.

    python interpreted.py FAMILY [STORE]

With `STORE`, a file through which processes find each other, the model of the fused kernels is sharded with FSDP2.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1] / "engines"))
import quick_triton  # noqa: F401
from families import WORDS, make

from interplay.models import kernels
from interplay.models.adapter import Adapter
from interplay.models.fused import Fused, suits
from interplay.models.lora import new_adapter
from interplay.training import logprobs, packed
from interplay.training.batch import MicroBatch, micro_batches
from interplay.training.forward import AdapterMixer, predict
from interplay.training.masters import Masters
from interplay.training.ranks import ALONE, ranks_of, whole_tensor
from interplay.training.shards import shard
from interplay.training.tries import Example, lay
from interplay.types import Sample

HEAT = 0.8


def examples() -> list[Example]:
    rng = random.Random(0)
    out: list[Example] = []

    def some(count: int) -> tuple[int, ...]:
        return tuple(rng.randrange(2, WORDS) for _ in range(count))

    def say(policy: str, prompt: tuple[int, ...], reply: int, extends: str | None = None) -> None:
        sample = Sample(f"t{len(out)}", prompt, some(reply), (0.0,) * reply, (0,) * reply, "", extends=extends)
        out.append(Example(policy, sample))

    for policy, prompt, reply in (("a", 5, 4), ("b", 1, 1), ("a", 17, 9), ("b", 8, 3)):
        say(policy, some(prompt), reply)
    shared = some(11)  # three replies to one prompt; to one of them a next turn, which is answered twice
    for reply in (2, 1, 5):
        say("b", shared, reply)
    longer = shared + out[-1].sample.action + some(3)
    for reply in (4, 2):
        say("b", longer, reply, out[6].sample.id)
    return out


def adapters(model: Any) -> dict[str, Adapter]:
    out = {}
    for i, (name, rank) in enumerate((("a", 3), ("b", 5))):
        fresh = new_adapter(model, rank, 8.0, [], i)
        generator = torch.Generator().manual_seed(i)
        weights = {
            layer: (down.requires_grad_(), (0.1 * torch.randn(up.shape, generator=generator)).requires_grad_())
            for layer, (down, up) in fresh.weights.items()
        }
        out[name] = Adapter(fresh.rank, fresh.scale, weights)
    return out


def fused_predict(model: Any, batch: MicroBatch, mix: Any, save: bool) -> tuple[Tensor, Tensor]:
    assert batch.spans is not None
    if ranks_of(model) is not ALONE:
        return predict(model, batch, HEAT, mix, save)
    states = packed.hidden_states(Fused(model, kernels), batch, mix, save)
    at = batch.row_M * batch.ids_BL.shape[1] + batch.column_M
    head = model.get_output_embeddings().weight
    return logprobs.LogProbs.apply(states.index_select(0, at), head, batch.target_M, HEAT)


def gradients(
    model: Any, lora: bool, entropy: float, ours: bool, sharded: bool = False
) -> tuple[list[Tensor], list[Tensor]]:
    """Log-probs and entropies, and the gradients of everything that is trained."""
    model.requires_grad_(not lora)
    mixed = adapters(model) if lora else {}
    if sharded:
        shard(model, "cpu", keep=entropy > 0 and not lora, frozen=False)
    # With masters, gradients of weights do not come from autograd.
    masters = Masters(model.parameters()) if ours and not lora and not sharded else None
    mixer = AdapterMixer(model, mixed)
    wanted = examples()
    found = []
    generator = torch.Generator().manual_seed(7)
    weights = [torch.randn(len(e.sample.action), generator=generator) for e in wanted]
    trie = lay(wanted, row_limit=64)
    assert any(row.branches for row in trie.rows)
    for batch in micro_batches(trie, wanted, 40, torch.device("cpu"), True, ours):
        if ours:
            logp, spread = fused_predict(model, batch, mixer.mix(batch), entropy > 0)
        else:
            logp, spread = predict(model, batch, HEAT, mixer.mix(batch))
        logp, spread = (x.index_select(0, batch.prediction_N) for x in (logp, spread))
        weight = torch.cat([weights[i] for i in batch.examples])
        loss = (logp * weight).sum()
        if entropy:
            loss = loss + entropy * (spread * weight).sum()
        loss.backward()
        if masters is not None:
            masters.collect()
        found += [(batch.examples, logp.detach(), spread.detach())]
    mixer.collect()
    order = [(i, n) for members, _, _ in found for i in members for n in range(len(wanted[i].sample.action))]
    values = [torch.cat([f[k] for f in found])[sorted(range(len(order)), key=order.__getitem__)] for k in (1, 2)]
    if lora:
        grads = [t.grad for a in mixed.values() for pair in a.weights.values() for t in pair]
    else:
        ranks_of(model).release()  # gathered weights have no gradients
        grads = [None if p.grad is None else whole_tensor(p.grad) for p in model.parameters()]
    return values, [g for g in grads if g is not None]


def main(family: str, store: str | None = None) -> None:
    torch.set_num_threads(1)
    if store:
        torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    assert suits(make(family))
    logprobs.GPU_LOGITS = 8 * WORDS  # so that log-probs come in several parts
    kinds = [(lora, entropy) for lora in (False, True) for entropy in (0.0, 0.3)]
    if store:
        kinds = [kinds[0], kinds[1], kinds[3]]
    elif family != "qwen2":  # entropy belongs to the log-probs, which come after the layers of every family
        kinds = [kinds[1], kinds[2]]
    for lora, entropy in kinds:
        layers = 1 if entropy else 2  # the entropy comes after the layers, which are those of the other case
        plain = gradients(make(family, layers=layers), lora, entropy, ours=False)
        ours = gradients(make(family, layers=layers), lora, entropy, ours=True, sharded=bool(store))
        for a, b in zip(plain[0], ours[0], strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
        assert len(plain[1]) == len(ours[1]) > 0
        for a, b in zip(plain[1], ours[1], strict=True):
            assert (a - b).norm() <= 1e-5 + 1e-4 * a.norm(), (lora, entropy, a.shape, (a - b).norm(), a.norm())
    print("equal", flush=True)
    os._exit(0)  # threads of gloo that still run at a usual exit may end the process by SIGABRT


main(*sys.argv[1:])
