"""The model card of a trained policy: README.md of an exported folder, made from the files of its run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from interplay.config import Recipe
from interplay.errors import counted
from interplay.evaluation import report
from interplay.evaluation.benchmark import SeatResult
from interplay.evaluation.sheet import markdown


def card(run: Path, recipe: Recipe, policy: str, merged: bool, repo: str | None = None) -> str:
    """The text of the card: what was trained, how, and what was measured. All numbers come from the run's files. `repo`
    is the repository of the hub that it is written for."""
    section = recipe.policies[policy]
    adapter = section.adapter is not None and not merged
    hub = "/" in section.base and not section.base.startswith((".", "/", "~"))
    front = {
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "text-generation",
        **({"base_model": section.base} if hub else {}),
        "tags": ["interplay", "reinforcement-learning", "multi-agent"],
    }
    about = _read(run / "run.json")
    measured = _read(run / "report.json")
    parts = [
        # JSON is valid YAML, and a JSON value cannot end the YAML block early.
        "---\n" + "\n".join(f"{key}: {json.dumps(value)}" for key, value in front.items()) + "\n---",
        f"# {recipe.name}: {policy}",
        _summary(recipe, policy, measured),
        _results(recipe, measured),
        _usage(adapter, repo or "FOLDER"),
        _made(about),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(recipe: Recipe, policy: str, measured: dict[str, Any]) -> str:
    section = recipe.policies[policy]
    kind = "A LoRA adapter for" if section.adapter is not None else "All weights of"
    steps = measured.get("steps", recipe.train.steps)
    return (
        f"{kind} `{section.base}`, trained by reinforcement learning in the environment `{recipe.env.name}` with the "
        f"algorithm `{recipe.algorithm.name}`: {counted(steps, 'step')}, seed {recipe.seed}. Made with "
        "Interplay, which trains teams of language models."
    )


def _results(recipe: Recipe, measured: dict[str, Any]) -> str:
    stages = {k: [SeatResult.from_json(r) for r in rows] for k, rows in measured.get("results", {}).items()}
    if not any(stages.values()):
        return ""
    sheet = report.before_after(stages, "Measured on held-out tasks, one run")
    return markdown(sheet).strip()


def _usage(adapter: bool, name: str) -> str:
    library, kind = ("peft", "AutoPeftModelForCausalLM") if adapter else ("transformers", "AutoModelForCausalLM")
    load = f"model = {kind}.from_pretrained({json.dumps(name)})"
    return f"## Use\n\n```python\nfrom {library} import {kind}\n\n{load}\n```"


def _made(about: dict[str, Any]) -> str:
    """The recipe and the last start of the run: its command, commit and versions."""
    last = (about.get("sessions") or [{}])[-1]
    lines = ["## How it was made", ""]
    if last.get("command"):
        lines.append(f"- command: `{shlex.join(['interplay', *last['command'][1:]])}`")
    if last.get("commit"):
        lines.append(f"- commit: `{last['commit']}`")
    if about.get("versions"):
        lines.append("- versions: " + ", ".join(f"{k} {v}" for k, v in about["versions"].items()))
    text = json.dumps(about.get("recipe", {}), indent=1)
    return "\n".join([*lines, "", "<details><summary>The recipe</summary>", "", _fenced(text), "", "</details>"])


def _fenced(text: str) -> str:
    """A code block whose fence does not occur in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}json\n{text}\n{fence}"


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
