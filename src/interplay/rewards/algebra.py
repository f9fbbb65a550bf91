"""Equality of formulas by math-verify and sympy, in a sandboxed process (`execution/services.py`).

Neither library can be interrupted from a thread, `9**9**9` does not return, and sympy evaluates text as code. If a
comparison takes too long, the answers count as not equal.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from functools import cache
from importlib.util import find_spec
from itertools import accumulate
from typing import Any

from interplay.errors import ConfigError
from interplay.execution.job import Limits
from interplay.execution.services import LibraryQuestion, service

LIMITS = Limits(seconds=60.0, cpu_seconds=3.0, memory_mb=2048.0, output_kb=64.0)  # for one comparison

_TOWER = re.compile(r"(?:\^|\*\*)\s*[{(]?\s*-?\s*(?:\d+|[a-zA-Z])\s*[)}]?\s*(?:\^|\*\*|!)|!\s*[)}\]]*\s*(?:\^|\*\*|!)")
_POWER = re.compile(r"(?:\^|\*\*)\s*[{(]?\s*-?\s*(\d+)")
_FACTORIAL = re.compile(r"(\d+)\s*[)}]?\s*!")
LARGEST_POWER, LARGEST_FACTORIAL, DEEPEST = 5_000, 1_000, 16


def same(gold: str, answer: str) -> bool:
    """Whether two answers, in LaTeX or plain text, are mathematically equal. False if the comparison takes too long."""
    if monstrous(answer):
        return False
    require()
    result = service(__name__).ask(LibraryQuestion([gold, answer], limits=LIMITS))
    return result.ok and result.output == b"true"


@cache
def require() -> None:
    """Raise if math-verify is not installed. Without it, an episode fails if its answer is not a plain number. Every
    task calls this, so it looks for the package only until it is found."""
    if find_spec("math_verify") is None:
        raise ConfigError("comparing formulas needs math-verify: pip install 'interplay[math]'.")


def monstrous(text: str) -> bool:
    """Whether a formula would take too long: powers of powers, enormous powers and factorials, deep nesting."""
    if _TOWER.search(text) or max(accumulate((c in "([{") - (c in ")]}") for c in text), default=0) > DEEPEST:
        return True
    limits = ((_POWER, LARGEST_POWER), (_FACTORIAL, LARGEST_FACTORIAL))
    return any(len(n) > 6 or int(n) > limit for pattern, limit in limits for n in pattern.findall(text))


# -- in the service ---------------------------------------------------------------------------------------------------


# One example of every form. Parser and algebra import and cache a lot, and every question starts from this state.
_FORMS = (
    r"\frac{1}{2}", "2n-2", "2(n-1)", r"\sqrt{8}+\sqrt[3]{2}", "(x-1)(x+1)", r"\frac{\pi}{4}", r"\arctan 1", "[0,1)",
    "(1,8),(2,7)", "x=2", r"\{1,2\}", r"\binom{5}{2}", "2^{10}", "5!", r"\sin(x)^2+\cos(x)^2", r"\log_{2}8", "e^{x}",
    r"x\le 2", r"\infty", r"10\%", "1,250.50", r"a+b\sqrt{2}", "3+4i", "|x|", r"(-\infty,2)\cup(3,4]",
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
)  # fmt: skip

# Pairs that are equal only by algebra. They fill sympy's caches of rules, which comparing equal texts would not do.
_PAIRS = (
    ("(a+b)^2", "a^2+2ab+b^2"), ("5y^2-20", "5(y-2)(y+2)"), (r"\frac{t^2-1}{t-1}", "t+1"), (r"\sqrt{12}", r"2\sqrt{3}"),
    (r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt{2}}{2}"), (r"\sin(2z)", r"2\sin(z)\cos(z)"), ("(e^u)^2", "e^{2u}"),
    (r"\frac{n(n+1)}{2}", r"\frac{n^2+n}{2}"), (r"\ln 8", r"3\ln 2"), ("y=3x-6", "y=3(x-2)"),
)  # fmt: skip


def prepare() -> None:
    logging.disable(logging.CRITICAL)
    sys.set_int_max_str_digits(100_000)
    for form in _FORMS:
        _compare(form, form.replace("2", "3"))
        _compare(form, form)
    for one, other in _PAIRS:
        _compare(one, other)
        _compare(one, f"{other}+1")


def probe() -> tuple[Any, Any]:
    return ["n", "n"], True


def answer(text: bytes) -> bytes:
    gold, given = json.loads(text)
    return json.dumps(_compare(gold, given)).encode()


def _compare(gold: str, answer: str) -> bool:
    from math_verify import verify

    ours, theirs = _parse(gold), _parse(answer)
    return bool(ours and theirs) and bool(verify(ours, theirs, strict=True, timeout_seconds=None))


def _parse(text: str) -> list[Any]:
    """What the whole text means; empty if only a part of it can be parsed."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    text = text.strip().strip("$").strip()
    found = parse(
        f"\\boxed{{{text}}}", [LatexExtractionConfig(), ExprExtractionConfig()],
        fallback_mode="no_fallback", extraction_mode="first_match", parsing_timeout=None,
    )  # fmt: skip
    return list(found)
