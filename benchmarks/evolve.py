"""Does evolution find the best workflow where it is known? A toy space of 72 workflows, each with a chance of success.

    python benchmarks/evolve.py --seeds 20 --episodes 4000

What counts in a workflow: how often the solving node votes (1, 3, 5), whether it is tested with retries, who reviews
it (nobody, the solver, the checker), whether a program is written for it, and who solves (solver, checker). A program
helps only together with a test: alone it costs, so changing one feature at a time can get stuck. An episode succeeds at
random, with the chance of its workflow.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from interplay.config.evolve import EvolveSection, MotifName
from interplay.envs.workflows.motifs import Graph
from interplay.rollout.evolve import Evolution
from interplay.types import seed_of

START: Graph = {"nodes": {"solve": {"role": "solver", "prompt": "{task}"}}}
MOTIFS: tuple[MotifName, ...] = ("vote", "review", "test", "program", "hand_over")
VOTES = {1: 0.0, 3: 0.08, 5: 0.02}
REVIEWS = {"": 0.0, "solver": -0.05, "checker": 0.12}


@dataclass(frozen=True)
class Kind:
    votes: int
    tested: bool
    review: str
    program: bool
    role: str

    @property
    def chance(self) -> float:
        program = (0.10 if self.tested else -0.08) if self.program else 0.0
        role = 0.0 if self.role == "solver" else -0.10
        return 0.2 + VOTES[self.votes] + 0.15 * self.tested + REVIEWS[self.review] + program + role


KINDS = [
    Kind(*parts) for parts in itertools.product(VOTES, (False, True), REVIEWS, (False, True), ("solver", "checker"))
]
BEST = max(KINDS, key=lambda kind: kind.chance)


def kind_of(graph: Graph) -> Kind:
    nodes = graph["nodes"]
    edges = nodes["solve"].get("next", "end")
    tested = not isinstance(edges, str) and any("verify" in edge for edge in edges)
    review = nodes["solve_review"]["role"] if "solve_review" in nodes else ""
    return Kind(nodes["solve"].get("samples", 1), tested, review, "solve_write" in nodes, nodes["solve"]["role"])


async def search(seed: int, episodes: int, section: EvolveSection) -> tuple[bool, int, Graph]:
    """Whether the champion is the best when the episodes are used up, how many were played, and the champion."""
    evolution = Evolution(section, START, ("solver", "checker"), seed)
    largest = 0

    def earned(graph: Graph, numbers: Sequence[int]) -> list[float]:
        rng, chance = random.Random(seed_of("toy", seed, str(graph), tuple(numbers))), kind_of(graph).chance
        return [float(rng.random() < chance) for _ in numbers]

    async def play(graphs: Sequence[Graph], numbers: Sequence[int]) -> list[list[float]]:
        return [earned(graph, numbers) for graph in graphs]

    while evolution.played + largest <= episodes:
        before = evolution.played
        await evolution.round(play)
        largest = max(largest, evolution.played - before)
    champion = evolution.champion.graph
    return kind_of(champion) == BEST, evolution.played, champion


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds")
    parser.add_argument("--episodes", type=int, default=4000, help="episodes that each search may play")
    given = parser.parse_args()
    section = EvolveSection(verify="toy:right", motifs=list(MOTIFS), fade=1.0)  # the policies do not change here
    found = 0
    for seed in range(given.seeds):
        best, played, champion = asyncio.run(search(seed, given.episodes, section))
        found += best
        print(f"seed {seed}: {'the best' if best else 'another'} after {played} episodes: {kind_of(champion)}")
    print(f"found the best of {len(KINDS)} kinds in {found} of {given.seeds} seeds within {given.episodes} episodes")


if __name__ == "__main__":
    main()
