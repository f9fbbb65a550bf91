"""How fast the environments are: steps (observe and step) a second on one core, played at random to their ends.

    python benchmarks/envs.py [SECONDS]

Making the environment, every observation and the outcome count; processor time is measured, so that other work on the
machine does not. An environment must never be what a rollout waits for: 2,000 steps a second is the least, but for
those that run programs in a sandbox, which say so (`slow`) and are stepped in threads.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

from interplay import envs

LEAST = 2_000
REPLIES = {  # where replies are free text
    "math": "So the answer is 7.",
    "negotiation": "Shall we?\noffer 1 0 1",
    "nli": "Answer: neutral",
    "search": "Answer: Greta Holm",
    "sums": "It is 7.",
}
OPTIONS: dict[str, list[dict[str, Any]]] = {  # besides the defaults
    "connect_four": [{"columns": 10, "rows": 10}],
    "hanabi": [{"players": 5}, {"variant": "small"}],
    "math": [{"team": "relay", "examples": 3}, {"team": "debate"}],
    "matrix": [{"rounds": 10}, {"rounds": 10, "talk": True}],
    "negotiation": [{"talk": False}],
    "tictactoe": [{"size": 10, "line": 5}],
}


def measure(name: str, options: dict[str, Any], seconds: float) -> tuple[int, float]:
    """Steps a second, and their mean number in an episode."""
    rng, steps, episodes, spent = random.Random(0), 0, 0, 0.0
    began = time.process_time()
    while spent < seconds:
        env = envs.make(envs.sample_task(name, options, index=episodes))
        while seen := env.observe():
            env.step(
                {role: rng.choice(o.legal) if o.legal else REPLIES.get(name, "Hello.") for role, o in seen.items()}
            )
            steps += 1
        env.outcome()
        episodes += 1
        spent = time.process_time() - began
    return round(steps / spent), steps / episodes


def rows(seconds: float) -> list[tuple[str, str, int, float]]:
    """Every registered environment, with its defaults and with the options above."""
    return [
        (name, " ".join(f"{k}={v}" for k, v in options.items()), *measure(name, options, seconds))
        for name in envs.known()
        for options in ({}, *OPTIONS.get(name, ()))
    ]


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    print(f"{'environment':<18}{'options':<24}{'steps/s':>9}{'steps/episode':>15}")
    for name, options, rate, length in rows(seconds):
        note = "  runs programs" if envs.lookup(name).slow else "" if rate >= LEAST else "  too slow"
        print(f"{name:<18}{options:<24}{rate:>9,}{length:>15.1f}{note}")


if __name__ == "__main__":
    main()
