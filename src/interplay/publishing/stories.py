"""Stories of runs without a gold score: what the learner and its partner wrote at the end of training.

The runs are folders RUNS/stories/seed-N, as `interplay train` writes them.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from interplay.evaluation.intervals import mean
from interplay.publishing.document import Heading, PageBlock, Paragraph
from interplay.publishing.facts import Facts
from interplay.publishing.files import rows_of

_WINDOW = 3  # steps at the start and at the end that are compared


def stories(runs: Path, facts: Facts) -> list[PageBlock]:
    """The best story of each run's last steps, and how the judge's marks changed; empty if there are no such runs."""
    folders = sorted(path.parent for path in (runs / "stories").glob("seed-*/episodes.jsonl"))
    if not folders:
        return []
    out: list[PageBlock] = [Heading("Stories in free text"), Paragraph(_marks(folders, facts))]
    for folder in folders:
        path = folder / "episodes.jsonl"
        told = _story(_best(rows_of(path)))
        out += [
            Heading(facts.constant(f"Seed {folder.name[5:]}", str(folder)), 3),
            Paragraph(facts.constant(told, str(path))),
        ]
    return out


def _marks(folders: list[Path], facts: Facts) -> str:
    """The judge's marks in the first and in the last steps, and their difference over seeds."""
    first, last = [], []
    for folder in folders:
        rows = rows_of(folder / "metrics.jsonl")
        marks = [row[key] for row in rows for key in row if key.startswith("reward/taste/")]
        first.append(fmean(marks[:_WINDOW]))
        last.append(fmean(marks[-_WINDOW:]))
    sources = [folder / "metrics.jsonl" for folder in folders]
    gap = mean([b - a for a, b in zip(first, last, strict=True)])
    return (
        f"{_who(folders[0], facts)} marks the consistency and creativity of the learner's part by a rubric, from minus "
        "one (the lowest mark) to one (the highest). There is no gold score for free text. "
        f"The mean mark was {facts.interval(mean(first), '.3f', *sources)} in the first three steps and "
        f"{facts.interval(mean(last), '.3f', *sources)} in the last three; the difference is "
        f"{facts.interval(gap, '+.3f', *sources)} over {facts.say(len(folders), 'd', *sources)} seeds. "
        "Each story below has the best mark of those that its run recorded in its last steps; other stories have lower "
        "marks. The partner's sentences are in brackets."
    )


def _who(folder: Path, facts: Facts) -> str:
    """The beginning of a sentence: who writes with whom, and who marks."""
    policies = json.loads((folder / "run.json").read_text())["recipe"]["policies"]
    learner, partner, judge = (
        facts.constant(str(policies[name]["base"]), str(folder / "run.json"))
        for name in ("learner", "partner", "judge")
    )
    return (
        f"The learner ({learner}) writes with a partner that is not trained ({partner}). A judge that is not trained "
        f"({judge})"
    )


def _best(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The episode with the highest mark of the last steps that were recorded."""
    steps = sorted({row["step"] for row in rows})[-_WINDOW:]

    def mark(row: dict[str, Any]) -> float:
        return sum(value for name, _, _, value in row["episode"]["rewards"] if name == "taste")

    best: dict[str, Any] = max((row for row in rows if row["step"] in steps), key=mark)["episode"]
    return best


def _story(episode: dict[str, Any]) -> str:
    said = [(t["keys"]["role"], " ".join(t["text"].split())) for t in episode["turns"] if t["kept"]]
    return " ".join(text if role == "learner" else f"({text})" for role, text in said if text)
