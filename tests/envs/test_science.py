"""Law discovery: the scripted team always finds the law, cheats never do; experiments are limited and repeatable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playing import earned, expert

from interplay.envs import make, sample_task
from interplay.envs.check import check
from interplay.envs.tasks.science import Science
from interplay.rewards.formula import Formula
from interplay.types import Observation

Say = Callable[[Science, str, Observation], str]


def play(say: Say, options: dict[str, Any] | None = None, split: str = "train", tasks: int = 20) -> list[float]:
    return earned("science", tasks, say, options or {}, split)


def measuring(formula: str) -> Say:
    """Experiments as they should be, and always the same hypothesis."""
    return lambda env, role, o: expert(env, role, o) if role == "experimenter" else f"final f = {formula}"


CHEATS: dict[str, Say] = {
    "echo": lambda env, role, o: "\n".join(m.content for m in o.messages),
    "empty": lambda env, role, o: "",
    "format only": measuring(""),
    "names": measuring("f"),
    "ignores the givens": measuring("x"),
    "hard-coded": measuring("x + y"),
    "constant": measuring("7"),
    "no value": measuring("log(0 - x)"),
    "giant": measuring("x + " * 5000 + "x"),
    "a program": measuring("__import__('os').system('true')"),
    "the last value": lambda env, role, o: (
        expert(env, role, o) if role == "experimenter" else f"f = {env.measured[-1][1] if env.measured else 1}"
    ),
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_cheats_earn_nothing(cheat: str) -> None:
    assert set(play(CHEATS[cheat])) == {0.0}


@pytest.mark.parametrize(
    "options", [{}, {"team": "single"}, {"variables": 1}, {"variables": 3, "depth": 3}, {"noise": 0.02, "tools": True}]
)
def test_the_scripted_team_always_finds_the_law(options: dict[str, Any]) -> None:
    assert set(play(expert, options, tasks=10) + play(expert, options, "test", tasks=10)) == {2.0}


@pytest.mark.parametrize("options", [{"tools": True}, {"team": "single", "noise": 0.1}])
def test_the_environment_conforms(options: dict[str, Any]) -> None:
    findings = check("science", options, episodes=4)
    assert [f for f in findings if not f.passed] == []


def test_measurements_are_the_laws_values_and_the_budget_ends_it() -> None:
    env = make(sample_task("science", {"budget": 3}))
    assert isinstance(env, Science)
    law = Formula(env.row["law"], env.variables)
    for n in range(3):
        assert f"Experiments left: {3 - n}." in env.observe()["experimenter"].messages[1].content
        assert not env.step({"experimenter": f"Let us try x = 2, y = {n + 1}.5."})
        seen = env.observe()["hypothesiser"].messages[1].content
        assert f"x = 2, y = {n + 1}.5: f = {law({'x': 2.0, 'y': n + 1.5}):.6g}" in seen
        env.step({"hypothesiser": "f = x"})
        if n < 2:
            assert "The present hypothesis: x" in env.observe()["experimenter"].messages[1].content
    assert not env.observe()


@pytest.mark.parametrize(
    ("point", "why"),
    [
        ("x = 2", "does not say where"),
        ("x = 2, y = 9", "between 0.5 and 5"),
        ("x = 2, y = -1", "between"),
        ("?", "where"),
    ],
)
def test_a_point_that_cannot_be_measured_costs_its_experiment(point: str, why: str) -> None:
    env = make(sample_task("science", {}))
    assert isinstance(env, Science)
    (reward,) = env.step({"experimenter": point})
    assert (reward.name, reward.role) == ("illegal", "experimenter")
    assert env.used == 1 and not env.measured
    assert why in env.observe()["hypothesiser"].messages[1].content


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("I think that\nf = LAW", True),
        ("**Final: f(x, y) = LAW**".replace("**", "`"), True),
        ("f = x\nf = LAW", True),
        ("f = LAW\nf = x", False),
        ("the law is LAW", False),
    ],
)
def test_the_last_formula_counts(reply: str, right: bool) -> None:
    env = make(sample_task("science", {"budget": 1}))
    assert isinstance(env, Science)
    env.step({"experimenter": "x = 1, y = 1"})
    env.step({"hypothesiser": reply.replace("LAW", env.row["law"])})
    assert not env.observe()
    assert [r.value for r in env.outcome()] == [float(right), 0.0], "one measurement explains nothing"


def test_laws_of_different_splits_differ() -> None:
    laws = {s: {sample_task("science", {}, s, i).data["row"]["law"] for i in range(150)} for s in ("train", "test")}
    assert not laws["train"] & laws["test"] and len(laws["train"]) > 100
