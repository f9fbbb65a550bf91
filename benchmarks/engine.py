"""Measures how fast the local engine samples, compared with transformers and with the limit of the hardware.

    python benchmarks/engine.py                      one GPU: Qwen2.5 shapes with random weights, bf16
    python benchmarks/engine.py --quick              a CPU: the tiny model, fp32
    python benchmarks/engine.py --vllm               also vLLM, offline, with the same weights of every shape
    python benchmarks/engine.py --json table.json    also write the table as JSON
    python benchmarks/engine.py --cold               also how long a new program takes to start on a GPU
    python benchmarks/engine.py --profile            only: where the time of a decoding step goes

floor = max(weight bytes / bandwidth, 2·N·B / matmul rate) + cache bytes / bandwidth, per decoding step, at the mean
context; both rates are measured at the start of the same run. Every row has 256 prompt tokens and 256 new tokens, at
temperature 1 and with log-probs, and is the best of two runs (three with --quick). With --cold, two new programs first
start an engine each. The second one uses the kernels that the first one compiled, so the difference is the cost of
compiling. vLLM runs in a process of its own (`vllm_rate.py`), with --vllm-python and --vllm-path where it is installed
elsewhere; its rows are with and without log-probs.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.models.adapter import Adapter, sizes
from interplay.models.attention import NAME
from interplay.models.stacked import layers

QWEN: dict[str, dict[str, Any]] = {
    "0.5B": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
             "num_key_value_heads": 2, "tie_word_embeddings": True, "vocab_size": 151936},
    "1.5B": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
             "num_key_value_heads": 2, "tie_word_embeddings": True, "vocab_size": 151936},
    "7B": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
           "num_key_value_heads": 4, "tie_word_embeddings": False, "vocab_size": 152064},
}  # fmt: skip


@dataclass
class Line:
    shape: str
    what: str
    batch: int
    tokens_per_second: float
    ms_per_step: float
    percent_of_floor: float
    note: str = ""


@dataclass
class Rates:
    bandwidth: float  # bytes/s, reads plus writes of a copy
    matmul: float  # FLOP/s in the model's dtype


def measure_rates(device: str, dtype: torch.dtype) -> Rates:
    """The rates of a large copy and of a large matrix product: the best of several attempts."""
    big, side = (1 << 30, 8192) if device == "cuda" else (1 << 26, 1024)
    source = torch.ones(big // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    a, b = (torch.randn((side, side), dtype=dtype, device=device) for _ in range(2))
    copy = best(lambda: target.copy_(source), device)
    product = best(lambda: a @ b, device)
    return Rates(2 * big / copy, 2 * side**3 / product)


def best(work: Callable[[], Any], device: str, times: int = 8) -> float:
    work()
    out = []
    for _ in range(times):
        sync(device)
        began = time.perf_counter()
        work()
        sync(device)
        out.append(time.perf_counter() - began)
    return min(out)


def sync(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def build(shape: str, device: str, dtype: torch.dtype) -> PreTrainedModel:
    torch.manual_seed(0)
    if shape == "tiny":
        config: Any = LlamaConfig(
            vocab_size=640, hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=4096,
        )  # fmt: skip
        model: PreTrainedModel = LlamaForCausalLM(config)
    else:
        config = Qwen2Config(max_position_embeddings=4096, **QWEN[shape])
        with torch.device(device):
            before = torch.get_default_dtype()
            torch.set_default_dtype(dtype)
            model = Qwen2ForCausalLM(config)
            torch.set_default_dtype(before)
    model.generation_config = GenerationConfig(eos_token_id=None, pad_token_id=0, do_sample=True, top_k=0, top_p=1.0)
    model.config._attn_implementation = NAME
    return model.to(device=device, dtype=dtype).eval()


def floor_ms(model: PreTrainedModel, batch: int, context: float, rates: Rates) -> float:
    """The shortest time that a decoding step can take."""
    config = model.config
    item = model.dtype.itemsize
    weights = sum(p.numel() for p in model.parameters())
    if not config.tie_word_embeddings:
        weights -= model.get_input_embeddings().weight.numel()  # only a few rows of the table are read
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache = 2 * config.num_hidden_layers * config.num_key_value_heads * head * item * context * batch
    return 1e3 * (max(weights * item / rates.bandwidth, 2 * weights * batch / rates.matmul) + cache / rates.bandwidth)


def prompts(count: int, length: int, vocabulary: int) -> list[tuple[int, ...]]:
    rng = random.Random(0)
    return [tuple(rng.randrange(10, vocabulary) for _ in range(length)) for _ in range(count)]


def serve(engine: LocalEngine, wanted: list[Request]) -> float:
    async def ask() -> None:
        done = await asyncio.gather(*(engine.generate(r) for r in wanted))
        assert all(len(c.tokens) == r.room == len(c.logprobs) for c, r in zip(done, wanted, strict=True))

    began = time.perf_counter()
    asyncio.run(ask())
    return time.perf_counter() - began


def start(shape: str, device: str, dtype: torch.dtype) -> None:
    """Make the weights, start the engine and sample the first replies, in a separate program."""
    began = time.perf_counter()
    model = build(shape, device, dtype)
    sync(device)
    built = time.perf_counter() - began
    engine = LocalEngine(model, cache_tokens=100_000)
    wanted = [Request((i,), p, i, Sampling(1.0, 4)) for i, p in enumerate(prompts(8, 256, model.config.vocab_size))]
    print(json.dumps({"weights": built, "replies": serve(engine, wanted)}))
    engine.close()


def cold_and_warm(shape: str) -> tuple[dict[str, float], dict[str, float]]:
    """Two starts: the first has no compiled kernels, the second has those that the first compiled."""
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "TRITON_CACHE_DIR": cache}
        command = [sys.executable, __file__, "--start", shape]
        both = [subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout for _ in range(2)]
    cold, warm = (json.loads(out.splitlines()[-1]) for out in both)
    return cold, warm


def adapter(model: PreTrainedModel, rank: int, seed: int) -> Adapter:
    generator = torch.Generator(model.device).manual_seed(seed)
    new = lambda *s: 0.01 * torch.randn(s, generator=generator, device=model.device)  # noqa: E731
    weights = {n: (new(rank, sizes(x)[0]), new(sizes(x)[1], rank)) for n, x in layers(model).items()}
    return Adapter(rank, 1.0, weights)


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.device = "cuda" if torch.cuda.is_available() and not args.quick else "cpu"
        self.dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        self.prompt, self.new = (256, 256)
        self.repeats = 2 if self.device == "cuda" else 3
        self.rates = measure_rates(self.device, self.dtype)
        self.lines: list[Line] = []

    def add(self, shape: str, what: str, batch: int, seconds: float, model: PreTrainedModel, note: str = "") -> None:
        ms = 1e3 * seconds / self.new
        percent = 100 * floor_ms(model, batch, self.prompt + self.new / 2, self.rates) / ms
        line = Line(shape, what, batch, batch * self.new / seconds, ms, percent, note)
        self.lines.append(line)
        print(show(line), flush=True)

    def engine(self, shape: str, batches: list[int], adapters: bool) -> None:
        began = time.perf_counter()
        model = build(shape, self.device, self.dtype)
        sync(self.device)
        built = time.perf_counter() - began
        engine = LocalEngine(model, cache_tokens=max(batches) * (self.prompt + self.new + 64) + 200_000)
        vocabulary = model.config.vocab_size

        def ask(batch: int, new: int, names: list[str | None], seed: int = 0) -> list[Request]:
            return [
                Request((i,), p, seed + i, Sampling(1.0, new), names[i % len(names)])
                for i, p in enumerate(prompts(batch, self.prompt, vocabulary))
            ]

        first = serve(engine, ask(8, 4, [None]))
        print(f"{shape}: weights made in {built:.1f} s, engine ready and first 8 replies after {first:.1f} s more")
        for batch in batches:
            engine.update(1)
            serve(engine, ask(batch, 20, [None]))  # captures this bucket's graph
            times: dict[int, list[float]] = {1: [], self.new: []}
            for repeat in range(2 * self.repeats):
                engine.update(2 + repeat)
                new = 1 if repeat % 2 else self.new
                times[new].append(serve(engine, ask(batch, new, [None])))
            prefill, whole = min(times[1]), min(times[self.new])
            self.add(shape, "interplay", batch, whole, model, f"prefill {batch * self.prompt / prefill:,.0f} tok/s")
            decode = whole - prefill
            self.add(shape, "interplay, decoding only", batch, decode * self.new / (self.new - 1), model)
        if adapters:
            batch = batches[0]
            names: list[str | None] = [f"a{i}" for i in range(4)]
            for i, (name, rank) in enumerate(zip(names, (16, 8, 16, 8), strict=True)):
                engine.load(str(name), adapter(model, rank, i), 1)
            serve(engine, ask(batch, 20, names))
            runs: dict[bool, list[float]] = {False: [], True: []}
            for repeat in range(6):
                engine.update(20 + repeat)
                who = names if repeat % 2 else [None]
                runs[bool(repeat % 2)].append(serve(engine, ask(batch, self.new, who, 100 * repeat)))
            bare, mixed = min(runs[False]), min(runs[True])
            share = 100 * bare / mixed
            self.add(shape, "interplay, 4 adapters mixed", batch, mixed, model, f"{share:.0f}% of the bare base")
        self.tree(engine, vocabulary)
        engine.close()

    def tree(self, engine: LocalEngine, vocabulary: int) -> None:
        """Sample K = 8 replies to each of 32 long prompts; each prompt is computed only once."""
        length = 1024 if self.device == "cuda" else 128
        engine.update(30)
        before = engine.scheduler.prompt_tokens - engine.scheduler.saved_tokens
        wanted = [
            Request((i, k), p, 8 * i + k, Sampling(1.0, 8))
            for i, p in enumerate(prompts(32, length, vocabulary)) for k in range(8)
        ]  # fmt: skip
        seconds = serve(engine, wanted)
        computed = engine.scheduler.prompt_tokens - engine.scheduler.saved_tokens - before
        print(f"tree of K = 8 over 32 prompts of {length}: {computed:,} prompt tokens computed, {seconds:.2f} s")
        assert computed == 32 * length

    def vllm(self, shape: str, batches: list[int], args: argparse.Namespace) -> dict[str, Any]:
        """Add vLLM's rows for one shape; return its version and how long it took to start."""
        model = build(shape, self.device, self.dtype)
        with tempfile.TemporaryDirectory() as folder:
            model.config._attn_implementation = "sdpa"
            model.generation_config = GenerationConfig()
            model.save_pretrained(folder)
            script = os.path.join(os.path.dirname(__file__), "vllm_rate.py")
            options = ["--batches", ",".join(map(str, batches)), "--tokens", str(self.new)]
            if self.device == "cuda":
                model.to("cpu")
                gc.collect()  # engines that are closed hold their caches until then
                torch.cuda.empty_cache()
                free, total = torch.cuda.mem_get_info()
                options += ["--memory", f"{min(0.5, 0.9 * free / total):.2f}"]
            path = os.pathsep.join(filter(None, [args.vllm_path, os.environ.get("PYTHONPATH", "")]))
            # -P: the folder of the script has a file vllm.py, which would hide the package
            command = [args.vllm_python or sys.executable, "-P", script, folder, *options]
            done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "Error: " in line] or ["no error message"]
            print(f"{shape}: vLLM did not run: " + "\n  ".join(dict.fromkeys([said[-1], *said[:3]])), flush=True)
            return {}
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        for row in found["rows"]:
            what = f"vLLM {found['version']}" + ("" if row["logprobs"] else ", no log-probs")
            self.add(shape, what, row["batch"], row["seconds"], model, "" if found["flashinfer"] else "no FlashInfer")
        return {"version": found["version"], "start": found["start"], "installed": args.vllm_installed}

    def transformers(self, shape: str, batch: int, continuous: bool) -> None:
        model = build(shape, self.device, self.dtype)
        model.set_attn_implementation("sdpa")
        ids = torch.tensor(prompts(batch, self.prompt, model.config.vocab_size), device=self.device)
        times = []
        for new in (8, *[self.new] * self.repeats):
            sync(self.device)
            began = time.perf_counter()
            out = model.generate(
                ids, max_new_tokens=new, min_new_tokens=new, do_sample=True, output_scores=True,
                return_dict_in_generate=True,
            )  # fmt: skip
            if self.device != "cuda":
                model.compute_transition_scores(out.sequences, out.scores, normalize_logits=True)
            sync(self.device)
            times.append(time.perf_counter() - began)
            del out
        self.add(shape, "transformers generate", batch, min(times[1:]), model)
        if continuous:
            try:
                config = GenerationConfig(max_new_tokens=self.new, do_sample=True, eos_token_id=-1, pad_token_id=0)
                rows = ids.tolist()
                model.generate_batch(inputs=rows[:4], generation_config=config)
                began = time.perf_counter()
                done = model.generate_batch(inputs=rows, generation_config=config)
                seconds = time.perf_counter() - began
                made = sum(len(r.generated_tokens) for r in done.values())
                self.add(shape, "transformers continuous", batch, seconds * batch * self.new / made, model)
            except Exception as error:
                print(f"transformers' continuous batching did not run here: {type(error).__name__}: {error}")


def profile(shape: str, device: str, dtype: torch.dtype, batch: int, masked: bool) -> dict[str, Any]:
    """Where the time of a decoding step goes, with the prompts already computed. With `masked`, every fourth request
    may only give one of a few replies."""
    from profile_step import profiled

    model = build(shape, device, dtype)
    vocabulary = model.config.vocab_size
    steps, each = (12, 16) if device == "cuda" else (24, 1)  # times that the engine is stepped, and tokens of a row
    new = 2 * steps * each + 8 * each
    engine = LocalEngine(model, cache_tokens=batch * (256 + new + 64) + 10_000)
    legal = tuple((*p, 5) for p in prompts(8, new - 1, vocabulary))
    wanted = [
        Request((i,), p, i, Sampling(1.0, new), legal=legal if masked and i % 4 == 0 else ())
        for i, p in enumerate(prompts(batch, 256, vocabulary))
    ]
    found = profiled(engine, wanted, steps)
    engine.close()
    return {"shape": shape, "batch": batch, "masked": masked, **found}


def show(line: Line) -> str:
    percent = f"{line.percent_of_floor:.0f}%"
    return (
        f"{line.shape:5} {line.what:28} {line.batch:6,} {line.tokens_per_second:12,.0f} {line.ms_per_step:9.2f} "
        f"{percent:>7}  {line.note}"
    )


def profiles(args: argparse.Namespace) -> None:
    from profile_step import table

    device = "cuda" if torch.cuda.is_available() and not args.quick else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    found = []
    for shape in args.shapes.split(",") if device == "cuda" else ["tiny"]:
        for masked in (False, True):
            found.append(profile(shape, device, dtype, args.batch or (256 if device == "cuda" else 64), masked))
            what = "a quarter of the replies masked" if masked else "no masks"
            print(f"{shape}, {found[-1]['batch']} requests, {what}. {table(found[-1])}\n", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the tiny model on a CPU")
    parser.add_argument("--shapes", default="0.5B,1.5B,7B", help="only these shapes, with commas between them")
    parser.add_argument("--no-transformers", action="store_true", help="do not measure transformers")
    parser.add_argument("--vllm", action="store_true", help="measure vLLM in the same run, for all shapes")
    parser.add_argument("--vllm-python", metavar="PATH", help="the Python that has vLLM; default: this one")
    parser.add_argument("--vllm-path", metavar="FOLDER", default="", help="a folder that has vLLM, put on PYTHONPATH")
    parser.add_argument("--vllm-installed", default="not said", metavar="TEXT", help="how vLLM was installed, to print")
    parser.add_argument("--json", metavar="PATH", help="also write the results to this file")
    parser.add_argument("--cold", action="store_true", help="also measure the start of a new program on a GPU")
    parser.add_argument("--profile", action="store_true", help="only print where the time of a decoding step goes")
    parser.add_argument("--batch", type=int, help="requests at a time; default: 256, and also 1,024 for 0.5B")
    parser.add_argument("--start", metavar="SHAPE", help="only start an engine, and say how long that took")
    args = parser.parse_args()
    if args.start:
        return start(args.start, "cuda", torch.bfloat16)
    if args.profile:
        return profiles(args)
    bench = Bench(args)
    name = torch.cuda.get_device_name() if bench.device == "cuda" else platform.machine()
    print(f"{name}, torch {torch.__version__}: copy {bench.rates.bandwidth / 1e12:.2f} TB/s, ", end="")
    print(f"matmul {bench.rates.matmul / 1e12:.2f} TFLOP/s ({bench.dtype})")
    table: dict[str, Any] = {"hardware": name, "torch": torch.__version__, **asdict(bench.rates)}
    if args.cold and bench.device == "cuda":
        cold, warm = cold_and_warm("0.5B")
        table["start"] = {"cold": cold, "warm": warm}
        print(f"0.5B in a new program: weights {warm['weights']:.1f} s, then the first 8 replies after ", end="")
        print(f"{warm['replies']:.1f} s; {cold['replies'] - warm['replies']:.1f} s more where none is compiled yet")
    print(f"{'shape':5} {'what':28} {'batch':>6} {'tokens/s':>12} {'ms/step':>9} {'floor':>7}")
    usual = {"tiny": [64], "0.5B": [256, 1024]}
    sizes_of = lambda shape: [args.batch] if args.batch else usual.get(shape, [256])  # noqa: E731
    if bench.device == "cpu":
        bench.engine("tiny", sizes_of("tiny"), adapters=True)
        if not args.no_transformers:
            bench.transformers("tiny", 64, continuous=False)
    else:
        for shape in args.shapes.split(","):
            bench.engine(shape, sizes_of(shape), adapters=shape == "0.5B")
            torch.cuda.empty_cache()
        if not args.no_transformers:
            bench.transformers("0.5B", 256, continuous=True)
    if args.vllm:
        shapes = ["tiny"] if bench.device == "cpu" else args.shapes.split(",")
        table["vllm"] = {shape: bench.vllm(shape, sizes_of(shape), args) for shape in shapes}
        print(f"vLLM was installed: {args.vllm_installed}")
    if args.json:
        table["lines"] = [asdict(line) for line in bench.lines]
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()
