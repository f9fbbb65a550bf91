"""Shows that a league keeps its rating in a game where plain self-play goes in circles, over several seeds.

    python benchmarks/league.py --seeds 3 --workers 2

The game is rock, paper, scissors and the model is `tiny-16x1`, trained by the real trainer with
`recipes/matrix/league.toml`. Parts of the league are then removed one after another: past selves without the exploiter,
drawn by PFSP or uniformly, and finally plain self-play. The rating is the score (a win counts 1, a draw ½) against the
strongest possible opponent of the policy, computed exactly from the policy's probabilities. 0.5 is perfect play; a
policy with rating 0 always loses to some opponent.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

import torch
from transformers.utils import logging as transformers_logging

from interplay.config import load, parse
from interplay.evaluation import strategies
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Team
from interplay.training.trainer import Observer, Trainer

RECIPE = Path(__file__).parents[1] / "recipes/matrix/league.toml"
WAYS = ("self-play", "past selves, uniform", "past selves, PFSP", "league")


def curve(way: str, seed: int, steps: int, every: int) -> list[float]:
    """The rating before the first step and then after every `every` steps."""
    data = load(RECIPE, [f"seed={seed}", f"train.steps={steps}", "records.tensorboard=off"]).model_dump()
    if way != "league":
        del data["policies"]["exploiter"], data["matchups"][1]
        data["league"]["exploiters"] = {}
        data["matchups"][0]["share"] = 1.0
    if way == "past selves, uniform":
        data["league"]["draw"] = "uniform"
    if way == "self-play":
        data |= {"matchups": [], "league": None}
    data["checkpoint"]["every"] = max(1, steps)
    data["eval"]["every"] = every
    plan = resolve(parse(data))
    found: list[float] = []

    async def rate(team: Team, step: int, seats: object = None) -> Mapping[str, float]:
        found.append(0.5 - 0.5 * (await strategies.measure(plan, team)).found.exploitability)
        return {}

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(plan, Path(folder), Observer(evaluate=rate))
        asyncio.run(rate(trainer.team, 0))
        try:
            trainer.train()
        finally:
            trainer.close()
    return found


def late(ratings: list[float]) -> list[float]:
    """The second half of a run: by then, a policy that settles down has done so."""
    return ratings[len(ratings) // 2 :]


def timed(job: tuple[str, int, int, int]) -> list[float]:
    torch.set_num_threads(1)
    transformers_logging.disable_progress_bar()
    began = time.process_time()
    found = curve(*job)
    print(
        f"{job[0]}, seed {job[1]}: {time.process_time() - began:.0f} s of processor time", file=sys.stderr, flush=True
    )
    return found


def rows(steps: int, every: int, seeds: int, workers: int) -> dict[tuple[str, int], list[float]]:
    jobs = [(way, seed, steps, every) for way in WAYS for seed in range(seeds)]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return {(job[0], job[1]): found for job, found in zip(jobs, pool.map(timed, jobs), strict=True)}


def markdown(found: Mapping[tuple[str, int], list[float]], every: int) -> str:
    points = len(next(iter(found.values())))
    shown = list(range(0, points, max(1, points // 8)))
    head = ["run", "seed", *(f"step {i * every}" for i in shown), "lowest late", "mean late"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for (way, seed), ratings in found.items():
        cells = [*(ratings[i] for i in shown), min(late(ratings)), fmean(late(ratings))]
        lines.append("| " + " | ".join([way, str(seed), *(f"{cell:.2f}" for cell in cells)]) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--steps", type=int, default=60, help="training steps of each run")
    parser.add_argument("--every", type=int, default=2, help="steps between ratings")
    parser.add_argument("--workers", type=int, default=2, help="processes that work at the same time")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    arguments = parser.parse_args()
    found = rows(arguments.steps, arguments.every, arguments.seeds, arguments.workers)
    table = markdown(found, arguments.every)
    print(table, end="")
    if arguments.markdown:
        arguments.markdown.write_text(table, encoding="utf-8")


if __name__ == "__main__":
    main()
