"""Checker programs decide which outputs are right, if several are."""

from __future__ import annotations

from interplay.execution.programs import Bench, CheckerVerdict

BENCH = Bench(seconds=1)
ANY_DIVISOR = """
def check(input, expected, actual):
    print("a checker may print")
    n, d = int(input), int(actual)
    return 1 < d < n and n % d == 0
"""


def test_a_checker_accepts_every_right_output() -> None:
    cases = [("12", "2"), ("35", "5"), ("77", "7")]
    largest = "n = int(input())\nprint(max(d for d in range(2, n) if n % d == 0))"
    assert not BENCH.cases(largest, cases).solved
    assert BENCH.cases(largest, cases, ANY_DIVISOR).solved
    assert not any(BENCH.cases("print(int(input()) + 1)", cases, ANY_DIVISOR).passed)
    assert BENCH.cases("n = int(input())\nprint(n // 2 if n == 12 else 'none')", cases, ANY_DIVISOR).passed == (
        True,
        False,
        False,
    )


def test_a_checker_that_gives_no_verdict_accepts_nothing() -> None:
    reasons = {
        "def check(input, expected, actual): return 1": "check() returned 1; expected True or False",
        "def check(input, expected, actual): return {}[actual]": "KeyError: '2'",
        "def check(input, expected, actual):\n    while True: pass": "timeout",
        "def test(): pass": "it does not define check(input, expected, actual)",
        "import os\ndef check(input, expected, actual): os._exit(0)": "its verdict cannot be read",
        "def check(": "SyntaxError",
    }
    for checker, reason in reasons.items():
        (verdict,) = BENCH.check(checker, [("1", "2", "2")])
        assert not verdict.accepted and reason in verdict.trouble, verdict
    assert BENCH.check("def check(i, e, a): return e == a", [("", "x", "x"), ("", "x", "y")]) == (
        CheckerVerdict(True),
        CheckerVerdict(False),
    )
