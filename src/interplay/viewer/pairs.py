"""Two replies to one prompt, for a person to compare without knowing how they were scored.

The verdicts are appended to `labels.jsonl` in the run folder, in the forms that `rewards/comparisons.py` reads:
question, chosen and rejected; or, for a tie, input, output_1, output_2 and the label 0. `interplay judge audit` reads
such files.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from interplay.errors import InterplayError
from interplay.types import seed_of
from interplay.viewer.run import RunReader

LABELS = "labels.jsonl"
_TRIES = 200


def next_pair(run: RunReader, query: Mapping[str, str]) -> dict[str, Any]:
    """Pair number `n` of a run: two different replies to one prompt that nobody has compared yet, in random order. The
    same number always gives the same pair, as long as the run has the same episodes and labels."""
    number, index = int(query.get("n", "0")), run.source("train")
    done, compared = _count(run), _compared(run)
    if not index.places:
        return {"pair": None, "labelled": done}
    rng = random.Random(seed_of("pair", run.key, number))
    for _ in range(_TRIES):
        place = rng.randrange(len(index.places))
        groups: dict[str, list[Mapping[str, Any]]] = {}
        for n in [place, *index.group(index.places[place].step, index.places[place].task)][:9]:
            for turn in index.read(n)["turns"]:
                if turn["playout"] is None and turn["samples"]:
                    groups.setdefault(turn["keys"]["prompt"] + turn["keys"]["role"], []).append(turn)
        able = [turns for turns in groups.values() if len({t["text"] for t in turns}) > 1]
        if able:
            turns = rng.choice(able)
            first = rng.choice(turns)
            second = rng.choice([t for t in turns if t["text"] != first["text"]])
            pair = _pair(first, second)
            if _identity(pair["input"], pair["output_1"], pair["output_2"]) not in compared:
                return {"pair": pair, "labelled": done}
    return {"pair": None, "labelled": done}


def _pair(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "input": [[m[0], m[1]] for m in first["seen"]["messages"]],
        "role": first["keys"]["role"],
        "output_1": first["text"],
        "output_2": second["text"],
    }


def label(run: RunReader, given: Mapping[str, Any]) -> int:
    """Store a verdict. Returns how many there are."""
    texts = [given.get(name) for name in ("output_1", "output_2")]
    messages, verdict = given.get("input"), given.get("label")
    if verdict not in (0, 1, 2) or not all(isinstance(t, str) for t in texts) or not isinstance(messages, list):
        raise InterplayError("a label needs input, output_1, output_2 and label (1, 2, or 0 for a tie).")
    row: dict[str, Any] = {"question": messages, "chosen": texts[verdict == 2], "rejected": texts[verdict == 1]}
    if verdict == 0:
        row = {"input": _asked(messages), "output_1": texts[0], "output_2": texts[1], "label": 0}
    with run.lock, (run.folder / LABELS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row, separators=(",", ":")) + "\n")
    return _count(run)


def _asked(messages: list[Any]) -> str:
    return "\n\n".join(str(content) for _, content in messages)


def _identity(asked: Any, *replies: Any) -> tuple[str, frozenset[Any]]:
    """What two pairs have in common if a person need not compare both: the question and the two replies."""
    return (asked if isinstance(asked, str) else _asked(asked)), frozenset(replies)


def _compared(run: RunReader) -> set[tuple[str, frozenset[Any]]]:
    path = run.folder / LABELS
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    rows = [json.loads(line) for line in lines]
    return {
        _identity(row["question"], row["chosen"], row["rejected"])
        if "question" in row
        else _identity(row["input"], row["output_1"], row["output_2"])
        for row in rows
    }


def _count(run: RunReader) -> int:
    path = run.folder / LABELS
    return path.read_bytes().count(b"\n") if path.is_file() else 0
