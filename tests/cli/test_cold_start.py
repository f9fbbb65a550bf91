"""What a command imports before its first result. Importing too much makes every start slower."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
# Libraries that a training run on one machine without extras has no use for.
NEVER = (
    "datasets", "gymnasium", "matplotlib", "pandas", "peft", "ray", "sklearn", "starlette", "tensorboard",
    "torch._inductor.compile_fx", "torchvision", "uvicorn", "vllm", "wandb",
    "interplay.distributed", "interplay.serving", "interplay.training.shards", "interplay.viewer",
)  # fmt: skip
LIGHT = "import json, sys, interplay.cli.main; print(json.dumps([m for m in sys.argv[1:] if m in sys.modules]))"
STEP = """
import gc, json, sys
from interplay.cli.quiet import quiet_libraries
quiet_libraries()
collections, frozen = sum(generation["collections"] for generation in gc.get_stats()), gc.get_freeze_count()
from interplay.cli.main import app
app(["train", *json.loads(sys.argv[1])], standalone_mode=False)
print(json.dumps([collections, frozen, [m for m in sys.argv[2:] if m in sys.modules]]))
"""


def last_line(code: str, *given: str) -> Any:
    done = subprocess.run([sys.executable, "-c", code, *given], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_command_line_imports_no_library_of_a_single_command() -> None:
    assert last_line(LIGHT, *NEVER, "torch", "transformers", "jinja2", "numpy", "scipy") == []


@pytest.mark.slow
def test_a_training_step_imports_only_what_it_needs_and_the_collector_rarely_runs_meanwhile(tmp_path: Path) -> None:
    changes = ["policies.solver.base=tiny-32x1", "train.steps=1", "sampling.max_tokens=8", "rollout.tasks=4"]
    changes += ["records.tensorboard=off", "eval.before=false", "eval.games=2", "device=cpu"]
    recipe = ["recipes/sums/grpo.toml", "--run", str(tmp_path / "run"), *changes]
    collections, frozen, found = last_line(STEP, json.dumps(recipe), *NEVER)
    assert found == []
    assert collections < 100  # without `rare_collections` there are about a thousand
    assert frozen > 100_000  # later collections do not search through the objects of libraries
