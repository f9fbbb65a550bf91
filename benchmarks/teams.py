"""Measures how full one agent and teams keep the engine, with the same number of episodes in flight.

    python benchmarks/teams.py --model FOLDER --data data/gsm8k     one GPU
    python benchmarks/teams.py --quick                              a CPU: a tiny model and short replies
    python benchmarks/teams.py --simulated --parts                  a CPU that waits as long as a GPU would compute

It plays tasks of recipes/results/gsm8k.toml without training: one agent, the pair with whole episodes (GRPO), and the
pair with a tree (AT-GRPO). `--episodes` of them are in flight at once, and `--rounds` times as many are played, so that
a new one begins when one ends. Columns:

    tokens/s       sampled tokens per second of the whole rollout
    in flight      requests in an engine step, the mean over the time that steps take
    of it busy     share of the time in which the engine computes
    prompt         prompt tokens that were computed for each sampled token (those in the cache are not)
    reply          sampled tokens per reply
    host µs        time in which the engine does not compute, per sampled token
    env µs         time in the environment per sampled token, over all threads
    CPU µs         CPU time of the event loop's thread per reply: prompts, requests, keys, records of turns, and the
                   environment unless it runs in threads of its own; other programs change it little

--parts prints below each row how long the parts of an engine step take, and how much they do. On a GPU, `prompts` only
starts the computation of prompts, and `decode` that of the next tokens; `read` waits for these tokens. --switch sets
after how many seconds Python lets another thread run (default: 0.005, and 0.0005 with an engine on a GPU): the engine's
steps and the event loop are two threads.

--simulated is for work on the host's part without a GPU. Everything is as on a GPU, but instead of computing, the
engine waits as long as an H200 takes for the 0.5B shape (docs/benchmarks.md), and it samples random tokens. Its figures
depend on this machine's processor and say nothing about a GPU's speed; they say what the host costs. `GPU busy` is the
share of the time in which the GPU would compute.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import random
import sys
import time
from collections.abc import Sequence as Pieces
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from transformers.utils import logging

from interplay.algorithms import Independent, Tree
from interplay.config import load
from interplay.engines.census import census
from interplay.engines.local import LocalEngine
from interplay.engines.local.runner import Drawn, Later
from interplay.engines.local.scheduler import Piece, Sequence
from interplay.envs import Env
from interplay.rollout.resolve import resolve
from interplay.rollout.runner import Runner
from interplay.rollout.team import Team, speech_of

RECIPE = Path(__file__).parents[1] / "recipes" / "results" / "gsm8k.toml"
GRPO = 'algorithm={ name = "grpo" }'  # each task is played once here
ARMS = {
    "one agent": ["env.team=single", 'seats={ reasoner = "agent" }', GRPO],
    "pair, whole episodes": [GRPO],
    "pair, tree of 4": [],
}


@dataclass
class Fullness:
    """What one rollout took."""

    arm: str
    episodes: int
    replies: int
    sampled: int
    prompts: int  # tokens that were computed
    seconds: float
    engine: float  # seconds in engine steps
    in_flight: float
    environment: float  # seconds in the environment
    loop: float  # CPU seconds of the event loop's thread
    parts: dict[str, float] = field(default_factory=dict)  # milliseconds of each part of an engine step
    counts: dict[str, float] = field(default_factory=dict)  # what an engine step does, on average
    graphs: int = 0  # captured while it ran; each takes as long as several steps
    simulated: float | None = None  # share of the time in which a simulated GPU computed

    def details(self) -> str:
        """How an engine step is spent."""
        took = ", ".join(f"{name} {value:.2f}" for name, value in self.parts.items())
        did = ", ".join(f"{value:.1f} {name}" for name, value in self.counts.items())
        busy = "" if self.simulated is None else f"; GPU busy {self.simulated:.0%}"
        captured = f"; {self.graphs} graphs captured meanwhile" if self.graphs else ""
        return f"    a step does {did}; ms: {took}{busy}{captured}"

    def line(self) -> str:
        per = 1e6 / max(1, self.sampled)
        return (
            f"{self.arm:<22}{self.sampled / self.seconds:>10,.0f}{self.in_flight:>11.1f}"
            f"{self.engine / self.seconds:>12.1%}{self.prompts / max(1, self.sampled):>8.2f}"
            f"{self.sampled / max(1, self.replies):>8.1f}{(self.seconds - self.engine) * per:>9.1f}"
            f"{self.environment * per:>8.1f}{1e6 * self.loop / max(1, self.replies):>8.0f}"
        )


class SimulatedGpu:
    """Stands for the runner of an engine. It waits as long as an H200 would compute, and samples random tokens."""

    STEP, ROW = 0.89e-3, 3.48e-6  # seconds of a decoding step, and of each row in it
    GRAPH = 0.25e-3  # seconds to start a decoding step, in which other threads of Python run
    PROMPT = 1 / 500_000  # seconds to compute a token of a prompt
    PASS, STARTS = 1e-3, 8  # seconds of Python for a pass over prompts, and how many things it starts on a GPU
    MEAN, SPREAD = 235, 60  # tokens of a reply

    call = ctypes.CDLL(None).getpid  # stands for a start: a short call in which other threads may run

    def __init__(self, real: Any, chunk: int = 16) -> None:
        self.chunk, self.device, self.most_rows = chunk, real.device, real.most_rows
        self.over = self.busy = 0.0  # when the GPU has done everything that was started; the seconds that it computed
        self.seconds = 0.0  # for how long it sampled the tokens that were read last
        self.goals: WeakKeyDictionary[Sequence, int] = WeakKeyDictionary()

    def _start(self, seconds: float) -> None:
        self.over = max(self.over, time.perf_counter()) + seconds
        self.busy += seconds

    def prefill(self, pieces: Pieces[Piece], scored: Pieces[Sequence] = ()) -> list[list[float]]:
        for _ in range(self.STARTS):
            began = time.perf_counter()
            while time.perf_counter() < began + self.PASS / self.STARTS:
                pass
            self.call()  # other threads may run here
        self._start(1e-3 + self.PROMPT * sum(piece.end - piece.start for piece in pieces))
        for piece in pieces:
            if piece.end == len(piece.prompt.ids):
                piece.prompt.hidden = torch.zeros(1)
        return []

    def copy_blocks(self, copies: Pieces[tuple[int, int]]) -> None:
        pass

    def advance(self, ongoing: Pieces[Sequence], fresh: Pieces[Sequence], hurry: bool = False) -> Later:
        seated = [*ongoing, *fresh]
        for new in fresh:
            length = round(random.Random(new.request.seed).gauss(self.MEAN, self.SPREAD))
            self.goals[new] = max(1, min(length, new.request.sampling.max_tokens))
        left = [self.goals[s] - len(s.tokens) for s in seated]
        steps = min(1 if hurry else self.chunk, max(left))
        step = self.STEP + self.ROW * len(seated)
        for _ in range(steps):
            time.sleep(self.GRAPH)
            self._start(step)
        self.seconds = steps * step
        return partial(self._read, self.over, seated, left, steps)

    def _read(self, over: float, seated: Pieces[Sequence], left: Pieces[int], steps: int) -> list[Drawn]:
        time.sleep(max(0.0, over - time.perf_counter()))
        tokens, drawn = np.random.randint(1000, 1200, (len(seated), steps)), list[Drawn]()
        for sequence, wanted, row in zip(seated, left, tokens, strict=True):
            own = row[:wanted].tolist()
            if wanted <= steps:
                own[-1] = min(sequence.request.sampling.stop)
            drawn.append((sequence, own, [0.0] * len(own)))
        return drawn


PARTS = {  # the methods of the engine, its scheduler and its runner in which a step spends its time
    "admit": ("scheduler", "admit"),
    "prompts": ("runner", "prefill"),
    "copy": ("runner", "copy_blocks"),
    "decode": ("runner", "advance"),
    "seat": ("runner", "_seat"),
    "upload": ("runner", "_upload"),
    "read": ("runner", "_read"),
    "absorb": ("", "_absorb"),
    "deliver": ("", "_delivery"),
}


class Parts:
    """Measures the parts of the engine's steps. A runner that has no such method has no such part."""

    def __init__(self, engine: LocalEngine) -> None:
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self.pieces = self.tokens = 0
        self._inside: list[float] = [0.0]  # for each part that is open, the seconds of the parts inside it
        for part, (owner, method) in PARTS.items():
            of: Any = getattr(engine, owner) if owner else engine
            if hasattr(of, method):
                self.seconds[part], self.calls[part] = 0.0, 0
                setattr(of, method, self._timed(part, getattr(of, method)))

    def _timed(self, part: str, method: Any) -> Any:
        def timed(*given: Any, **named: Any) -> Any:
            if part == "prompts":
                self.pieces += len(given[0])
                self.tokens += sum(piece.end - piece.start for piece in given[0])
            began = time.perf_counter()
            self._inside.append(0.0)
            try:
                return method(*given, **named)
            finally:
                taken = time.perf_counter() - began
                self.seconds[part] += taken - self._inside.pop()
                self._inside[-1] += taken
                self.calls[part] += 1

        return timed

    def of(self, steps: int, seconds: float) -> dict[str, float]:
        """Milliseconds of a step in each part, without the parts inside it, and the rest of the step."""
        own = {**self.seconds, "rest": seconds - sum(self.seconds.values())}
        return {name: 1000 * value / max(1, steps) for name, value in own.items()}


def graphs(runner: Any) -> int:
    """How many CUDA graphs a runner has captured."""
    return sum(len(getattr(runner, name, ())) for name in ("_graphs", "_passes"))


class Watch:
    """Counts requests in engine steps and the time in the environment."""

    def __init__(self, engine: LocalEngine) -> None:
        self.weighed = self.seconds = self.environment = 0.0
        self.replies = self.steps = 0
        self.parts = Parts(engine)
        step, act = engine.step, Env.act

        def stepped() -> Any:
            began, inside = time.perf_counter(), engine.stats()
            answers = step()
            taken = time.perf_counter() - began
            self.weighed += (inside.running + inside.waiting) * taken
            self.seconds += taken
            self.steps += 1
            self.replies += len(answers)
            return answers

        def acted(self_: Env, turns: Any) -> Any:
            began = time.perf_counter()
            try:
                return act(self_, turns)
            finally:
                self.environment += time.perf_counter() - began

        self._act = act
        engine.step = stepped  # type: ignore[method-assign]
        Env.act = acted  # type: ignore[method-assign]

    def close(self) -> None:
        Env.act = self._act  # type: ignore[method-assign]


def measured(arm: str, changes: Pieces[str], episodes: int, rounds: int, simulated: bool = False) -> Fullness:
    plan = resolve(load(RECIPE, changes))
    recipe = plan.recipe
    team = Team(recipe, {})
    (engine,) = team.engines
    assert isinstance(engine, LocalEngine)
    gpu = SimulatedGpu(engine.runner) if simulated else None
    if gpu is not None:
        engine.runner = gpu  # type: ignore[assignment]
    limits = recipe.rollout.model_copy(update={"concurrency": episodes})
    how = plan.algorithm.plan if isinstance(plan.algorithm.plan, Tree) else Independent(1)
    runner = Runner(recipe.seed, limits, how, recipe.reward)
    seating = team.seating(lambda _: plan.seats, speech_of(recipe))

    async def play(first: int, count: int) -> None:
        census().deterministic = team.deterministic and gpu is None
        found = await runner.run([plan.task(first + i) for i in range(count)], seating)
        failed = [e.error for e in found if e.error is not None]
        assert not failed, failed[0]

    try:
        # Compile, capture the graphs of all batch sizes, and start all processes that check answers.
        asyncio.run(play(0, episodes * rounds))
        watch = Watch(engine)
        before, began, used = engine.stats(), time.perf_counter(), time.thread_time()
        computed_before, captured = 0.0 if gpu is None else gpu.busy, graphs(engine.runner)
        try:
            asyncio.run(play(episodes * rounds, episodes * rounds))
        finally:
            watch.close()
        seconds, loop, after = time.perf_counter() - began, time.thread_time() - used, engine.stats()
        captured = graphs(engine.runner) - captured
    finally:
        team.close()
    busy = after.seconds - before.seconds
    steps, parts = max(1, watch.steps), watch.parts
    counts = {
        "tokens": (after.sampled_tokens - before.sampled_tokens) / steps,
        "replies": watch.replies / steps,
        "prompts": parts.pieces / steps,
        "prompt tokens": parts.tokens / steps,
    }
    computed = (after.prompt_tokens - after.cached_tokens) - (before.prompt_tokens - before.cached_tokens)
    return Fullness(
        arm, episodes * rounds, watch.replies, after.sampled_tokens - before.sampled_tokens, computed, seconds, busy,
        watch.weighed / max(watch.seconds, 1e-9), watch.environment, loop, parts.of(steps, watch.seconds), counts,
        captured, None if gpu is None else (gpu.busy - computed_before) / seconds,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or name; default: the recipe's")
    parser.add_argument("--data", default="", help="a folder made by interplay prepare gsm8k; default: generated tasks")
    parser.add_argument("--episodes", type=int, default=256, help="episodes in flight at once")
    parser.add_argument("--rounds", type=int, default=2, help="play this many times as many episodes in all")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), help="play only these")
    parser.add_argument("--changes", nargs="*", default=[], help="changes to the recipe: a.b=c")
    parser.add_argument("--parts", action="store_true", help="also print how long the parts of an engine step take")
    parser.add_argument("--switch", type=float, help="seconds after which Python lets another thread run")
    parser.add_argument("--quick", action="store_true", help="a small model on a CPU: only checks that it runs")
    parser.add_argument("--simulated", action="store_true", help="wait as long as a GPU would compute")
    parser.add_argument("--json", type=Path, help="also write the results to this file, as JSON")
    args = parser.parse_args()
    logging.disable_progress_bar()
    if args.switch:
        sys.setswitchinterval(args.switch)
    changes = [f"env.data={args.data}", *([f"policies.agent.base={args.model}"] if args.model else [])]
    if args.quick:
        changes += ["policies.agent.base=tiny", "sampling.max_tokens=16", "device=cpu"]
        args.episodes = min(args.episodes, 32)
    if args.simulated:
        changes += ["policies.agent.base=tiny", "device=cpu"]
    on_gpu = torch.cuda.is_available() and not args.quick and not args.simulated
    name = torch.cuda.get_device_name() if on_gpu else "a simulated GPU" if args.simulated else "CPU"
    print(f"{name}, torch {torch.__version__}: {args.episodes} episodes in flight, {args.rounds} times as many played")
    print(f"{'':<22}  tokens/s  in flight  of it busy  prompt   reply  host µs  env µs  CPU µs")
    found: list[Fullness] = []
    for arm, own in ARMS.items():
        if args.arms and arm not in args.arms:
            continue
        found.append(measured(arm, [*changes, *own, *args.changes], args.episodes, args.rounds, args.simulated))
        print(found[-1].line(), flush=True)
        if args.parts:
            print(found[-1].details(), flush=True)
    rates = {each.arm: each.sampled / each.seconds for each in found}
    if one := rates.pop("one agent", 0.0):
        for arm, rate in rates.items():
            print(f"{arm}: {rate / one:.0%} of one agent's tokens/s")
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(f) for f in found], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
