"""Reads comparisons and labelled answers from disk. Files are JSON lines (also .gz) or one JSON list.

{"question": text or [[role, content], …], "chosen": text, "rejected": text}      a comparison
{"question": …, "answer": text, "right": true}                                     an answer for a verifier
{"chosen": "\\n\\nHuman: …\\n\\nAssistant: …", "rejected": "…"}                        Anthropic's HH-RLHF
{"input": text, "output_1": text, "output_2": text, "label": 1 or 2}               people on MT-bench
{"question": …, "ground_truth": …, "MODEL": {"is_correct": …, "solution": …}}      OpenAI's GSM8K solutions

A question may also be a list of {"role": …, "content": …}. An answer may have a "group", the name of its question, if
one question is asked in several prompts.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
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
    for n, row in _rows(path):
        try:
            pair = _pair(row, n)
        except _Unreadable as error:
            raise DataError(f"{path} row {n} has {error}.") from None
        if pair is None:
            raise DataError(
                f"{path} row {n} has the fields {sorted(row)}; expected question, and chosen and rejected as texts."
            )
        out.append(pair)
    return out


def read_answers(path: Path) -> list[LabelledAnswer]:
    """Every labelled answer of a file."""
    out: list[LabelledAnswer] = []
    for n, row in _rows(path):
        try:
            out += _answers(row)
        except _Unreadable as error:
            raise DataError(f"{path} row {n} has {error}.") from None
    return out


class _Unreadable(Exception):
    """What is wrong with a row, and what was expected."""


def _answers(row: dict[str, Any]) -> list[LabelledAnswer]:
    solved = [
        v for v in row.values() if isinstance(v, dict) and isinstance(v.get("solution"), str) and "is_correct" in v
    ]
    if "question" in row and isinstance(row.get("right"), bool) and isinstance(row.get("answer"), str):
        group = str(row.get("group", row["question"]))
        return [LabelledAnswer(_messages(row["question"]), row["answer"], row["right"], group)]
    if "question" not in row or not solved:
        raise _Unreadable(
            f"the fields {sorted(row)}; expected question, answer (a text) and right (true or false, without quotes)"
        )
    asked = _messages(row["question"])
    return [LabelledAnswer(asked, v["solution"], bool(v["is_correct"]), str(row["question"])) for v in solved]


def _pair(row: dict[str, Any], n: int) -> Pair | None:
    if "input" in row and {"output_1", "output_2", "label"} <= set(row):
        first, second, chosen = row["output_1"], row["output_2"], row["label"]
        if not isinstance(first, str) or not isinstance(second, str):
            raise _Unreadable("an output_1 or output_2 that is not a text; expected both replies as texts")
        label = 1.0 if chosen == 1 else 0.0 if chosen == 2 else 0.5
        return Pair(f"row {n}", _messages(row["input"]), first, second, label, str(row["input"]))
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
    said = [_message(one) for one in question] if isinstance(question, list) else []
    if not said or None in said:
        raise _Unreadable(
            "a question that is neither a text nor a conversation; expected a text, [[role, content], …] or "
            '[{"role": …, "content": …}, …]'
        )
    return tuple(one for one in said if one is not None)


def _message(part: Any) -> Message | None:
    found = [part.get("role"), part.get("content")] if isinstance(part, dict) else part
    if not isinstance(found, list) or len(found) != 2 or not all(isinstance(one, str) for one in found):
        return None
    return Message(*found)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every row with its number: that of its line, or its place in the list."""
    if not path.is_file():
        raise DataError(f"'{path}' does not exist; expected a file of comparisons: JSON lines or a JSON list.")
    n = 0
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = data.decode("utf-8-sig")
        whole = text.lstrip().startswith("[")
        # A text in JSON may contain U+2028 and U+0085, at which splitlines() would also break.
        for n, row in enumerate(json.loads(text) if whole else text.split("\n"), 1):
            if not whole and not row.strip():
                continue
            found = row if whole else json.loads(row)
            if not isinstance(found, dict):
                raise ValueError(f"{type(found).__name__} instead of an object")
            yield n, found
    except (OSError, EOFError, RecursionError, ValueError, zlib.error) as error:
        at = f"row {n}: " if n else ""
        raise DataError(f"'{path}' is not a file of JSON lines or a JSON list ({at}{error}).") from None
