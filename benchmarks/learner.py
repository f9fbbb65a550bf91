"""Measures which share of the GPU's matrix rate the learner uses for training.

    python benchmarks/learner.py                     one GPU: Qwen2.5-0.5B shape, bf16, packed sequences of 4,096 tokens
    python benchmarks/learner.py --quick             a CPU: the tiny model (only checks that it runs)
    python benchmarks/learner.py --shapes 0.5B,1.5B --micro 16384,32768 --seconds 300 --json table.json
    python benchmarks/learner.py --profile           also where the time of each kind of step goes, by kernel

MFU = (6·N per token without embeddings, plus attention) / time / the matmul rate measured in the run; 4·N plus the
same attention for LoRA, which needs no gradients of the base's matrices. A step is forward, loss, backward, clipping,
optimiser and the host's work around them, as in training. The time includes the product of the output layer, although N
does not count it; "with the output layer" counts it too, for the tokens of the replies. --micro is the number of tokens
in a micro-batch. The last lines train 8 replies of 256 tokens to each of 16 prompts of 1,024 tokens, once with each
prompt computed only once, and once with it computed 8 times. Their MFU counts the whole sequence of every reply, even
if the prompt was not computed again.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from functools import partial
from typing import Any

import torch
from engine import build, measure_rates, sync
from kernels import kernels, show_kernels
from transformers import PreTrainedModel

from interplay.algorithms import losses
from interplay.config import TrainSection
from interplay.models.lora import new_adapter
from interplay.training import forward
from interplay.training.learner import Objective
from interplay.training.local import LocalLearner
from interplay.training.step import step
from interplay.training.tries import Example
from interplay.types import Sample

SHARED = ("full, 8 replies to a prompt", "full, 8 replies, prompts apart")
KINDS = ("full", "full, recompute", "LoRA 16", "4 × LoRA 16 mixed", *SHARED)


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


def output_flops(model: PreTrainedModel, predictions: int, per_weight: int) -> float:
    """The product of the output layer, forward and backward, for the tokens that are predicted."""
    return per_weight * model.get_output_embeddings().weight.numel() * predictions


def _loss(targets: losses.Targets, outputs: losses.Outputs) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    return losses.policy_loss(targets, outputs, 0.2, 0.2, None, 0.0, 0.0)


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.profile = args.profile
        self.device = "cuda" if torch.cuda.is_available() and not args.quick else "cpu"
        self.dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        self.rates = measure_rates(self.device, self.dtype)
        self.whole = (32, 256, 3840) if self.device == "cuda" else (4, 16, 48)  # replies, prompt and reply tokens
        self.group = (128, 1024, 256) if self.device == "cuda" else (8, 32, 8)
        self.lines: list[dict[str, Any]] = []

    def add(self, shape: str, what: str, micro: int) -> None:
        """Time a kind of step, and print its line."""
        count, prompt, reply = self.group if what in SHARED else self.whole
        gain = forward.GAIN
        forward.GAIN = 0.0 if "apart" in what else gain
        model = build(shape, self.device, self.dtype)
        config = TrainSection(micro_batch_tokens=micro, recompute="recompute" in what, gap_mean_stop=1e9, gap_stop=1e9)
        names = ["a", "b", "c", "d"] if "mixed" in what else ["a"]
        learners = []
        for i, name in enumerate(names):
            adapter = new_adapter(model, 16, 32.0, [], i) if "LoRA" in what else None
            learners.append(LocalLearner(name, model, config, 1e-6, 0, adapter))
        vocabulary, samples = model.config.vocab_size, 8 if what in SHARED else 1
        batches = {
            n: examples_of(n, count // len(names), prompt, reply, vocabulary, i, samples) for i, n in enumerate(names)
        }
        best = self._best(learners, batches)
        seen = kernels(partial(step, learners, batches, Objective(_loss)), self.device) if self.profile else None
        forward.GAIN = gain
        each = 4 if "LoRA" in what else 6
        flops = count_flops(model, count, prompt + reply, each)
        more = output_flops(model, count * reply, each)
        memory = torch.cuda.max_memory_allocated() / 2**30 if self.device == "cuda" else 0.0
        line: dict[str, Any] = {"shape": shape, "what": what, "micro": micro, "seconds": best, "peak_gib": memory}
        line |= {"tokens_per_second": count * (prompt + reply) / best}
        line |= {"mfu_percent": 100 * flops / best / self.rates.matmul}
        line |= {"mfu_with_output_percent": 100 * (flops + more) / best / self.rates.matmul}
        self.lines.append(line)
        print(show(line), flush=True)
        if seen is not None:
            line["profile"] = seen
            print(show_kernels(seen), flush=True)
        del model, learners
        if self.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def _best(self, learners: list[LocalLearner], batches: dict[str, list[Example]]) -> float:
        seconds = []
        for _ in range(4):
            sync(self.device)
            began = time.perf_counter()
            step(learners, batches, Objective(_loss))
            sync(self.device)
            seconds.append(time.perf_counter() - began)
        return min(seconds[1:])


def show(line: dict[str, Any]) -> str:
    return (
        f"{line['shape']:5} {line['what']:30} {line['micro']:6,} {line['seconds']:7.3f} s  "
        f"{line['tokens_per_second']:10,.0f} tokens/s  {line['mfu_percent']:5.1f}% MFU, "
        f"{line['mfu_with_output_percent']:5.1f}% with the output layer  {line['peak_gib']:5.1f} GiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small model on a CPU: only checks that it runs")
    parser.add_argument("--shapes", default="0.5B", help="on a GPU: 0.5B, 1.5B or 7B, with commas between them")
    parser.add_argument("--micro", default="16384", help="train.micro_batch_tokens, with commas between several")
    parser.add_argument("--kinds", help="only these kinds of steps, with ; between them")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further line after this time")
    parser.add_argument("--profile", action="store_true", help="also print the kernels of a step of each kind")
    parser.add_argument("--json", metavar="PATH", help="also write the results to this file, as JSON")
    args = parser.parse_args()
    until = time.monotonic() + args.seconds
    bench = Bench(args)
    shapes = args.shapes.split(",") if bench.device == "cuda" else ["tiny"]
    print(f"{torch.cuda.get_device_name() if bench.device == 'cuda' else 'CPU'}, torch {torch.__version__}: ", end="")
    print(f"matmul {bench.rates.matmul / 1e12:.2f} TFLOP/s ({bench.dtype}); ", end="")
    print(f"{bench.whole[0]} × {bench.whole[1] + bench.whole[2]} tokens a step")
    for shape in shapes:
        for micro in map(int, args.micro.split(",")):
            for what in args.kinds.split(";") if args.kinds else KINDS:
                if not bench.lines or time.monotonic() < until:
                    bench.add(shape, what, micro)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "matmul": bench.rates.matmul, "lines": bench.lines}, file, indent=1)


if __name__ == "__main__":
    main()
