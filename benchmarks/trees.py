"""Measures what a rollout saves by playing out only the decisions at which the candidates differ.

    python benchmarks/trees.py RUN [--tasks 32] [--threads 1]

RUN is the folder of a run whose algorithm draws several replies to each prompt (at_grpo, c3, coma, online_dpo). The
policies of its newest checkpoint play the tasks of the recipe, once with every decision played out and once with only
those whose candidates differ. Both ways play the same games and give the same advantages, so the difference in cost is
what is saved. The first rollout of each way only warms up and does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from dataclasses import replace
from pathlib import Path

import torch
from transformers.utils import logging

from interplay.algorithms import Tree
from interplay.config import load
from interplay.rollout.resolve import resolve
from interplay.rollout.runner import Runner
from interplay.rollout.team import Team, speech_of
from interplay.training import checkpoint
from interplay.types import Episode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a run")
    parser.add_argument("--tasks", type=int, default=32, help="how many tasks are played")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logging.disable_progress_bar()
    plan, found = resolve(load(args.run)), checkpoint.latest(args.run / "checkpoints")
    tree = plan.algorithm.plan
    if found is None or not isinstance(tree, Tree) or not tree.compares:
        raise SystemExit(f"{args.run} has no checkpoint, or its algorithm compares no replies to one prompt.")
    recipe = plan.recipe
    team = Team(recipe, {name: str(found.policy(name)) for name in plan.trainable})
    seating = team.seating(lambda _: plan.seats, speech_of(plan.recipe))
    tasks = [plan.task(i) for i in range(args.tasks)]

    def rollout(compares: bool) -> tuple[float, int, list[Episode]]:
        for member in team.members.values():
            member.publish(member.version + 1)  # so that the cache is empty
        runner = Runner(recipe.seed, recipe.rollout, replace(tree, compares=compares), recipe.reward)
        before, began = _tokens(team), time.perf_counter()
        episodes = asyncio.run(runner.run(tasks, seating))
        return time.perf_counter() - began, _tokens(team) - before, episodes

    try:
        print(f"{recipe.name}: {args.tasks} tasks, {tree.candidates} candidates, {tree.continuation}")
        games = []
        for compares in (False, True):
            rollout(compares)
            seconds, tokens, episodes = rollout(compares)
            games.append([[t.text for t in e.line()] for e in episodes])
            words = "only where they differ" if compares else "every decision"
            print(f"{words:<24}{seconds:>8.2f} s{tokens:>12,} tokens")
        print("the same games" if games[0] == games[1] else "other games: rounding differs with the batches")
    finally:
        team.close()


def _tokens(team: Team) -> int:
    return sum(engine.stats().sampled_tokens for engine in team.engines)


if __name__ == "__main__":
    main()
