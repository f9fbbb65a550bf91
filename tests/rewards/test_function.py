"""A judge that is a Python function of the user, named `module:function`."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from interplay.config import parse
from interplay.errors import ConfigError, JudgeError
from interplay.rewards.function import ABANDONED, THREADS, FunctionScorer
from interplay.rollout.resolve import resolve
from interplay.training.judges import Judges
from interplay.types import Message

OWN = """
def length(question, reply):
    return len(question) + 10 * len(reply)

async def later(question, reply):
    return 0.5

def word(question, reply):
    return "good"

def nothing(question, reply):
    return float("nan")

def numpy_number(question, reply):
    import numpy
    return numpy.float32(0.25)

def numpy_array(question, reply):
    import numpy
    return numpy.zeros(2)

def bug(question, reply):
    return 1 / 0

def stuck(question, reply):
    GO_ON.wait()
    return 1.0

HEIGHT = 3
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_judges.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))


def scores(name: str) -> list[float]:
    asked = [((Message("user", "abc"),), "d"), ((Message("system", "a"), Message("user", "b")), "")]
    return asyncio.run(FunctionScorer("judges.own.who", f"own_judges:{name}", 30.0).scores(asked))


def test_a_function_gets_question_and_reply_as_texts_and_may_be_a_coroutine() -> None:
    assert scores("length") == [13.0, float(len("[system] a\n[user] b"))]
    assert scores("later") == [0.5, 0.5]
    assert scores("numpy_number") == [0.25, 0.25]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("word", "returned 'good'; expected a finite number"),
        ("nothing", "returned nan; expected a finite number"),
        ("numpy_array", "expected a finite number"),
        ("bug", r"raised ZeroDivisionError: division by zero \(.*own_judges.py:23\)"),
    ],
)
def test_a_function_that_fails_is_an_error_of_the_judge_with_its_place(name: str, sentence: str) -> None:
    with pytest.raises(JudgeError, match=sentence):
        scores(name)


def test_a_function_that_does_not_return_fails_its_episodes_and_in_the_end_stops_the_run() -> None:
    """Its threads cannot be ended, so only a few are left behind. When they have ended, the judge is asked again."""
    scorer = FunctionScorer("judges.own.who", "own_judges:stuck", 0.02)
    go_on = scorer.function.__globals__["GO_ON"] = threading.Event()
    asked = [((Message("user", "abc"),), "d")]

    async def all_of_them() -> list[object]:
        calls = (scorer.scores(asked) for _ in range(ABANDONED + 2 * THREADS))
        return list(await asyncio.gather(*calls, return_exceptions=True))

    try:
        found = asyncio.run(all_of_them())
        assert {type(one) for one in found[:ABANDONED]} == {JudgeError}
        assert {type(one) for one in found[-THREADS:]} == {ConfigError}
        assert "did not return within 0.02 s" in str(found[0]) and "in 16 calls that still run" in str(found[-1])
    finally:
        go_on.set()
    for thread in scorer._abandoned:
        assert thread.daemon  # otherwise it would keep the process from ending
        thread.join(10)
    scorer.timeout = 30.0
    assert asyncio.run(scorer.scores(asked)) == [1.0]


def recipe(who: str, **more: object) -> dict[str, object]:
    return {
        "name": "own", "env": {"name": "tictactoe"}, "policies": {"player": {"base": "tiny-16x1"}}, "seats": "player",
        "algorithm": {"name": "grpo", "group": 2}, "judges": {"own": {"kind": "function", "who": who, **more}},
    }  # fmt: skip


def test_a_recipe_names_the_function_and_says_before_the_run_what_is_wrong() -> None:
    judges = Judges(resolve(parse(recipe("own_judges:length"))))
    assert isinstance(judges.scorers["own"], FunctionScorer)
    for who, sentence in (
        ("own_judges:lenght", "judges.own.who is 'own_judges:lenght', which cannot be imported"),
        ("own_judges:HEIGHT", "which is no function"),
        ("gold:win", "has who = 'gold:win'; expected module:function"),
        ("own_judges", "has who = 'own_judges'; expected module:function"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            resolve(parse(recipe(who)))
    with pytest.raises(ConfigError, match=r"has \[train\]"):
        parse(recipe("own_judges:length", train={"labels": "gold:win"}))
