"""What judges said about recorded episodes, and whether the order of two replies changed it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from interplay.errors import InterplayError
from interplay.viewer.episode import message_row
from interplay.viewer.run import RunReader

_EPISODES = 50  # the latest episodes whose verdicts are shown


def verdicts(run: RunReader, query: Mapping[str, str]) -> dict[str, Any]:
    """The verdicts of the latest episodes, newest first. A judge of pairs may be asked in both orders: it is consistent
    if it chooses A in one and B in the other."""
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
        said = {bool(t["candidate"] % 2): t["text"].strip() for t in turns}
        letters = set(said.values()) <= {"A", "B"} and len(said) == 2
        yield {
            "judge": judge,
            "episode": episode["id"],
            "question": question,
            "messages": [message_row(m) for m in turns[0]["seen"]["messages"]],
            "answers": [{"text": t["text"], "swapped": bool(t["candidate"] % 2)} for t in turns],
            "flipped": said[False] == said[True] if letters else None,
        }
