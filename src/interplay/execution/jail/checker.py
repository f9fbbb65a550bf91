"""Runs a user's checker: a program that defines `check(input, expected, actual)` and says whether the output is right.

The checker and one output come on standard input. The verdict goes to standard output: `accepted` is true, false, or
null if the checker gave no verdict, and `trouble` says why.
"""

from __future__ import annotations

import json
import os
from typing import Any

from interplay.execution.jail.script import become_script
from interplay.execution.jail.values import get


def main() -> int:
    asked = get(0)
    said, null = os.dup(1), os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.write(said, json.dumps(_verdict(asked)).encode())
    return 0


def _verdict(asked: dict[str, str]) -> dict[str, Any]:
    main = become_script("checker.py")
    try:
        exec(compile(asked["checker"], "checker.py", "exec", dont_inherit=True), main.__dict__)
        accepted = main.__dict__["check"](asked["input"], asked["expected"], asked["actual"])
    except KeyError as error:
        missing = "check" not in main.__dict__
        trouble = "it does not define check(input, expected, actual)" if missing else f"KeyError: {error}"
        return {"accepted": None, "trouble": trouble}
    except BaseException as error:
        return {"accepted": None, "trouble": f"{type(error).__name__}: {error}"[:200]}
    if isinstance(accepted, bool):
        return {"accepted": accepted, "trouble": ""}
    return {"accepted": None, "trouble": f"check() returned {accepted!r:.100}; expected True or False"}
