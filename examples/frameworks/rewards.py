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
