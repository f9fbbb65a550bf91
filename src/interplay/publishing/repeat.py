"""The commands that repeat some studies, for their report."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from interplay.config import packaged, validate
from interplay.publishing.results import Results
from interplay.publishing.study import StudySection

OUT = "runs/experiment"  # where `interplay experiment` writes if the user names no folder


def commands(studies: Sequence[Results]) -> list[str]:
    """The commands, in the order in which they are called. If the file of a study is not known, its name is there."""
    out = []
    for s in studies:
        words = list(s.about.get("given", ())) or _given(s.about)
        out.append(
            _line("experiment", *words) if words else f"`interplay experiment` with the file of study `{s.name}`"
        )
    return [*out, *(_line(*words) for words in _told(studies)), _line("publish", OUT)]


def _line(*words: str) -> str:
    return f"`{shlex.join(['interplay', *words])}`"


def _given(about: Mapping[str, Any]) -> list[str]:
    """What `interplay experiment` was given, for a folder of an earlier version, which did not write it down: the file
    among those of the package that has this name, and how the study differs from it. Empty if there is none."""
    root = Path(next(iter(packaged().values()))).parents[1]
    for path in sorted(root.rglob("experiment/*.toml")):
        known = validate(StudySection, tomllib.loads(path.read_text(encoding="utf-8"))).model_dump()
        common, seeds = known["common"], known["seeds"]
        same = about.get("common", [])[: len(common)] == common and seeds[: len(about["seeds"])] == about["seeds"]
        if same and all(about.get(key) == known[key] for key in ("name", "recipe", "arms", "tests", "contrasts")):
            few = [] if about["seeds"] == seeds else ["--seeds", str(len(about["seeds"]))]
            file = Path("recipes") / path.relative_to(root)
            return [file.as_posix(), *about.get("common", [])[len(common) :], *few]
    return []


def _told(studies: Sequence[Results]) -> Iterator[list[str]]:
    """The trainings whose stories are in the report, in the folder from which they are printed."""
    for file in sorted(studies[0].folder.parent.glob("stories/*/run.json")) if studies else ():
        sessions = json.loads(file.read_text(encoding="utf-8")).get("sessions") or [{}]
        words = list(sessions[0].get("command") or [])[1:]
        if "--run" in words:
            words[words.index("--run") + 1] = f"{OUT}/stories/{file.parent.name}"
            yield words
