"""What judges said about recorded episodes, and whether the order of two replies changed it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from interplay.errors import InterplayError
from interplay.viewer.episode import message_row
from interplay.viewer.run import RunReader

_EPISODES = 50  # the latest episodes whose verdicts are shown


def verdicts(run: RunReader, query: Mapping[str, str]) -> dict[str, Any]:
    """The verdicts of the latest episodes, newest first. A judge of pairs may be asked in both orders: its choice
    changed with the order if it prefers the same place, A or B, in both."""
    index = run.source("train")
    rows: list[dict[str, Any]] = []
    for number in range(len(index.places) - 1, max(-1, len(index.places) - 1 - _EPISODES), -1):
        try:
            rows += _rows(index.read(number))
        except (InterplayError, KeyError, TypeError):
            continue
    asked, both, flipped = Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        asked[row["judge"]] += 1
        both[row["judge"]] += row["flipped"] is not None
        flipped[row["judge"]] += row["flipped"] is True
    judges = [{"name": n, "asked": c, "both": both[n], "flipped": flipped[n]} for n, c in sorted(asked.items())]
    return {"rows": rows, "judges": judges}


def _rows(episode: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    questions: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for turn in episode.get("judged", ()):
        questions.setdefault((turn["keys"]["phase"], turn["keys"]["decision"]), []).append(turn)
    for (judge, question), turns in questions.items():
        turns.sort(key=lambda t: t["candidate"])
        answers = [{"text": t["text"], "swapped": bool(t["candidate"] % 2), "first": _prefers_first(t)} for t in turns]
        yield {
            "judge": judge,
            "episode": episode["id"],
            "question": question,
            "messages": [message_row(m) for m in turns[0]["seen"]["messages"]],
            "answers": answers,
            "flipped": _flipped(answers),
        }


def _prefers_first(turn: Mapping[str, Any]) -> float | None:
    """How surely a judge of pairs prefers the reply that it was shown first. A local judge can only say A or B, so the
    probability of its answer says it; None if the answer is no A or B."""
    said = turn["text"].strip()
    if said not in ("A", "B"):
        return None
    sample = turn["samples"][-1] if turn["samples"] else None
    sure = math.exp(math.fsum(sample["logprobs"])) if sample and sample["mask"] else 1.0
    return sure if said == "A" else 1.0 - sure


def _flipped(answers: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether the choice followed the place; None unless both orders were asked and answered. Votes are averaged."""
    means = []
    for swapped in (False, True):
        votes = [a["first"] for a in answers if a["swapped"] is swapped and a["first"] is not None]
        if not votes:
            return None
        means.append(fmean(votes) - 0.5)
    return means[0] * means[1] > 0
