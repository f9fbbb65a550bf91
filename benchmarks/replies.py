"""Checks that a reply does not depend on the requests that are served beside it.

    python benchmarks/replies.py            one GPU, fp32
    python benchmarks/replies.py --quick    a CPU, few requests

Requests of many lengths are sent to one engine in waves, so that they join and leave while others are sampled. Some
share prompts or their beginnings, use an adapter, are masked, or end with a stop string. Some are cancelled and sent
again, and in the middle of each wave the version of the weights rises. The cache and the seats are so few that requests
wait for them and use at once what others leave. A GPU begins everything 10 ms late (`late`), so that the host is ahead
of it. This is done by three engines: one as usual, one with a GPU stream of its own, and one that guesses tokens and
has more seats. Then --alone of these requests are sent to a new engine, each when the one before has its reply. In
exact arithmetic both replies are equal, because the random numbers of a request depend on its seed alone. On a GPU,
sums are rounded differently in batches of different sizes, so a few replies may part at some token; up to there, the
log-probs must agree. It ends with exit code 1 if fewer than 98% of an engine's replies are equal, if a log-prob differs
by more than 0.001, if a reply names the wrong version of the weights, or if no guess was right.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.engines.local.speculation import Speculation
from interplay.models.adapter import Adapter, sizes
from interplay.models.load import Loaded, load
from interplay.models.stacked import layers
from interplay.types import Completion

EQUAL, CLOSE = 0.98, 0.001
WAVES = 3
CACHE, SEATS = 6_144, 48
GUESSING = 8 * SEATS  # rows of the engine that guesses, which needs a row for each guess
ADAPTERS, ADAPTED = ("a", "b"), 5  # their names, and the version that both have
DELAY = 20_000_000  # cycles of a GPU: about 10 ms


def requests(count: int) -> list[Request]:
    rng = random.Random(0)
    made = []
    for n in range(count):
        ids = tuple(rng.randrange(5, 250) for _ in range(rng.randrange(2, 300)))
        if n >= WAVES and n % 4:  # of the same wave: another reply to the prompt, or a prompt that begins like it
            shared = made[-WAVES].ids
            ids = shared if n % 4 == 1 else shared[: rng.randrange(len(shared))] + ids[:50]
        stop = (rng.randrange(5, 250),) if n % 3 == 0 else ()
        heat = 0.02 if n % 5 == 4 else 1.0  # then replies repeat themselves, and guesses are right
        sampling = Sampling(heat, rng.randrange(1, 200), stop)
        legal: tuple[tuple[int, ...], ...] = ()
        if n % 7 == 3:
            legal = ((7, 8, 9, 10, 1), (7, 8, 1), (9, 1))
            sampling = replace(sampling, max_tokens=max(5, sampling.max_tokens))
        elif n % 7 == 4:
            sampling = replace(sampling, stop_strings=("e", "0"))
        elif n % 50 == 41:
            sampling = replace(sampling, top_k=20)  # the whole batch is sampled in plain torch then
        made.append(Request((n,), ids, n, sampling, (None, None, *ADAPTERS)[n % 11 % 4], legal=legal))
    return made


def engine_of(loaded: Loaded, way: str, small: bool, right: list[int]) -> LocalEngine:
    """`right` gets the number of right guesses of each call in which the GPU looked guesses up."""
    model = loaded.model
    guesses = way == "with guesses"
    engine = LocalEngine(
        model, CACHE if small else None, max_running=GUESSING if guesses else SEATS, tokenizer=loaded.tokenizer,
        beside=way == "beside", speculation=Speculation("on") if guesses else None,
    )  # fmt: skip
    for seed, name in enumerate(ADAPTERS):
        engine.load(name, random_adapter(model, 8, seed), ADAPTED)
    if small and model.device.type == "cuda":
        runner: Any = engine.runner
        for call in ("prefill", "advance", "look_ahead"):
            setattr(runner, call, late(getattr(runner, call)))
        looked_up = runner.look_ahead

        def look_ahead(*given: Any) -> Any:
            found = looked_up(*given)
            right.append(0 if found is None else found.right)
            return found

        runner.look_ahead = look_ahead
    return engine


def random_adapter(model: PreTrainedModel, rank: int, seed: int) -> Adapter:
    rng = torch.Generator().manual_seed(seed)
    new = lambda *shape: (torch.randn(shape, generator=rng) / 10).to(model.device)  # noqa: E731
    shapes = {name: sizes(layer) for name, layer in layers(model).items()}
    return Adapter(rank, 1.0, {name: (new(rank, k), new(n, rank)) for name, (k, n) in shapes.items()})


async def together(engine: LocalEngine, sent: list[Request]) -> dict[int, Completion]:
    """Serve the requests in waves; every fifth is cancelled while it is sampled, and sent again later."""
    done: dict[int, Completion] = {}

    async def one(request: Request, delay: float) -> None:
        await asyncio.sleep(delay)
        if request.seed % 5 == 2:
            cancelled = asyncio.ensure_future(engine.generate(replace(request, key=("cancelled", request.seed))))
            await asyncio.sleep(delay / 2)
            cancelled.cancel()
        done[request.seed] = await engine.generate(request)

    async def updated(version: int) -> None:
        await asyncio.sleep(0.25)
        engine.update(version)

    rng = random.Random(1)
    for wave in range(WAVES):
        first, second = 2 * wave, 2 * wave + 1
        engine.update(first)
        part = sent[wave::WAVES]
        await asyncio.gather(updated(second), *(one(request, 0.5 * rng.random()) for request in part))
        found = [(r, list(done[r.seed].versions)) for r in part]
        right = {None: {first, second}, **{name: {ADAPTED} for name in ADAPTERS}}
        wrong = [r.seed for r, v in found if not right[r.adapter] >= set(v) or v != sorted(v)]
        if wrong:
            sys.exit(f"{len(wrong)} replies name a version that is not {first} or {second}: requests {wrong[:5]}")
    return done


def late(call: Callable[..., Any]) -> Callable[..., Any]:
    """What `call` starts on the GPU begins 10 ms late. So the GPU still runs it when the host goes on, and whatever the
    host changes too early is seen."""

    def begun(*given: Any, **named: Any) -> Any:
        torch.cuda._sleep(DELAY)
        return call(*given, **named)

    return begun


async def one_by_one(engine: LocalEngine, sent: list[Request]) -> dict[int, Completion]:
    return {request.seed: await engine.generate(request) for request in sent}


def agreement(first: Completion, second: Completion) -> tuple[bool, float]:
    """Whether the tokens are equal, and the largest difference between log-probs up to where they part."""
    pairs = list(zip(first.tokens, second.tokens, strict=False))
    same = next((n for n, (a, b) in enumerate(pairs) if a != b), len(pairs))
    far = [abs(a - b) for a, b in zip(first.logprobs[:same], second.logprobs[:same], strict=True)]
    return first.tokens == second.tokens, max(far, default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1500, help="requests that are served together")
    parser.add_argument("--alone", type=int, default=150, help="how many of them are also served alone")
    parser.add_argument("--model", default="tiny-128x4", help="the model")
    parser.add_argument("--quick", action="store_true", help="few requests on a CPU: only checks that it runs")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() and not args.quick else "cpu"
    sent = requests(24 if args.quick else args.requests)
    number = 6 if args.quick else args.alone  # a third of them were cancelled and sent again
    again = [r for r in sent if r.seed % 5 == 2][: number // 3]
    others = [r for r in sent if r.seed % 5 != 2]
    few = [*again, *others[:: max(1, len(others) // max(1, number - len(again)))]]
    loaded = load(args.model, device, torch.float32, 0)
    engine = engine_of(loaded, "alone", False, [])
    alone = asyncio.run(one_by_one(engine, few))
    engine.close()
    failed = False
    for way in ("as usual", "beside", "with guesses"):
        right: list[int] = []
        engine = engine_of(loaded, way, True, right)
        began = time.perf_counter()
        found = asyncio.run(together(engine, sent))
        seconds, stats = time.perf_counter() - began, engine.stats()
        engine.close()
        pairs = [agreement(found[request.seed], alone[request.seed]) for request in few]
        equal, far = sum(same for same, _ in pairs) / len(pairs), max(difference for _, difference in pairs)
        tokens = sum(len(c.tokens) for c in found.values())
        print(f"{way}: {len(found)} replies together, {tokens} tokens in {seconds:.1f} s on {device}", end="")
        guessed = f", {stats.accepted_tokens} of them guessed, and {sum(right)} of these looked up by the GPU"
        print(guessed if engine.speculation else "")
        print(f"  {len(few)} of them also alone: {equal:.1%} equal, log-probs differ by at most {far:.2g}", flush=True)
        failed |= equal < EQUAL or far > CLOSE
        if engine.speculation and not (stats.accepted_tokens if device == "cpu" else sum(right)):
            sys.exit("no guess was right, so guessing was not tested")
    if failed:
        sys.exit(f"expected at least {EQUAL:.0%} equal replies and differences of at most {CLOSE}")


if __name__ == "__main__":
    main()
