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

_EPISODES = 10  # episodes on one page


def verdicts(run: RunReader, query: Mapping[str, str]) -> dict[str, Any]:
    """One page of verdicts: those of ten episodes, the newest first. A judge of pairs may be asked in both orders: its
    choice changed with the order if it prefers the same place, A or B, in both."""
    index = run.source("train")
    places = index.places
    last = len(places) - 1 - _EPISODES * max(0, int(query.get("page", "0")))
    rows: list[dict[str, Any]] = []
    for number in range(last, max(-1, last - _EPISODES), -1):
        try:
            rows += [{**row, "step": places[number].step} for row in verdicts_on(run, index.read(number))]
        except (InterplayError, KeyError, TypeError):
            continue
    asked, both, flipped = Counter[str](), Counter[str](), Counter[str]()
    for row in rows:
        asked[row["judge"]] += 1
        both[row["judge"]] += row["flipped"] is not None
        flipped[row["judge"]] += row["flipped"] is True
    judges = [{"name": n, "asked": c, "both": both[n], "flipped": flipped[n]} for n, c in sorted(asked.items())]
    return {"rows": rows, "judges": judges, "episodes": len(places), "page_size": _EPISODES}


def verdicts_on(run: RunReader, episode: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What judges said about one episode: a row for each question, with the answers to it."""
    sections = {} if run.recipe is None else run.recipe.judges
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
            "policy": turns[0]["policy"],
            "episode": episode["id"],
            "question": question,
            "messages": [message_row(m) for m in turns[0]["seen"]["messages"]],
            "answers": answers,
            "flipped": _flipped(answers),
        }


def compared_earlier(run: RunReader, source: str, number: int) -> list[str]:
    """The earlier episodes of the same group, if a judge of the run compares the episodes of a group with each other: a
    comparison is kept with the earlier one of the two."""
    sections = () if run.recipe is None else run.recipe.judges.values()
    if not any(s.kind == "pairwise" and s.against == "group" and s.policy is not None for s in sections):
        return []
    index = run.episodes[source]
    place = index.places[number]
    return [index.places[n].id for n in index.group(place.step, place.task) if n < number]


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
