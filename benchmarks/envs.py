"""How fast the environments are: steps (observe and step) a second on one core, played at random to their ends.

    python benchmarks/envs.py [SECONDS]

Making the environment, every observation and the outcome count; processor time is measured, so that other work on the
machine does not. An environment must never be what a rollout waits for: 2,000 steps a second is the least of our games,
and 500 of work, where an episode is two or three long replies and its database or world is made anew. Those that run
programs in a sandbox say so (`slow`) and are stepped in threads. The adapters' speed is mostly that of their packages;
those that are not installed are left out.
"""

from __future__ import annotations

import random
import sys
import time
from importlib.util import find_spec
from typing import Any

from interplay import envs

LEAST = {"games": 2_000, "tasks": 500, "adapters": 0}
ADAPTED = [
    "gymnasium:FrozenLake-v1", "gymnasium:Taxi-v4", "openspiel:connect_four", "openspiel:hanabi",
    "openspiel:kuhn_poker",
    "openspiel:tic_tac_toe", "pettingzoo:connect_four_v3", "pettingzoo:hanabi_v5", "pettingzoo:rps_v2",
    "pettingzoo:tictactoe_v3", "reasoning_gym:chain_sum", "textarena:KuhnPoker-v0-train",
    "textarena:TicTacToe-v0-train",
]  # fmt: skip
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
    envs.make(envs.sample_task(name, options))  # imports what it needs
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
    """Every registered environment, with its defaults and with the options above, and some games of the adapters."""
    here = {name: envs.lookup(name) for name in ADAPTED}
    names = [*envs.known(), *(name for name, cls in here.items() if find_spec(getattr(cls, "package", "")))]
    return [
        (name, " ".join(f"{k}={v}" for k, v in options.items()), *measure(name, options, seconds))
        for name in names
        for options in ({}, *OPTIONS.get(name, ()))
    ]


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    print(f"{'environment':<30}{'options':<24}{'steps/s':>9}{'steps/episode':>15}")
    for name, options, rate, length in rows(seconds):
        cls = envs.lookup(name)
        enough = rate >= LEAST[cls.__module__.split(".")[2]]
        note = "  runs programs" if cls.slow else "" if enough else "  too slow"
        print(f"{name:<30}{options:<24}{rate:>9,}{length:>15.1f}{note}")


if __name__ == "__main__":
    main()
