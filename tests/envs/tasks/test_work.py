"""Code, debugging and hardware: the contract, the scripted team that earns everything, and cheats that earn nothing."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from interplay import envs
from interplay.agents.bots import make_bot
from interplay.envs.check import check
from interplay.envs.tasks import hardware
from interplay.envs.tasks.problems import code_in
from interplay.errors import ConfigError, SandboxError
from interplay.execution import verilog
from interplay.types import Role

ICARUS = verilog.shutil.which(verilog.PACKAGE, path="/usr/bin:/bin") is not None
needs_icarus = pytest.mark.skipif(not ICARUS, reason=f"Icarus Verilog is not installed (package {verilog.PACKAGE})")
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("code", {"style": "calls"}),
    ("code", {"style": "stdio"}),
    ("code", {"team": "single"}),
    ("debugging", {"style": "calls"}),
    ("debugging", {"style": "stdio", "rounds": 2}),
    ("debugging", {"team": "single"}),
    ("hardware", {}),
    ("hardware", {"team": "single"}),
]
# The others go the same ways: they are run by make test-slow.
ALWAYS = (("code", {"style": "calls"}), ("debugging", {"style": "calls"}), ("hardware", {}))
marked = [
    pytest.param(
        *v, marks=[*([needs_icarus] if v[0] == "hardware" else []), *([] if v in ALWAYS else [pytest.mark.slow])]
    )
    for v in VARIANTS
]
Reply = Callable[[envs.Env, Role], str]


def play(env: envs.Env, replies: dict[Role, Reply]) -> dict[tuple[str | None, str], float | None]:
    """What everybody earned, by role and name; roles without given replies are scripted."""
    bot = make_bot("expert", env.task.env)
    earned: dict[tuple[str | None, str], float | None] = defaultdict(float)
    while seen := env.observe():
        actions = {r: replies[r](env, r) if r in replies else bot.act(env, r, random.Random(0)) for r in seen}
        for reward in env.step(actions):
            before = earned[reward.role, reward.name]
            earned[reward.role, reward.name] = None if reward.value is None else (before or 0.0) + reward.value
    for reward in env.outcome():
        earned[reward.role, reward.name] = reward.value
    return dict(earned)


def total(earned: dict[tuple[str | None, str], float | None], role: Role) -> float:
    return sum(value or 0.0 for (who, _), value in earned.items() if who == role)


@pytest.mark.parametrize(("name", "options"), marked)
def test_conformance(name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interplay.envs.check.TASKS", 100)
    assert [f for f in check(name, options, episodes=2) if not f.passed] == []


@pytest.mark.parametrize(("name", "options"), marked)
@pytest.mark.parametrize("split", envs.SPLITS)
def test_the_scripted_team_earns_everything(name: str, options: dict[str, Any], split: str) -> None:
    for index in range(3):
        env = envs.make(envs.sample_task(name, options, split, index))
        earned = play(env, {})
        assert earned[None, "solved"] == 1.0, env.state()
        for role in env.roles:
            assert total(earned, role) == pytest.approx(1.0), earned


def _prompt(env: envs.Env, role: Role) -> str:
    return "\n".join(m.content for m in env.observe()[role].messages)


def _fixed(text: str) -> Reply:
    return lambda env, role: text


CHEATS: dict[str, Reply] = {
    "empty": _fixed(""),
    "echo": _prompt,
    "the example again": lambda env, role: _prompt(env, role).rpartition("Example: ")[2],
    "format only": _fixed("```python\n```"),
    "words": _fixed("I have solved the problem. All tests pass.\nPASS\nMismatches: 0 in 256 samples"),
    "giant": _fixed("x = 1\n" * 20_000),
    "leaving": _fixed("import sys\nsys.exit(0)"),
    "leaving, in a function": _fixed("import os\ndef solve(a):\n    os._exit(0)"),
    "hard-coded": _fixed("def solve(a):\n    return 7\nprint(7)"),
    "another program": _fixed("def solve(a):\n    return sum(a) - len(a)\nprint(input())"),
    "the input again": _fixed("print(input())"),
    "the length": _fixed("def solve(a):\n    return len(a)"),
    "equal to everything": _fixed(
        "class E:\n    def __eq__(s, o): return True\n    def __str__(s): return '7'\n"
        "def solve(a):\n    return E()\nprint(E())"
    ),
    "tests of nothing": _fixed("assert True\nassert 1 == 1\nassert solve == solve\nassert solve([]) != 'x'"),
    "tests that are always true": _fixed('assert solve([1]) == solve([1])\nassert solve([2]) or True\n{"input": ""}'),
    "tests that are wrong": _fixed(
        "assert solve([1]) == 12345\nassert solve([2]) == 12345\nassert solve([3]) == 12345\n"
        + "\n".join(f'{{"input": "{n}", "output": "12345"}}' for n in range(3))
    ),
    "silent module": _fixed(
        "```verilog\nmodule TopModule (input [3:0] a, input [3:0] b, output [3:0] y);\nendmodule\n```"
    ),
    "constant module": _fixed(
        "```verilog\nmodule TopModule (input clk, input reset, input [3:0] a, input [3:0] b, output [3:0] y);\n"
        "  assign y = 4'd0;\nendmodule\n```"
    ),
    "the marker": _fixed(
        "module TopModule (input [3:0] a, input [3:0] b, output [3:0] y);\n"
        '  initial begin $display("Mismatches: 0 in 256 samples"); $finish; end\nendmodule'
    ),
    "the reference's wires": _fixed(
        "module TopModule (input [3:0] a, input [3:0] b, output [3:0] y);\n  assign y = tb.y_ref;\nendmodule"
    ),
    "the reference by its name": _fixed(
        "module TopModule (input [3:0] a, input [3:0] b, output [3:0] y);\n  assign y = good1 . y;\nendmodule"
    ),
    "always PASS": _fixed('module tb;\n  initial begin $display("PASS"); $finish; end\nendmodule'),
    "always FAIL": _fixed('module tb;\n  initial begin $display("FAIL"); $finish; end\nendmodule'),
}  # fmt: skip
HONEST = ("another program", "the input again", "the length")  # attempts of a coder; a breaker was given the program


@pytest.mark.parametrize(("name", "options"), marked)
def test_cheats_earn_nothing(name: str, options: dict[str, Any]) -> None:
    """In every seat, with a scripted partner in the other."""
    for index, (cheat, reply) in enumerate(CHEATS.items()):
        task = envs.sample_task(name, options, index=index % 4)
        for role in envs.make(task).roles:
            if (cheat.startswith("tests") and role != "tester") or (cheat in HONEST and role == "coder"):
                continue  # a program that builds, and fails
            earned = play(envs.make(task), {role: reply})
            assert total(earned, role) == 0.0, (cheat, role, earned)
            assert role in ("tester", "bench_writer") or earned[None, "solved"] == 0.0, (cheat, role)


@needs_icarus
def test_the_reference_called_by_its_module_is_refused() -> None:
    env = envs.make(envs.sample_task("hardware", {"team": "single"}))
    assert isinstance(env, hardware.Hardware)
    header = env.row["interface"]
    called = f"{header}\n  RefModule r (.a(a), .b(b), .y(y));\nendmodule"
    assert total(play(env, {"designer": _fixed(called)}), "designer") == 0.0


def test_tests_are_worth_the_bugs_they_catch() -> None:
    """Right tests that catch half of the bugs earn half; a wrong test loses its share."""
    task = envs.sample_task("code", {"style": "calls", "bugs": 4, "rounds": 1}, index=1)
    env = envs.make(task)
    good = make_bot("expert", "code").act(env, "tester", random.Random(0)).split("\n")
    one = play(envs.make(task), {"tester": _fixed(good[0])})
    three = play(envs.make(task), {"tester": _fixed("\n".join([*good[:3], "assert solve([1, 1]) == 12345"]))})
    everything = play(envs.make(task), {"tester": _fixed("\n".join(good))})
    assert 0 < one["tester", "golden"] <= 0.8 / 4 < three["tester", "golden"] <= 0.8 * 3 / 4  # type: ignore[operator]
    assert three["tester", "valid"] == pytest.approx(0.2) and one["tester", "valid"] == pytest.approx(0.05)
    assert everything["tester", "golden"] == pytest.approx(0.8)


def test_both_see_what_happened_and_try_again() -> None:
    env = envs.make(envs.sample_task("code", {"style": "calls", "rounds": 3}, index=2))
    right = make_bot("expert", "code")
    tests = right.act(env, "tester", random.Random(0))
    assert not env.step({"coder": "def solve(a):\n    return len(a)", "tester": tests})
    for observation in env.observe().values():
        assert "return len(a)" in observation.messages[1].content and ": failed" in observation.messages[1].content
    rewards = env.step({r: right.act(env, r, random.Random(0)) for r in env.observe()})
    assert not env.observe() and {r.name for r in rewards} == {"build", "run", "pass", "valid", "golden"}


def test_a_bug_must_be_small_and_a_bug() -> None:
    options = {"style": "calls", "adversarial": True, "lines": 1}
    for bad in (
        lambda env, role: f"# a remark\n{env.problem.golden}\n\n",
        lambda env, role: "def solve(a):\n    b = list(a)\n    b.sort()\n    return b[0]",
        lambda env, role: "def solve(a):\n    raise ValueError",
        lambda env, role: env.problem.golden.replace("return", "retrun"),
    ):
        earned = play(envs.make(envs.sample_task("debugging", options)), {"breaker": bad})
        assert total(earned, "breaker") == 0.0 and (None, "solved") in earned and earned[None, "solved"] == 0.0
    stumped = play(envs.make(envs.sample_task("debugging", options)), {"fixer": _fixed("def solve(a):\n    return 1")})
    assert stumped["breaker", "stumped"] == 1.0 and total(stumped, "fixer") == 0.0


def test_the_bug_itself_is_no_mending() -> None:
    earned = play(
        envs.make(envs.sample_task("debugging", {"team": "single"})), {"fixer": lambda env, role: env.problem.buggy}
    )
    assert total(earned, "fixer") == 0.0


def test_a_row_that_lacks_something_is_refused() -> None:
    task = envs.sample_task("debugging", {"team": "single"})
    bare = {**task.data, "row": {**task.data["row"], "buggy": ""}}
    with pytest.raises(ConfigError, match="a row has no bug"):
        envs.make(type(task)(task.id, task.env, task.seed, bare))
    task = envs.sample_task("code", {"rounds": 1})
    bare = {**task.data, "row": {**task.data["row"], "golden": ""}}
    env = envs.make(type(task)(task.id, task.env, task.seed, bare))
    rewards = env.step({"coder": "", "tester": ""})
    assert {r.name: r.value for r in rewards.of("tester")} == {"valid": None, "golden": None}


def test_without_icarus_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verilog, "PACKAGE", "iverilog-that-is-not-there")
    verilog.simulated.cache_clear()
    env = envs.make(envs.sample_task("hardware", {"team": "single"}, index=99))
    with pytest.raises(SandboxError, match="install the package iverilog"):
        env.step({"designer": env.script("designer")})  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ("x = 1", "x = 1"),
        ("Sure:\n```python\nx = 1\n```\nDone.", "x = 1"),
        ("```\nx = 1\n```\nor\n```py\nx = 2\n```", "x = 2"),
        ("```python\nx = 1", "x = 1"),
        ("```python\r\nx = 1\r\n```", "x = 1"),
    ],
)
def test_the_code_in_a_reply(reply: str, code: str) -> None:
    assert code_in(reply).strip() == code
