"""Programs are judged by hidden tests, and cannot interfere with them."""

from __future__ import annotations

import pytest

from interplay.errors import SandboxError
from interplay.execution import programs
from interplay.execution.programs import Bench, same
from interplay.execution.sandbox import Job
from interplay.rewards.mutants import python_mutants, verilog_mutants

BENCH = Bench(seconds=1)
TESTS = ["assert add(1, 2) == 3", "assert candidate(2, 5) == 7", "assert add([1], [2]) == [1, 2]"]
GOOD = "def add(a, b):\n    return a + b"
# Programs that are not the answer, and try to look like it.
CHEATS = {
    "nothing": "",
    "no function": "x = 1",
    "no Python": "Here is the program you asked for.",
    "format only": "def add(a, b):\n    pass",
    "hard-coded": "def add(a, b):\n    return 3",
    "leaving early": "import sys\n" + GOOD.replace("a + b", "0") + "\nsys.exit(0)",
    "leaving when called": "import os\ndef add(a, b):\n    os._exit(0)",
    "leaving by exception": "def add(a, b):\n    raise SystemExit(0)",
    "equal to everything": "class E:\n    def __eq__(s, o): return True\n    def __bool__(s): return True\n"
    "    def __hash__(s): return 0\ndef add(a, b):\n    return E()",
    "a list equal to everything": "class L(list):\n    def __eq__(s, o): return True\ndef add(a, b):\n    return L()",
    "a number equal to everything": "class N(int):\n    def __eq__(s, o): return True\ndef add(a, b):\n    return N(0)",
    "no assertions": "import builtins\nbuiltins.AssertionError = ZeroDivisionError\ndef add(a, b):\n    return 0",
    "the report on every descriptor": "import json, os, struct\n"
    "said = json.dumps(dict(built=1, loaded=1, trouble='', passed=[1, 1, 1], errors=0, answers=['a', 'b', 'c']))\n"
    "def add(a, b):\n    for fd in range(64):\n        try: os.write(fd, said.encode() + b'\\n')\n"
    "        except OSError: pass\n    return None",
    "killing the referee": "import os, signal\ndef add(a, b):\n    try: os.kill(os.getppid(), 9)\n"
    "    except OSError: pass\n    return 0",
    "looking at the caller": "import sys\ndef add(a, b):\n    f = sys._getframe()\n    while f.f_back: f = f.f_back\n"
    "    return f.f_globals.get('second', {}).get('tests', 0) and 3",
    "looking for the tests in memory": "import gc\ndef add(a, b):\n"
    "    return 3 if any(isinstance(o, dict) and 'tests' in o for o in gc.get_objects()) else 0",
    "never ending": "def add(a, b):\n    while True: pass",
    "giant": GOOD.replace("a + b", "0") + "\n# " + "x" * 30_000,
}  # fmt: skip


def test_a_right_program() -> None:
    trial = BENCH.calls(GOOD, TESTS, "add")
    assert trial.solved and trial.built and trial.ran and trial.share == 1.0


@pytest.mark.parametrize("program", CHEATS.values(), ids=CHEATS)
def test_cheats_are_worth_nothing(program: str) -> None:
    trial = BENCH.calls(program, TESTS, "add")
    assert not any(trial.passed) and not trial.ran and not trial.built, trial


def test_wrong_programs_keep_what_they_earned() -> None:
    half = BENCH.calls("def add(a, b):\n    return a + b if a != 2 else 0", TESTS, "add")
    assert half.passed == (True, False, True) and half.ran and half.trouble == "test 2: wrong answer"
    raising = BENCH.calls("def add(a, b):\n    raise ValueError(a)", TESTS, "add")
    assert raising.built and not raising.ran and not raising.share and raising.trouble == "test 1: ValueError: 1"
    assert not BENCH.calls("def add(a, b)\n    return 1", TESTS, "add").built
    partly = BENCH.calls("def add(a, b):\n    assert isinstance(a, int)\n    return a + b", TESTS, "add")
    assert partly.passed == (True, True, False) and not partly.ran


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def f(x): return (1, [.5, None], {'a': {3}}, b'x')", "assert f(0) == (1, [.5, None], {'a': {3}}, b'x')"),
        ("def f(x):\n    for i in range(x): yield i", "assert list(f(3)) == [0, 1, 2]"),
        ("def f(x): x.sort(); x.append(9)", "x = [2, 1]\nf(x)\nassert x == [1, 2, 9]"),
        ("def f(x): raise KeyError(x)", "try:\n    f(1)\nexcept KeyError:\n    pass\nelse:\n    assert False"),
        ("class Node:\n    def __init__(s, v): s.v, s.next = v, None\ndef f(n): return n.v + n.next.v",
         "a = Node(1)\na.next = Node(2)\nassert f(a) == 3 and a.next.v == 2"),
        ("def f(x): return 2.0 * x", "assert math.isclose(f(1.5), 3)"),
        ("def f(x): return float('inf')", "assert f(1) == float('inf') and f(2) > 10**400"),
        ("import re\ndef f(x): return re.match('a', x)", "assert f('a')\nassert not f('b')"),
        ("def f(x, t): return [y for y in x if not isinstance(y, t)]", "assert f([1, 'a'], str) == [1]"),
        ("def f(x): return 10 ** x", "assert f(5000) == 10 ** 5000"),
    ],
)  # fmt: skip
def test_values_cross_as_they_are(program: str, tests: str) -> None:
    trial = BENCH.calls(program, [tests], "f")
    assert trial.solved, trial


def test_programs_that_read_and_print() -> None:
    cases = [("1 2\n", "3\n"), ("5 5", "10")]
    assert BENCH.cases("print(sum(map(int, input().split())))", cases).solved
    for cheat in (
        "",
        "print(3)",
        "import sys\nsys.exit(0)",
        "print('PASS')",
        "print('3\\n10')",
        "def f(",
        "x" * 30_000,
    ):
        trial = BENCH.cases(cheat, cases)
        assert not trial.built and not trial.ran and not any(trial.passed), cheat
    crashing = BENCH.cases("input()\n1 / 0", cases)
    assert crashing.built and not crashing.ran and crashing.trouble == "error: ZeroDivisionError: division by zero"
    half = BENCH.cases("a, b = map(int, input().split())\nprint(a + b if a < 3 else 0)", cases)
    assert half.passed == (True, False) and half.ran and half.trouble == "case 2: wrong output"


def test_outputs_that_say_the_same() -> None:
    assert same("1 2\n3\n", " 1 2  \n3\n\n") and same("0.333333", "0.3333334") and same("YES", "YES")
    assert not same("1", "1.0") and not same("a b", "a\nb") and not same("YES", "yes") and not same("1", "")


def test_only_numbers_as_programs_print_them_are_compared_as_numbers() -> None:
    """Python's float() accepts more than that."""
    assert same("10.5", "10.50000001") and same("-0.5", "-.5") and same("1e3 2.0", "1e3 2.0000001")
    for got in ("1_0.5", "1०.5", "１０.5", "10.5e", "0x1.5", "infinity", "10,5"):
        assert not same("10.5", got), got


def test_a_long_answer_is_an_answer() -> None:
    """Answers are not part of the report, and outputs may be as long as the expected output."""
    long = BENCH.calls(
        "def f(n): return list(range(n))", ["assert f(100_000)[-1] == 99_999", "assert f(2) == [0, 1]"], "f"
    )
    assert long.solved, long
    wanted = "".join(f"{i}\n" for i in range(60_000))
    assert len(wanted) > 256 * 1024
    printed = BENCH.cases("for i in range(int(input())): print(i)", [("60000", wanted), ("2", "0\n1\n")])
    assert printed.solved, printed


def test_the_time_limit_is_for_each_test() -> None:
    """Four tests that each take most of it."""
    wait = "    until = time.process_time() + 0.6\n    while time.process_time() < until: pass\n"
    trial = BENCH.calls(f"import time\ndef f(x):\n{wait}    return x", [f"assert f({n}) == {n}" for n in range(4)], "f")
    assert trial.solved, trial


def test_a_test_that_takes_too_long_fails_alone() -> None:
    program = "def f(x):\n    while x == 1: pass\n    return x\n"
    trial = BENCH.calls(program, [f"assert f({n}) == {n}" for n in range(4)], "f")
    assert trial.passed == (True, False, True, True) and trial.trouble == "test 2: it took too long", trial
    leaving = "import os\ndef f(x):\n    if x == 1: os._exit(0)\n    return x\n"
    assert BENCH.calls(leaving, [f"assert f({n}) == {n}" for n in range(4)], "f").passed == (True, False, True, True)


def test_a_program_that_is_always_slow_ends_soon() -> None:
    """It is started again only a few times; sleeping counts as wall-clock time."""
    bench = Bench(seconds=0.1)
    for body in ("while True: pass", "time.sleep(1000)"):
        trial = bench.calls(f"import time\ndef f(x):\n    {body}", [f"assert f({n}) == {n}" for n in range(20)], "f")
        assert not any(trial.passed) and not trial.built


def test_a_test_cannot_pass_by_catching_that_there_was_no_answer() -> None:
    """If the program exited, or took too long, after it had answered once."""
    test = "assert f(0) == 0\ntry:\n    f(1)\nexcept Exception:\n    pass\nelse:\n    assert False"
    for body in ("os._exit(0)", "while True: pass"):
        program = f"import os\ndef f(x):\n    if x:\n        {body}\n    return x"
        assert BENCH.calls(program, [test, "assert f(0) == f(0)"], "f").passed == (False, True), body
    assert BENCH.calls("def f(x): return x / (1 - x)", [test, "assert f(0) == f(0)"], "f").passed == (True, True)


def test_an_interrupted_referee_is_no_failure_of_the_machinery() -> None:
    """Every program gets a score, even one that attacks the process that judges it."""
    for what in (
        "os.kill(os.getppid(), 2)",
        "[os.kill(p, s) for p in range(1, 40) for s in (2, 9) if p != os.getpid()]",
    ):
        program = f"import os\ndef add(a, b):\n    try: {what}\n    except OSError: pass\n    return 0"
        try:
            trial = BENCH.calls(program, TESTS, "add")
        except SandboxError as error:
            pytest.fail(f"a program became a failure of the machinery: {error}")
        assert not any(trial.passed)


@pytest.mark.parametrize(
    "tests", [["import os\nos._exit(1)"], ["print('x')\nassert False"], ["assert f(", "\0"], ["(" * 9999]]
)
def test_tests_that_no_referee_survives_pass_nothing(tests: list[str]) -> None:
    try:
        trial = BENCH.calls("def f(x): return x", [*tests, "assert f(1) == 2"], "f")
    except SandboxError as error:
        pytest.fail(f"a test became a failure of the machinery: {error}")
    assert not any(trial.passed)


def test_the_machinery_failing_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 7: a referee that fails on a program that is known to be right."""
    broken = Job("raise RuntimeError('broken')")
    monkeypatch.setattr(programs, "Job", lambda **_: broken)
    with pytest.raises(SandboxError, match="the referee of a program failed"):
        BENCH.calls("def f(x): return 1", ["assert f(1) == 1"], "f")


def test_mutants_differ_in_one_place() -> None:
    source = "def f(a, k):\n    return sum((x for x in a if x > k and x % 2 == 0)) + 1"
    made = list(python_mutants(source))
    assert len(made) == len(set(made)) > 6 and source not in made
    assert made == list(python_mutants(source))
    assert "def f(a, k):\n    return sum((x for x in a if x >= k and x % 2 == 0)) + 1" in made
    assert list(python_mutants(source, 3)) == made[:3]
    circuit = "module T(input a, output b);\nassign b = a & ~a;\nendmodule"
    assert sorted(verilog_mutants(circuit)) == [circuit.replace("~", ""), circuit.replace("&", "|")]
