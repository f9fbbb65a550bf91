"""Every example of examples/frameworks really runs, in the environment where it is installed, and trains a tiny model.

make test-frameworks makes these environments and says where they are; without them these tests are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from interplay.config import load
from interplay.rollout import records
from interplay.rollout.resolve import resolve
from interplay.training.trainer import Observer, Trainer

ROOT = Path(__file__).parents[2]
RECIPES = {p.stem: p for p in (ROOT / "recipes" / "programs").glob("*.toml") if "python" in p.read_text()}
RECIPES["rlhf"] = ROOT / "recipes" / "rlhf" / "langgraph.toml"
SETS = [(name, "B" if "frameworks-b" in path.read_text() else "A") for name, path in sorted(RECIPES.items())]
SETS.append(("agents_sdk", "B"))  # an older version of the Agents SDK, with version 2 of the openai package

# With an untrained tiny model, these programs may ask the planner alone. Its reply is cut off, which the Agents SDK
# reports as an error, and it calls no agent, as a manager of smolagents must.
PLANNER_ALONE = ("agents_sdk", "smolagents")


def test_there_is_a_recipe_for_every_framework() -> None:
    examples = {p.stem.removesuffix("_team") for p in (ROOT / "examples" / "frameworks").glob("*_team.py")}
    assert examples <= set(RECIPES) and len(examples) == 8


@pytest.mark.parametrize(("name", "kind"), SETS)
def test_a_team_of_a_framework_trains(name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = os.environ.get(f"FRAMEWORKS_{kind}")
    if not python:
        pytest.skip(f"FRAMEWORKS_{kind} names no Python with the framework; see make test-frameworks")
    trains(name, python, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), [("langgraph", "a"), ("agents_sdk", "b")])
def test_one_framework_of_each_set_trains(
    name: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set A has version 3 of the openai package, and set B version 2."""
    folder = ROOT / f".venv-frameworks-small-{kind}"
    if not (folder / "installed").exists():
        pytest.skip(f"{folder.name} is not installed; make test-slow installs it if the package index can be reached")
    trains(name, str(folder / "bin" / "python"), tmp_path, monkeypatch)


def trains(name: str, python: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps: no episode fails, and the calls of every role are turns with sampled ids."""
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))
    small = ["train.steps=2", "rollout.tasks=2", "algorithm.group=2", "env.program.seconds=120.0", "device=cpu"]
    plan = resolve(load(RECIPES[name], [f'env.program.python="{os.path.abspath(python)}"', *small]))
    trainer = Trainer(plan, folder)
    seen: list[dict[str, Any]] = []
    trainer.observer = Observer(stepped=lambda step, metrics: seen.append(dict(metrics)))
    try:
        trainer.train()
    finally:
        trainer.close()
    turns = [turn for one in records.read(folder / "episodes.jsonl") for turn in one.episode.turns]
    assert all(turn.sampled for turn in turns)
    asked = {turn.role for turn in turns}
    assert asked == set(plan.roles) or (name in PLANNER_ALONE and asked == {"planner"})
    assert len(seen) == 2
    for metrics in seen:
        assert metrics["episodes_failed"] == 0
        assert metrics["turns_per_episode"] >= 1  # a reply that is cut off ends some programs
        assert any(key.startswith("history/") for key in metrics)
