"""Measures what speculative sampling gains in a second epoch, when the engine has earlier replies to the same prompts.

    python benchmarks/speculate.py                           a CPU: a tiny model with random weights, fp32
    python benchmarks/speculate.py --model FOLDER            a real model, on the GPU if there is one
    python benchmarks/speculate.py --model FOLDER --questions rows.jsonl --seconds 300

For each batch size, one epoch is sampled to fill the drafts. Then the same prompts are sampled again with other random
numbers, in turn without drafts (off), with them (on) and with the rule that decides by itself (auto). All three get the
same requests, and the table says how many replies were identical; on a CPU in fp32 all must be. Tokens/s counts the
replies' tokens over all rounds and the whole time, prompts included; on a CPU it is the time of the processor, so that
other programs on the machine do not count. "accepted" is the share of drafted tokens that were right. Each of the
questions has one reply in an epoch; with --group there are several, which are drafts of each other. Random weights are
nearly undecided at temperature 1, so the tiny model samples at 0.01 unless --temperature is given.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import time
from pathlib import Path
from typing import Any

import torch
from engine import build, prompts, sync

from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.engines.local.speculation import Speculation
from interplay.models.load import load
from interplay.types import Completion

MODES = ("off", "on", "auto")
WARM = {"cuda": 3, "cpu": 0}  # rounds that are not timed


def questions(count: int) -> list[str]:
    """Word problems in the style of a primary school."""
    rng = random.Random(0)
    out = []
    for i in range(count):
        name = rng.choice(["Ann", "Ben", "Mia", "Tom"])
        things = rng.choice(["apples", "books", "coins", "cards"])
        a, b, c = rng.randint(11, 60), rng.randint(2, 9), rng.randint(2, 9)
        out.append(
            f"{name} has {a} {things}. {name} gives {b} of them away and then buys {c} bags with {i % 7 + 2} {things} "
            f"each. How many {things} does {name} have now? Think step by step and end with '#### ' and the number."
        )
    return out


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.device = "cuda" if torch.cuda.is_available() and not args.cpu else "cpu"
        self.dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        largest = max(args.batches)
        self.stop: tuple[int, ...] = ()
        if args.model is None:
            self.model = build("tiny", self.device, self.dtype)
            self.prompts = prompts(largest, 64, self.model.config.vocab_size)
        else:
            loaded = load(args.model, self.device, self.dtype, 0)
            self.model, self.stop = loaded.model, tuple(loaded.stop_ids)
            asked = questions(largest)
            if args.questions is not None:
                rows = [json.loads(line) for line in args.questions.read_text(encoding="utf-8").splitlines()]
                asked = [row["question"] for row in rows][:largest]
            self.prompts = [self._rendered(loaded.tokenizer, text) for text in asked]
        self.heat = args.temperature or (1.0 if args.model else 0.01)

    def _rendered(self, tokenizer: Any, text: str) -> tuple[int, ...]:
        if tokenizer.chat_template is None:
            return tuple(tokenizer.encode(text))
        chat = [{"role": "user", "content": text}]
        said = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        return tuple(tokenizer.encode(said, add_special_tokens=False))

    def requests(self, batch: int, epoch: int) -> list[Request]:
        """`batch` requests; with --group, every so many of them share a prompt."""
        sampling = Sampling(self.heat, self.args.new, self.stop)
        return [
            Request((epoch, i), self.prompts[i // self.args.group], 1_000_003 * (epoch + 9) + i, sampling)
            for i in range(batch)
        ]

    def engine(self, mode: str) -> LocalEngine:
        longest = max(map(len, self.prompts)) + self.args.new
        speculation = None if mode == "off" else Speculation("on" if mode == "on" else "auto", self.args.tokens)
        return LocalEngine(
            self.model, cache_tokens=4 * max(self.args.batches) * (longest + 64), max_running=1024,
            speculation=speculation,
        )  # fmt: skip

    def row(self, engines: dict[str, LocalEngine], batch: int, until: float) -> dict[str, Any]:
        """Time all modes with the same requests, several rounds, in turn."""
        learned = {}
        for mode, engine in engines.items():
            serve(engine, self.requests(batch, 0), self.device)
            if engine.speculation is not None:
                learned[mode] = engine.speculation.state_dict()
        for warm in range(WARM[self.device]):  # compiles and captures what these steps need
            self._round(engines, batch, -1 - warm, learned)
        before = {m: e.stats() for m, e in engines.items()}
        times, tokens = dict.fromkeys(MODES, 0.0), dict.fromkeys(MODES, 0)
        same = rounds = 0
        while rounds < self.args.rounds and (rounds == 0 or time.monotonic() < until):
            rounds += 1
            found = self._round(engines, batch, rounds, learned)
            for mode, (seconds, said) in found.items():
                times[mode] += seconds
                tokens[mode] += sum(len(c.tokens) for c in said)
            same += sum(a.tokens == b.tokens for a, b in zip(found["off"][1], found["on"][1], strict=True))
        assert self.device == "cuda" or same == batch * rounds, "in fp32 on a CPU, drafts change no token"
        out: dict[str, Any] = {"batch": batch, "rounds": rounds, "identical": same / (batch * rounds)}
        for mode, engine in engines.items():
            drafted = engine.stats().drafted_tokens - before[mode].drafted_tokens
            right = engine.stats().accepted_tokens - before[mode].accepted_tokens
            speed = tokens[mode] / times[mode]
            out[mode] = {
                "tokens_per_second": speed,
                "ratio": speed / out.get("off", {}).get("tokens_per_second", speed),
            }
            out[mode] |= {"drafted": drafted, "accepted": right, "tokens_per_reply": tokens[mode] / batch / rounds}
        return out

    def _round(
        self, engines: dict[str, LocalEngine], batch: int, epoch: int, learned: dict[str, Any]
    ) -> dict[str, tuple[float, list[Completion]]]:
        """Sample the same epoch in every mode. Each mode starts with the drafts that the first epoch left. Return the
        seconds and the replies of every mode."""
        found = {}
        for mode, engine in engines.items():
            engine.update(engine.version + 1)  # nothing is left in the prefix cache
            if engine.speculation is not None:
                fresh = Speculation(engine.speculation.mode, self.args.tokens)
                fresh.load_state_dict(learned[mode])
                fresh.drafted, fresh.accepted = engine.speculation.drafted, engine.speculation.accepted
                engine.speculation = fresh
            found[mode] = serve(engine, self.requests(batch, epoch), self.device)
        return found


def serve(engine: LocalEngine, wanted: list[Request], device: str) -> tuple[float, list[Completion]]:
    async def ask() -> list[Completion]:
        return list(await asyncio.gather(*(engine.generate(r) for r in wanted)))

    clock = time.perf_counter if device == "cuda" else time.process_time
    sync(device)
    began = clock()
    done = asyncio.run(ask())
    return clock() - began, done


def show(row: dict[str, Any]) -> str:
    cells = [f"{row['batch']:,}", f"{row['off']['tokens_per_second']:,.0f}"]
    for mode in ("on", "auto"):
        found = row[mode]
        share = f"{100 * found['accepted'] / found['drafted']:.0f}%" if found["drafted"] else "none"
        cells += [f"{found['tokens_per_second']:,.0f}", f"{found['ratio']:.2f}", share]
    return "| " + " | ".join([*cells, f"{100 * row['identical']:.0f}%", str(row["rounds"])]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", metavar="FOLDER", help="a Hugging Face folder; default: a tiny one, random weights")
    parser.add_argument("--questions", type=Path, help="JSON lines, each with a 'question'; default: generated ones")
    parser.add_argument(
        "--batches",
        type=lambda text: [int(n) for n in text.split(",")],
        default=[1, 4, 16],
        help="batch sizes, with commas between them",
    )
    parser.add_argument("--group", type=int, default=1, help="replies to each question in an epoch")
    parser.add_argument("--new", type=int, default=128, help="largest number of tokens in a reply")
    parser.add_argument("--tokens", type=int, default=4, help="largest number of tokens in a draft")
    parser.add_argument("--temperature", type=float, help="sampling temperature")
    parser.add_argument("--rounds", type=int, default=5, help="how often each batch size is measured")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no further round after this time")
    parser.add_argument("--cpu", action="store_true", help="use the CPU even if there is a GPU")
    parser.add_argument("--json", type=Path, help="also write the results to this file, as JSON")
    args = parser.parse_args()
    until = time.monotonic() + args.seconds
    bench = Bench(args)
    name = torch.cuda.get_device_name() if bench.device == "cuda" else f"{platform.machine()} CPU"
    print(f"{name}, torch {torch.__version__}, {bench.dtype}, {args.model or 'tiny, random weights'}, ", end="")
    print(f"temperature {bench.heat:g}, drafts of up to {args.tokens} tokens, replies of up to {args.new}:\n")
    print("| batch | off: tokens/s | on: tokens/s | ratio | accepted | auto: tokens/s | ratio | accepted ", end="")
    print("| identical replies | rounds |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    rows = []
    for batch in args.batches:
        if rows and time.monotonic() > until:
            break
        engines = {mode: bench.engine(mode) for mode in MODES}
        rows.append(bench.row(engines, batch, until))
        for engine in engines.values():
            engine.close()
        print(show(rows[-1]), flush=True)
    if args.json is not None:
        table = {"hardware": name, "torch": torch.__version__, "model": args.model, "temperature": bench.heat}
        args.json.write_text(json.dumps({**table, "tokens": args.tokens, "rows": rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
