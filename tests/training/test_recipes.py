"""Every shipped recipe trains: two steps on a CPU, with everything made small."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from transformers.utils import logging as transformers_logging

from interplay import algorithms, config
from interplay.rollout.resolve import resolve
from interplay.training.trainer import Trainer

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").glob("*/*.toml"))
# One of each kind of machinery runs always: groups, central critic, coalitions, fitted networks, reference, custom.
ALWAYS = {"matrix/grpo", "matrix/mappo", "matrix/shapley", "matrix/qmix", "tictactoe/online_dpo", "matrix/custom"}
ALWAYS |= {"math/word_sums", "math/debate", "nli/debate", "search/dr_mas"}  # and one of each kind of work
ALWAYS |= {"sql/grpo", "tables/grpo", "science/grpo", "robotics/grpo"}
# Chance solves none of it: all replies tie.
WORK = {"sums", "math", "nli", "search", "code", "debugging", "hardware", "sql", "tables", "science", "robotics"}


def small(path: Path) -> config.Recipe:
    """The recipe with few tasks, a short imitation and the smallest model."""
    recipe = config.load(path)
    changes = [f"policies.{name}.base=tiny-32x1" for name in recipe.policies]
    changes += [
        "train.steps=2",
        "train.minibatches=2",
        "train.epochs=1",
        "rollout.tasks=2",
        "device=cpu",
        "records.tensorboard=off",
    ]
    changes += (
        [f"warmstart.episodes={16 if recipe.env.name in WORK else 150}", "warmstart.lr=0.01", "warmstart.batch=16"]
        if recipe.warmstart
        else []
    )
    changes += ["env.size=2", "env.line=2"] if recipe.env.name == "tictactoe" else []
    changes += ["algorithm.entropy=0.01", "sampling.max_tokens=16"] if recipe.env.name in WORK else []
    changes += ["algorithm.group=2"] if recipe.env.name in WORK and "group" in recipe.algorithm.options else []
    changes += ["env.rounds=2"] if "rounds" in recipe.env.options else []
    changes += ["algorithm.warmup=0"] if "warmup" in recipe.algorithm.options else []
    return config.load(path, changes)


def test_every_algorithm_has_a_recipe() -> None:
    used = {config.load(path).algorithm.name for path in RECIPES}
    assert used == set(algorithms.known())


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(p, id=name, marks=() if name in ALWAYS else pytest.mark.slow)
        for p in RECIPES
        for name in [f"{p.parent.name}/{p.stem}"]
    ],
)
def test_a_recipe_trains_two_steps(path: Path, tmp_path: Path) -> None:
    """Weights move, and every number that is logged is finite."""
    transformers_logging.disable_progress_bar()
    seen: list[dict[str, float]] = []
    trainer = Trainer(resolve(small(path)), tmp_path)
    trainer.observer.stepped = lambda step, metrics: seen.append(dict(metrics))
    try:
        trainer.train()
    finally:
        trainer.close()
    assert len(seen) == 2
    assert all(math.isfinite(v) for metrics in seen for v in metrics.values())
    moved = [metrics.get(f"{name}/grad_norm", 0.0) for metrics in seen for name in trainer.learners]
    assert max(moved) > 0, "no policy had a gradient in two steps"
