"""What the teams of this folder are paid for: the right number at the end of their answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NUMBER = re.compile(r"-?\d+")


def right(task: Mapping[str, Any], result: Any) -> float:
    """1 if the last number of the answer is the right one."""
    found = _NUMBER.findall(str(result))
    return float(bool(found) and int(found[-1]) == task["answer"])


def preferred(task: Mapping[str, Any], result: Any) -> float:
    """1 if the judge of rlhf_graph.py preferred the learner in both orders, 0 if it preferred the baseline in both, and
    0.5 if it changed its mind or said neither."""
    said = [_choice(text) for text in dict(result)["verdicts"]]
    return {("A", "B"): 1.0, ("B", "A"): 0.0}.get(tuple(said), 0.5)


def _choice(text: str) -> str:
    """The last A or B that stands alone in a verdict, or nothing."""
    found = re.findall(r"\b[AB]\b", text)
    return found[-1] if found else ""
