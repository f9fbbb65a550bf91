"""Reads comparisons and labelled answers from disk. Files are JSON lines (also .gz) or one JSON list.

{"question": text or [[role, content], …], "chosen": text, "rejected": text}      a comparison
{"question": …, "answer": text, "right": true}                                     an answer for a verifier
{"chosen": "\\n\\nHuman: …\\n\\nAssistant: …", "rejected": "…"}                        Anthropic's HH-RLHF
{"input": text, "output_1": text, "output_2": text, "label": 1 or 2}               people on MT-bench
{"question": …, "ground_truth": …, "MODEL": {"is_correct": …, "solution": …}}      OpenAI's GSM8K solutions

An answer may have a "group", the name of its question, if one question is asked in several prompts.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interplay.errors import DataError
from interplay.rewards.preference import Pair
from interplay.types import Message

_SPEAKER = re.compile(r"\n\n(Human|Assistant): ?")


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """An answer that is right or wrong; `group` names its question."""

    question: tuple[Message, ...]
    text: str
    right: bool
    group: str


def read_comparisons(path: Path) -> list[Pair]:
    """Every comparison of a file; the first reply is the better one, unless people chose the second."""
    out = []
    for n, row in enumerate(_rows(path), 1):
        pair = _pair(row, n)
        if pair is None:
            raise DataError(f"{path} row {n} has the fields {sorted(row)}; expected question, chosen and rejected.")
        out.append(pair)
    return out


def read_answers(path: Path) -> list[LabelledAnswer]:
    """Every labelled answer of a file."""
    out: list[LabelledAnswer] = []
    for n, row in enumerate(_rows(path), 1):
        if isinstance(row.get("right"), bool) and isinstance(row.get("answer"), str) and "question" in row:
            group = str(row.get("group", row["question"]))
            out.append(LabelledAnswer(_messages(row["question"]), row["answer"], row["right"], group))
            continue
        solved = [v for v in row.values() if isinstance(v, dict) and {"is_correct", "solution"} <= set(v)]
        if not solved:
            raise DataError(f"{path} row {n} has the fields {sorted(row)}; expected question, answer and right.")
        asked = _messages(row["question"])
        out += [LabelledAnswer(asked, v["solution"], bool(v["is_correct"]), str(row["question"])) for v in solved]
    return out


def _pair(row: dict[str, Any], n: int) -> Pair | None:
    if "input" in row and {"output_1", "output_2", "label"} <= set(row):
        label = {1: 1.0, 2: 0.0}.get(row["label"], 0.5)
        return Pair(f"row {n}", _messages(row["input"]), row["output_1"], row["output_2"], label, str(row["input"]))
    if not isinstance(row.get("chosen"), str) or not isinstance(row.get("rejected"), str):
        return None
    if "question" in row:
        asked = _messages(row["question"])
        return Pair(f"row {n}", asked, row["chosen"], row["rejected"], 1.0, str(row["question"]))
    chosen, rejected = _spoken(row["chosen"]), _spoken(row["rejected"])
    if not chosen or not rejected or chosen[-1].role != "assistant" or rejected[-1].role != "assistant":
        return None
    group = "\n".join(m.content for m in chosen[:-1])
    return Pair(f"row {n}", chosen[:-1], chosen[-1].content, rejected[-1].content, 1.0, group)


def _spoken(text: str) -> tuple[Message, ...]:
    _, *parts = _SPEAKER.split(text)
    named = {"Human": "user", "Assistant": "assistant"}
    return tuple(Message(named[who], said.strip()) for who, said in zip(parts[::2], parts[1::2], strict=True))


def _messages(question: Any) -> tuple[Message, ...]:
    if isinstance(question, str):
        return (Message("user", question),)
    return tuple(Message(role, content) for role, content in question)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        raise DataError(f"'{path}' does not exist; expected a file of comparisons: JSON lines or a JSON list.")
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            text = file.read()
        rows = json.loads(text) if text.lstrip().startswith("[") else map(json.loads, text.splitlines())
        for row in rows:
            if not isinstance(row, dict):
                raise ValueError(f"{type(row).__name__} instead of an object")
            yield row
    except (OSError, ValueError) as error:
        raise DataError(f"'{path}' is not a file of JSON lines or a JSON list ({error}).") from None
