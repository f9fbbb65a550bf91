"""Checks that a reply does not depend on the requests that are served beside it.

    python benchmarks/replies.py            one GPU, fp32
    python benchmarks/replies.py --quick    a CPU, few requests

Requests of many lengths are sent to one engine in waves, so that they join and leave while others are sampled. Some are
cancelled, and between two waves the version of the weights rises. Then --alone of these requests are sent to a new
engine, each when the one before has its reply. In exact arithmetic both replies are equal, because the random numbers
of a request depend on its seed alone. On a GPU, sums are rounded differently in batches of different sizes, so a few
replies may part at some token; up to there, the log-probs must agree. It ends with exit code 1 if fewer than 95% of the
replies are equal, if a log-prob differs by more than 0.01, or if a reply names the wrong version of the weights.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from dataclasses import replace

import torch

from interplay.engines.engine import Request, Sampling
from interplay.engines.local import LocalEngine
from interplay.models.load import load
from interplay.types import Completion

EQUAL, CLOSE = 0.95, 0.01
WAVES = 3


def requests(count: int) -> list[Request]:
    rng = random.Random(0)
    made = []
    for n in range(count):
        ids = tuple(rng.randrange(5, 250) for _ in range(rng.randrange(2, 300)))
        stop = (rng.randrange(5, 250),) if n % 3 == 0 else ()
        made.append(Request((n,), ids, n, Sampling(1.0, rng.randrange(1, 200), stop)))
    return made


async def together(engine: LocalEngine, sent: list[Request]) -> dict[int, Completion]:
    """Serve the requests in waves; every twentieth is cancelled while it is sampled, and sent again later."""
    done: dict[int, Completion] = {}

    async def one(request: Request, delay: float) -> None:
        await asyncio.sleep(delay)
        if request.seed % 20 == 7:
            cancelled = asyncio.ensure_future(engine.generate(replace(request, key=("cancelled", request.seed))))
            await asyncio.sleep(delay / 2)
            cancelled.cancel()
        done[request.seed] = await engine.generate(request)

    rng = random.Random(1)
    for wave in range(WAVES):
        engine.update(wave)
        part = sent[wave::WAVES]
        await asyncio.gather(*(one(request, 0.5 * rng.random()) for request in part))
        wrong = [r.seed for r in part if set(done[r.seed].versions) != {wave}]
        if wrong:
            sys.exit(f"{len(wrong)} replies name a version of the weights that is not {wave}: requests {wrong[:5]}")
    return done


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
    few = sent[:: max(1, len(sent) // (6 if args.quick else args.alone))]
    loaded = load(args.model, device, torch.float32, 0)
    engine = LocalEngine(loaded.model, tokenizer=loaded.tokenizer)
    began = time.perf_counter()
    found = asyncio.run(together(engine, sent))
    seconds = time.perf_counter() - began
    engine.close()
    engine = LocalEngine(loaded.model, tokenizer=loaded.tokenizer)
    alone = asyncio.run(one_by_one(engine, few))
    engine.close()
    pairs = [agreement(found[request.seed], alone[request.seed]) for request in few]
    equal, far = sum(same for same, _ in pairs) / len(pairs), max(difference for _, difference in pairs)
    tokens = sum(len(c.tokens) for c in found.values())
    print(f"{len(found)} replies together, {tokens} tokens in {seconds:.1f} s on {device}")
    print(f"{len(few)} of them also alone: {equal:.1%} equal, log-probs differ by at most {far:.2g}")
    if equal < EQUAL or far > CLOSE:
        sys.exit(f"expected at least {EQUAL:.0%} equal replies and differences of at most {CLOSE}")


if __name__ == "__main__":
    main()
