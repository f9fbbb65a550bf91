"""What judges said about recorded episodes, and whether the order of two replies changed it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from interplay.config.judges import JudgeSection
from interplay.errors import InterplayError
from interplay.rewards import judge as asking
from interplay.viewer.episode import message_row
from interplay.viewer.run import RunReader

_EPISODES = 50  # the latest episodes whose verdicts are shown


def verdicts(run: RunReader, query: Mapping[str, str]) -> dict[str, Any]:
    """The verdicts of the latest episodes, newest first. A judge of pairs may be asked in both orders: its choice
    changed with the order if it prefers the same place, A or B, in both."""
    index = run.source("train")
    sections = {} if run.recipe is None else run.recipe.judges
    rows: list[dict[str, Any]] = []
    for number in range(len(index.places) - 1, max(-1, len(index.places) - 1 - _EPISODES), -1):
        try:
            rows += _rows(index.read(number), sections)
        except (InterplayError, KeyError, TypeError):
            continue
    asked, both, flipped = Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        asked[row["judge"]] += 1
        both[row["judge"]] += row["flipped"] is not None
        flipped[row["judge"]] += row["flipped"] is True
    judges = [{"name": n, "asked": c, "both": both[n], "flipped": flipped[n]} for n, c in sorted(asked.items())]
    return {"rows": rows, "judges": judges}


def _rows(episode: Mapping[str, Any], sections: Mapping[str, JudgeSection]) -> Iterator[dict[str, Any]]:
    questions: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for turn in episode.get("judged", ()):
        questions.setdefault((turn["keys"]["phase"], turn["keys"]["decision"]), []).append(turn)
    for (judge, question), turns in questions.items():
        turns.sort(key=lambda t: t["candidate"])
        section = sections.get(judge)
        pairwise = section is not None and section.kind == "pairwise"
        answers = [
            {
                "text": t["text"],
                "swapped": bool(t["candidate"] % 2) if pairwise else None,
                "first": _prefers_first(t) if pairwise else None,
                "parsed": section is None or _parsed(t["text"], section),
            }
            for t in turns
        ]
        yield {
            "judge": judge,
            "episode": episode["id"],
            "question": question,
            "messages": [message_row(m) for m in turns[0]["seen"]["messages"]],
            "answers": answers,
            "flipped": _flipped(answers),
        }


def _prefers_first(turn: Mapping[str, Any]) -> float | None:
    """The probability with which a judge of pairs prefers the reply that it was shown first. A local judge can only say
    A or B, so it follows from the probability of its answer. Other answers are parsed as the run parsed them; None if
    that fails."""
    sample = turn["samples"][-1] if turn["samples"] else None
    if sample and sample["mask"]:
        sure = math.exp(math.fsum(sample["logprobs"]))
        return sure if turn["text"] == asking.PAIRWISE[0] else 1.0 - sure
    return asking.read_choice(turn["text"]).p


def _parsed(text: str, section: JudgeSection) -> bool:
    """Whether the run could use an answer. With marks = "expected", marks come from probabilities and not from the
    text."""
    if section.marks == "expected":
        return True
    if section.kind == "rubric":
        return asking.read_rubric(text, section.scale, section.rubric) is not None
    if section.kind == "pairwise":
        return asking.read_choice(text).p is not None
    return asking.read_mark(text, section.scale) is not None


def _flipped(answers: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether the judge preferred the same place in both orders; None unless both were asked and answered. Votes are
    averaged."""
    means = []
    for swapped in (False, True):
        votes = [a["first"] for a in answers if a["swapped"] is swapped and a["first"] is not None]
        if not votes:
            return None
        means.append(fmean(votes) - 0.5)
    return means[0] * means[1] > 0
