"""Measures how many steps (observe and step) each environment does per second on one core, with random play.

    python benchmarks/envs.py [--seconds 1]
    python benchmarks/envs.py --rollout

The time includes making the environment, every observation and the outcome. It is processor time of the thread that
plays, so other work on the machine does not change it; garbage collections are left out. One episode is played before
the measurement, because it may import packages. A rollout should never have to wait for an environment: our games must
do at least 2,000 steps a second. Task environments must do at least 500, because an episode there has only two or three
long replies and needs a new database or world. Environments that run programs in a sandbox declare that they are
`slow`, and are stepped in threads. The speed of an adapter is mostly the speed of its package; adapters whose package
is not installed are left out.

`--rollout` plays every game with the model `tiny` in all seats, 32 episodes at once on one core. It prints the share of
five seconds of processor time that was spent in the environment (making, observing, stepping, forking). With a larger
model this share is smaller.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from interplay import envs

PATIENCE = 20  # a measurement ends after this many times its processor time: some environments wait for other processes
LEAST = {"games": 2_000, "dialogue": 2_000, "tasks": 500, "adapters": 0}
SENSES = ("hearing", "spotter_pilot")  # they make pictures or sounds, so they need only be as fast as tasks
ADAPTED = [
    "gymnasium:FrozenLake-v1", "gymnasium:Taxi-v4", "openspiel:connect_four", "openspiel:hanabi",
    "openspiel:kuhn_poker",
    "openspiel:tic_tac_toe", "pettingzoo:connect_four_v3", "pettingzoo:hanabi_v5", "pettingzoo:rps_v2",
    "pettingzoo:tictactoe_v3", "reasoning_gym:chain_sum", "textarena:KuhnPoker-v0-train",
    "textarena:TicTacToe-v0-train",
]  # fmt: skip
REPLIES = {  # for environments whose replies are free text
    "math": "So the answer is 7.",
    "negotiation": "Shall we?\noffer 1 0 1",
    "nli": "Answer: neutral",
    "search": "Answer: Greta Holm",
    "sums": "It is 7.",
}
OPTIONS: dict[str, list[dict[str, Any]]] = {  # measured in addition to the defaults
    "connect_four": [{"columns": 10, "rows": 10}],
    "hanabi": [{"players": 5}, {"variant": "small"}],
    "math": [{"team": "relay", "examples": 3}, {"team": "debate"}],
    "matrix": [{"rounds": 10}, {"rounds": 10, "talk": True}],
    "negotiation": [{"talk": False}],
    "tictactoe": [{"size": 10, "line": 5}],
}


def measure(name: str, options: dict[str, Any], seconds: float) -> tuple[int, float]:
    """The steps per second, and the mean number of steps in an episode."""
    rng, steps, episodes, spent = random.Random(0), 0, 0, 0.0
    play(name, options, 0, rng)
    gc.disable()  # a collection that looked at all objects of a large process would take longer than an episode
    try:
        began, latest = time.thread_time(), time.monotonic() + PATIENCE * seconds
        while spent < seconds and (not episodes or time.monotonic() < latest):
            steps += play(name, options, episodes, rng)
            episodes += 1
            spent = time.thread_time() - began
    finally:
        gc.enable()
    return round(steps / spent), steps / episodes


def play(name: str, options: dict[str, Any], index: int, rng: random.Random) -> int:
    """Play one episode at random. Returns its number of steps."""
    steps, env = 0, envs.make(envs.sample_task(name, options, index=index))
    while seen := env.observe():
        env.step({role: rng.choice(o.legal) if o.legal else REPLIES.get(name, "Hello.") for role, o in seen.items()})
        steps += 1
    envs.outcome_of(env)
    return steps


def rows(seconds: float) -> list[tuple[str, str, int, float]]:
    """Every registered environment, with its defaults and with the options above, and some games of the adapters."""
    here = {name: envs.lookup(name) for name in ADAPTED}
    names = [*envs.known(), *(name for name, cls in here.items() if find_spec(getattr(cls, "package", "")))]
    return [
        (name, " ".join(f"{k}={v}" for k, v in options.items()), *measure(name, options, seconds))
        for name in names
        for options in ({}, *OPTIONS.get(name, ()))
    ]


def share_of_rollout(name: str, seconds: float = 5.0) -> float:
    """The share of a rollout's processor time that is spent in the environment, with the model `tiny`."""
    from interplay.algorithms import Independent
    from interplay.cli.recipe import recipe_for
    from interplay.rollout.resolve import resolve
    from interplay.rollout.runner import Runner
    from interplay.rollout.team import Speech, Team

    plan = resolve(recipe_for(name, ["device=cpu", "sampling.legal=true", "sampling.max_tokens=16"]), training=False)
    recipe, team = plan.recipe, Team(plan.recipe)
    seating = team.seating(lambda _: plan.seats, Speech(1.0, recipe.sampling.max_tokens, recipe.sampling.legal))
    runner = Runner(recipe.seed, recipe.rollout, Independent(replicas=4), recipe.reward)
    clock = Stopwatch()
    try:
        asyncio.run(runner.run([plan.task(100)], seating))  # imports and first calls
        with clock.on(envs.lookup(name)):
            began, tasks, total = time.process_time(), 0, 0.0
            while total < seconds:
                asyncio.run(runner.run([plan.task(tasks + i) for i in range(8)], seating))
                tasks, total = tasks + 8, time.process_time() - began
    finally:
        team.close()
    return clock.spent / total


class Stopwatch:
    """Adds up the time spent in the methods of a class; nested calls are counted once."""

    def __init__(self) -> None:
        self.spent, self.depth = 0.0, 0

    @contextmanager
    def on(self, cls: type[envs.Env]) -> Iterator[None]:
        own = dict(vars(cls))
        for method in ("__init__", "observe", "step", "outcome", "state", "fork"):
            setattr(cls, method, self._timed(getattr(cls, method)))
        try:
            yield
        finally:
            for method in ("__init__", "observe", "step", "outcome", "state", "fork"):
                if method in own:
                    setattr(cls, method, own[method])
                else:
                    delattr(cls, method)

    def _timed(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.depth += 1
            began = time.thread_time()
            try:
                return method(*args, **kwargs)
            finally:
                self.depth -= 1
                if not self.depth:
                    self.spent += time.thread_time() - began

        return timed


def rollouts() -> None:
    import torch
    from transformers.utils import logging

    torch.set_num_threads(1)
    logging.disable_progress_bar()
    print(f"{'environment':<30}{'share of rollout':>17}")
    for name in envs.known():
        if ".games." in envs.lookup(name).__module__:
            print(f"{name:<30}{share_of_rollout(name):>17.1%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="processor time for each environment")
    parser.add_argument("--rollout", action="store_true", help="print the games' share of a rollout instead")
    args = parser.parse_args()
    if args.rollout:
        return rollouts()
    print(f"{'environment':<30}{'options':<24}{'steps/s':>9}{'steps/episode':>15}")
    for name, options, rate, length in rows(args.seconds):
        cls = envs.lookup(name)
        enough = rate >= LEAST["tasks" if name in SENSES else cls.__module__.split(".")[2]]
        note = "  runs programs" if cls.slow else "" if enough else "  too slow"
        print(f"{name:<30}{options:<24}{rate:>9,}{length:>15.1f}{note}")


if __name__ == "__main__":
    main()
