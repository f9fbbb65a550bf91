"""Every shipped recipe trains for two steps on a CPU, with everything made small."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from interplay import algorithms, config
from interplay.rollout.resolve import resolve
from interplay.training.trainer import Trainer

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").glob("*/*.toml"))


def _preferred(path: Path) -> tuple[bool, bool, bool]:
    """Prefers the smallest games, and recipes that are named after their algorithm."""
    return path.parent.name == "matrix", path.parent.name == "tictactoe", path.stem == config.load(path).algorithm.name


# One recipe of each algorithm always runs, and MADDPG's other actor.
ALWAYS = {config.load(p).algorithm.name: p for p in sorted(RECIPES, key=_preferred)}
OFTEN = {*ALWAYS.values(), ROOT / "recipes/matrix/maddpg_gumbel.toml"}
# And one recipe of each kind of task, and of each adapted package.
_KINDS = ("math/word_sums", "math/debate", "nli/debate", "search/dr_mas", "sql/grpo", "tables/grpo", "science/grpo")
_ADAPTED = ("gymnasium/grpo", "openspiel/at_grpo", "pettingzoo/at_grpo", "reasoning_gym/grpo", "textarena/rae")
OFTEN |= {ROOT / f"recipes/{kind}.toml" for kind in (*_KINDS, *_ADAPTED, "robotics/grpo")}
# Random replies solve none of these, so all replies tie.
WORK = {"sums", "math", "nli", "search", "code", "debugging", "hardware", "sql", "tables", "science", "robotics"}
WORK |= {"reasoning_gym:chain_sum", "workflow:sums"}


def small(path: Path) -> config.Recipe:
    """The recipe with few tasks and the smallest model. Instead of a long imitation, only legal replies can be
    sampled."""
    recipe = config.load(path)
    sees = [name for name, policy in recipe.policies.items() if "VL" in policy.base]
    changes = [f"policies.{name}.base=tiny-vl" for name in sees]
    if sees:
        changes += ["env.cell=8", "env.size=4", "env.turns=3", "sampling.max_tokens=8", "algorithm.entropy=0.01"]
    changes += [
        f"policies.{name}.base=tiny-32x1"
        for name, policy in recipe.policies.items()
        if name not in sees and not policy.base.startswith(("tiny-vl", "tiny-av"))  # no smaller one sees or hears
    ]
    changes += [f"judges.{n}.who=base:tiny-32x1" for n, j in recipe.judges.items() if j.who.startswith("base:")]
    # An untrained judge writes no marks, so they are computed from its probabilities.
    changes += [f"judges.{n}.marks=expected" for n, j in recipe.judges.items() if j.kind == "rubric"]
    changes += [
        "train.steps=2",
        "train.minibatches=2",
        "train.epochs=1",
        "rollout.tasks=4",
        "device=cpu",
        "records.tensorboard=off",
    ]
    work = recipe.env.name in WORK or path.parent.name == "results"  # these have no imitation and no masks
    if recipe.warmstart:
        changes += ["warmstart.episodes=16", "warmstart.epochs=1", "warmstart.lr=0.01", "warmstart.batch=16"]
        changes += [] if work else ["sampling.legal=true"]
    changes += ["env.line=2"] if recipe.env.name == "tictactoe" else []
    changes += ["algorithm.entropy=0.01", "sampling.max_tokens=16", "rollout.tasks=2"] if work else []
    changes += ["algorithm.group=2"] if work and "group" in recipe.algorithm.options else []
    changes += ["env.max_steps=6", "algorithm.entropy=0.01"] if recipe.env.name.startswith("gymnasium:") else []
    changes += ["env.rounds=2"] if "rounds" in recipe.env.options else []
    changes += ["algorithm.warmup=0"] if "warmup" in recipe.algorithm.options else []
    return config.load(path, changes)


def test_every_algorithm_has_a_recipe() -> None:
    used = {config.load(path).algorithm.name for path in RECIPES}
    assert used == set(algorithms.known())


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=f"{p.parent.name}/{p.stem}", marks=() if p in OFTEN else pytest.mark.slow) for p in RECIPES],
)
def test_a_recipe_trains_two_steps(path: Path, tmp_path: Path) -> None:
    """Weights change, and every logged number is finite."""
    seen: list[dict[str, float]] = []
    recipe = small(path)
    python = dict(recipe.env.options.get("program", {})).get("python", "")
    if python and shutil.which(python) is None:
        pytest.skip(f"{python} is missing: make frameworks installs it, and make test-frameworks trains with it")
    trainer = Trainer(resolve(recipe), tmp_path)
    trainer.observer.stepped = lambda step, metrics: seen.append(dict(metrics))
    try:
        trainer.train()
    finally:
        trainer.close()
    assert len(seen) == 2
    assert all(math.isfinite(v) for metrics in seen for v in metrics.values())
    moved = [metrics.get(f"{name}/grad_norm", 0.0) for metrics in seen for name in trainer.learners]
    assert max(moved) > 0, "no policy had a gradient in two steps"
