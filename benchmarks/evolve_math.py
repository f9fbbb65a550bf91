"""Evolution on a real task: does the evolved workflow, with the policy that was trained in it, beat the start workflow
with a policy that was trained on as many tokens?

    python benchmarks/evolve_math.py --base MODEL --from FOLDER --seconds 240       # FOLDER: GSM8K as it is published
    python benchmarks/evolve_math.py --tiny                                         # made-up sums, to try it on a CPU

One policy has all roles. First the workflow evolves while the policy learns, for --steps or 40% of --seconds. Then
another policy learns in the start workflow until it has trained on as many tokens. Both are played on the same problems
of the test split, which are used for nothing else, and so is the untrained policy in both workflows. The validation
tokens of the evolution are printed too: they are not trained on, but they have a cost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from interplay.algorithms import Independent
from interplay.config import Recipe, parse
from interplay.envs.tasks.prepare import prepare
from interplay.envs.workflows.graph import mermaid
from interplay.envs.workflows.motifs import Graph, checked
from interplay.evaluation.intervals import share
from interplay.rollout.resolve import resolve
from interplay.rollout.runner import Runner
from interplay.rollout.team import Speech, Team
from interplay.seats import RunPlan
from interplay.training.trainer import Observer, Trainer

START: Graph = {"nodes": {"solve": {"role": "solver", "prompt": "{task}"}}}
MOTIFS = ["vote", "ensemble", "review", "program"]


def recipe(given: argparse.Namespace, data: str, evolve: bool) -> Recipe:
    inner: dict[str, Any] = {"digits": 1} if given.tiny else {"team": "single", "form": "hashes", "data": data}
    made: dict[str, Any] = {
        "name": "evolve-math", "workflow": START,
        "policies": {"team": {"base": given.base}}, "seats": {"solver": "team"},
        "env": {"name": "workflow:sums" if given.tiny else "workflow:math", "inner": inner},
        "algorithm": {"name": "grpo", "group": 8}, "sampling": {"max_tokens": given.max_tokens},
        "rollout": {"tasks": given.tasks, "concurrency": 1024},
        "train": {"steps": given.steps, "lr": given.lr, "micro_batch_tokens": 32768},
        "eval": {"before": False, "after": False, "opponents": ["team"], "success": "correct",
                 "temperature": given.temperature},
    }  # fmt: skip
    if evolve:
        made["evolve"] = {
            "every": given.every, "candidates": 5, "tasks": given.validation, "looks": 2, "motifs": MOTIFS,
            "price": given.price,
        }  # fmt: skip
    return parse(made, given.changes)


class Arm:
    """A training run and what it has cost so far."""

    def __init__(self, made: Recipe, folder: Path, done: Callable[[Arm], bool]) -> None:
        self.plan = resolve(made)
        self.trainer = Trainer(self.plan, folder)
        self.done = done
        self.tokens = self.validation_episodes = 0.0
        self.scores: list[float] = []
        self.trainer.observer = Observer(stepped=self._stepped)

    def _stepped(self, step: int, metrics: Mapping[str, float]) -> None:
        self.tokens += metrics["tokens_sampled"]
        self.validation_episodes = metrics.get("evolve/played", self.validation_episodes)
        self.scores.append(metrics["reward/correct/team"])
        print(f"  step {step}: {self.scores[-1]:.3f} right, {self.tokens:,.0f} tokens", flush=True)
        if self.done(self):
            self.trainer.interrupt.asked = True

    @property
    def graph(self) -> Graph:
        evolver = self.trainer.evolver
        return START if evolver is None else evolver.evolution.champion.graph


def played(plan: RunPlan, team: Team, graph: Graph, given: argparse.Namespace) -> dict[str, Any]:
    """The share of right answers on the test split, with its interval, and the tokens of an answer."""
    runner = Runner(1, plan.recipe.rollout, Independent(1), plan.recipe.reward)
    tasks = [plan.task(n, "test", {"workflow": graph}) for n in range(given.games)]
    how = Speech(given.temperature, given.max_tokens)

    async def play() -> Sequence[Any]:
        return await runner.run(tasks, team.seating(lambda _: plan.seats, how))

    for engine in team.engines:
        engine.flush()
    episodes = asyncio.run(play())
    good = [e for e in episodes if e.error is None]
    right = [[any(r.name == "correct" and r.value == 1.0 for r in e.rewards)] for e in good]
    estimate = share(right)
    tokens = sum(t.sampled for e in good for t in e.turns) / max(1, len(good))
    return {
        "right": estimate.value, "low": estimate.low, "high": estimate.high, "tokens": tokens,
        "failed": len(episodes) - len(good),
    }  # fmt: skip


def measure(given: argparse.Namespace, folder: Path, began: float) -> dict[str, Any]:
    data = ""
    if not given.tiny:
        data = str(folder / "data")
        prepare("gsm8k", given.source, Path(data), drop_overlap=True, check=False)
        print(f"data: {time.monotonic() - began:.0f} s", flush=True)
    late = began + 0.4 * given.seconds
    found: dict[str, Any] = {}
    evolving = Arm(recipe(given, data, True), folder / "evolved", lambda arm: time.monotonic() > late)
    found["start workflow, untrained"] = played(evolving.plan, evolving.trainer.team, START, given)
    print("the workflow evolves:", flush=True)
    evolving.trainer.train()
    graph = evolving.graph
    found["evolved workflow, trained in it"] = played(evolving.plan, evolving.trainer.team, graph, given)
    found["start workflow, trained in the evolved one"] = played(evolving.plan, evolving.trainer.team, START, given)
    evolving.trainer.close()
    print("the start workflow:", flush=True)
    late = began + 0.85 * given.seconds
    enough = evolving.tokens
    given.steps = 10**6
    plain = Arm(recipe(given, data, False), folder / "start", lambda a: a.tokens >= enough or time.monotonic() > late)
    found["evolved workflow, untrained"] = played(plain.plan, plain.trainer.team, graph, given)
    plain.trainer.train()
    found["start workflow, trained in it"] = played(plain.plan, plain.trainer.team, START, given)
    plain.trainer.close()
    return {
        "table": found, "workflow": graph, "tokens": {"evolved": evolving.tokens, "start": plain.tokens},
        "validation_episodes": evolving.validation_episodes, "seconds": time.monotonic() - began,
        "picture": mermaid(checked(graph)),
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="Qwen/Qwen2.5-Coder-0.5B-Instruct", help="the model of the policy")
    parser.add_argument("--from", dest="source", type=Path, help="folder with GSM8K's train.jsonl and test.jsonl")
    parser.add_argument("--steps", type=int, default=12, help="training steps in which the workflow evolves")
    parser.add_argument("--every", type=int, default=3, help="steps between two rounds of evolution")
    parser.add_argument("--tasks", type=int, default=32, help="tasks of a training step; each is played 8 times")
    parser.add_argument("--validation", type=int, default=48, help="tasks of the first comparison of a round")
    parser.add_argument("--games", type=int, default=512, help="problems of the test split")
    parser.add_argument("--max-tokens", type=int, default=256, help="largest number of tokens in a reply")
    parser.add_argument("--temperature", type=float, default=0.7, help="sampling temperature in validation and test")
    parser.add_argument(
        "--price", type=float, default=0.0, help="what 1,000 tokens cost in validation, in units of reward"
    )
    parser.add_argument("--lr", type=float, default=5e-6, help="learning rate")
    parser.add_argument("--seconds", type=float, default=240.0, help="when to stop training, both trainings together")
    parser.add_argument("--changes", nargs="*", default=[], help="changes to both recipes: a.b=c")
    parser.add_argument("--out", type=Path, help="a file for the result, as JSON")
    parser.add_argument("--tiny", action="store_true", help="the tiny model on made-up sums")
    given = parser.parse_args(argv)
    if given.tiny:
        given.base, given.max_tokens = "tiny", 8
    elif given.source is None:
        parser.error("--from is missing; expected a folder with GSM8K's train.jsonl and test.jsonl")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(given, Path(folder), began)
    print(json.dumps(found["workflow"]))
    print(found["picture"])
    for name, row in found["table"].items():
        interval = f"{100 * row['right']:.1f}% [{100 * row['low']:.1f}, {100 * row['high']:.1f}]"
        print(f"{name:45} {interval:22} {row['tokens']:8.0f} tokens an answer, {row['failed']} failed")
    print(json.dumps({k: found[k] for k in ("tokens", "validation_episodes", "seconds")}))
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    return found


if __name__ == "__main__":
    main()
