"""Measures which share of the GPU's matrix rate the learner uses for training.

    python benchmarks/learner.py                     one GPU: Qwen2.5-0.5B shape, bf16, packed sequences of 4,096 tokens
    python benchmarks/learner.py --quick             a CPU: the tiny model (only checks that it runs)
    python benchmarks/learner.py --json table.json

MFU = (6·N per token without embeddings, plus attention) / time / the matmul rate measured in the run; 4·N plus the
same attention for LoRA, which needs no gradients of the base's matrices. A step is forward, loss, backward, clipping,
optimiser and the host's work around them, as in training. The time includes the product of the output layer, although N
does not count it. The last lines train 8 replies of 256 tokens to each of 16 prompts of 1,024 tokens, once with each
prompt computed only once, and once with it computed 8 times. Their MFU counts the whole sequence of every reply, even
where the prompt was not computed again.
"""

from __future__ import annotations

import argparse
import json
import random
import time

import torch
from engine import build, measure_rates, sync
from transformers import PreTrainedModel

from interplay.algorithms import losses
from interplay.config import TrainSection
from interplay.models.lora import new_adapter
from interplay.training import forward
from interplay.training.learner import Loss, Objective
from interplay.training.local import LocalLearner
from interplay.training.step import step
from interplay.training.tries import Example
from interplay.types import Sample


def examples_of(
    policy: str, count: int, prompt: int, reply: int, vocabulary: int, seed: int = 0, samples: int = 1
) -> list[Example]:
    """`count` replies, with `samples` replies to each prompt."""
    rng = random.Random(seed)
    some = lambda size: tuple(rng.randrange(10, vocabulary) for _ in range(size))  # noqa: E731
    out: list[Example] = []
    for i in range(count):
        asked = some(prompt) if i % samples == 0 else out[-1].sample.prompt
        sample = Sample(f"{policy}{i}", asked, some(reply), (0.0,) * reply, (0,) * reply, "")
        out.append(Example(policy, sample, rng.choice((-1.0, 1.0))))
    return out


def count_flops(model: PreTrainedModel, sequences: int, length: int, per_weight: int) -> float:
    """`per_weight` is 6 if gradients of the matrices are computed, else 4. In both cases attention counts forward and
    backward, and the backward pass costs twice the forward pass."""
    config = model.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    inner = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n and "head" not in n]
    attention = 3 * 2 * length**2 * config.num_attention_heads * size * config.num_hidden_layers
    return sequences * (per_weight * sum(p.numel() for p in inner) * length + attention)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", metavar="PATH")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() and not args.quick else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    rates = measure_rates(device, dtype)
    shape, *whole = ("0.5B", 32, 256, 3840) if device == "cuda" else ("tiny", 4, 16, 48)
    group = (128, 1024, 256) if device == "cuda" else (8, 32, 8)
    print(f"{torch.cuda.get_device_name() if device == 'cuda' else 'CPU'}, torch {torch.__version__}: ", end="")
    print(
        f"matmul {rates.matmul / 1e12:.2f} TFLOP/s ({dtype}); {shape}, {whole[0]} × {whole[1] + whole[2]} tokens a step"
    )
    loss: Loss = lambda targets, outputs: losses.policy_loss(targets, outputs, 0.2, 0.2, None, 0.0, 0.0)  # noqa: E731
    lines = []
    gain = forward.GAIN
    shared = ["full, 8 replies to a prompt", "full, 8 replies, prompts apart"]
    for what in ("full", "full, recompute", "LoRA 16", "4 × LoRA 16 mixed", *shared):
        count, prompt, reply = group if what in shared else whole
        forward.GAIN = 0.0 if "apart" in what else gain
        model = build(shape, device, dtype)
        config = TrainSection(micro_batch_tokens=16_384, recompute="recompute" in what, gap_mean_stop=1e9, gap_stop=1e9)
        names = ["a", "b", "c", "d"] if "mixed" in what else ["a"]
        per = count // len(names)
        learners = []
        for i, name in enumerate(names):
            adapter = new_adapter(model, 16, 32.0, [], i) if "LoRA" in what else None
            learners.append(LocalLearner(name, model, config, 1e-6, 0, adapter))
        vocabulary = model.config.vocab_size
        batches = {
            n: examples_of(n, per, prompt, reply, vocabulary, i, 8 if what in shared else 1)
            for i, n in enumerate(names)
        }
        seconds = []
        for _ in range(4):
            sync(device)
            began = time.perf_counter()
            step(learners, batches, Objective(loss))
            sync(device)
            seconds.append(time.perf_counter() - began)
        best = min(seconds[1:])
        flops = count_flops(model, count, prompt + reply, 4 if "LoRA" in what else 6)
        memory = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
        line = {"what": what, "seconds": best, "tokens_per_second": count * (prompt + reply) / best}
        line |= {"mfu_percent": 100 * flops / best / rates.matmul, "peak_gib": memory}
        lines.append(line)
        print(
            f"{what:30} {best:7.3f} s  {line['tokens_per_second']:10,.0f} tokens/s  {line['mfu_percent']:5.1f}% MFU",
            end="",
        )
        print(f"  {memory:5.1f} GiB", flush=True)
        del model, learners
        if device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "matmul": rates.matmul, "lines": lines}, file, indent=1)


if __name__ == "__main__":
    main()
