"""Answers are judged by their meaning; hostile answers are wrong, and this is found quickly."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from interplay.errors import InterplayError
from interplay.rewards import algebra
from interplay.rewards.label import label
from interplay.rewards.quantity import number
from interplay.rewards.verify import boxed, equal, final, unmarked

DATA = Path(os.environ.get("INTERPLAY_DATA", "")) if os.environ.get("INTERPLAY_DATA") else None


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("48 + 24 = 72\n#### 72", "72"),
        ("so \\boxed{\\frac{1}{2}} it is", "\\frac{1}{2}"),
        ("\\boxed{\\text{(E)}}", "\\text{(E)}"),
        ("\\fbox{3}", "3"),
        ("The answer is 42.", "42"),
        ("The final answer is: $1,250.50.", "$1,250.50"),
        ("**Answer:** 3/4", "3/4"),
        ("Answer: **3/4**", "3/4"),
        ("the answer is 5. And again: the answer is 5.0", "5"),  # they agree
        ("First I thought \\boxed{4}.\nThe answer is 5.", "4"),  # a box speaks first
        ("", None),
        ("\\boxed{}", None),
        ("\\boxed{\u200b\u2060}", None),  # nothing, of no width
        ("####", None),
        ("The answer is", None),
        ("72", None),  # in no form
        ("\\boxed{1}\\boxed{2}\\boxed{72}", None),
        ("#### 70\n#### 71\n#### 72", None),
        ("The answer is 71. The answer is 72.", None),
        ("\\boxed{" + "7" * 500 + "}", None),
        ("x" * 30_000 + "\\boxed{72}", None),
        ("\\boxed{" * 5_000, None),
    ],
)
def test_one_answer_is_read_or_none(reply: str, answer: str | None) -> None:
    assert final(reply) == answer


def test_the_last_box_of_a_solution() -> None:
    assert boxed("\\boxed{1} … \\boxed{x^{2}}") == "x^{2}" and boxed("none") is None


def test_quoted_words_answer_nothing() -> None:
    """What another role said can be repeated without being an answer."""
    said = "Hence \\boxed{\\frac{8}{2}}; the answer is 4.\n#### 4\nAnswer: 4"
    assert final(said) is not None and final(unmarked(said)) is None
    assert "\\frac{8}{2}" in unmarked(said) and label(unmarked("Answer: neutral")) == "neutral"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234,567", Fraction(1234567)), ("-3.50", Fraction(-7, 2)), ("$18", Fraction(18)),
        ("\\$3.50", Fraction(7, 2)),
        ("-$5", Fraction(-5)), (".5", Fraction(1, 2)), ("3/4", Fraction(3, 4)), ("-\\frac{5}{3}", Fraction(-5, 3)),
        ("\\dfrac12", Fraction(1, 2)), ("72 clips", Fraction(72)), ("$90$", Fraction(90)), ("90^\\circ", Fraction(90)),
        ("20,\\!000", Fraction(20000)), ("50%", Fraction(50)), ("\\text{5 apples}", Fraction(5)),
        ("3 or 4", None), ("2x", None), ("5 thousand", None), ("1/0", None), ("\\frac{1}{0}", None), ("12,34", None),
        ("1.2.3", None), ("", None), ("-", None), ("9" * 300, None), ("1e5", Fraction(100_000)), ("٣", None),
        ("3 x", None),         ("3 1/2", Fraction(7, 2)), ("0.1\\overline{6}", Fraction(1, 6)),
        ("5\\text{ m}", Fraction(5)), ("42 43", None),
        ("5!", None), ("1_000", None), ("42 is wrong", None),
    ],
)  # fmt: skip
def test_plain_numbers(text: str, value: Fraction | None) -> None:
    assert number(text) == value


# Worked out by hand: what is equal, and what only looks so.
SAME = [
    ("72", "72.0"), ("1/2", "0.5"), ("\\frac{1}{2}", "50%"), ("10", "$10"), ("2n-2", "2(n-1)"), ("\\sqrt{8}",
    "2\\sqrt{2}"),
    ("x^2-1", "(x-1)(x+1)"), ("\\frac{\\pi}{4}", "\\arctan 1"), ("(1,8,19), (2,7,13)", "(2,7,13),(1,8,19)"),
    ("$69$,$84$", "84, 69"), ("x=2", "2"), ("\\text{(E)}", "E"), ("[0,1)", "[0, 1)"), ("f(x)=2x", "f(x) = x+x"),
    ("2^{10}", "1024"), ("\\binom{5}{2}", "10"), ("\\frac{100!}{2^{50}}", "\\dfrac{100!}{2^{50}}"), ("6p", "6 p"),
]  # fmt: skip
OTHER = [
    ("72", "73"), ("72", ""), ("72", "   "), ("72", "x"), ("72", "70, 71, 72"), ("72", "71 or 72"), ("72",
    "{70,71,72}"),
    ("72", "$70$ and $72$"), ("1,2", "2"), ("2", "1,2"), ("(2,4)", "(4,2)"), ("[0,1)", "(0,1)"), ("[0,1)", "[0,1]"),
    ("2n-2", "2n-1"), ("\\frac{1}{3}", "0.33"), ("72", "the question"), ("72", "1=72"), ("72", "71=72"), ("72", "7272"),
    ("72", "\\boxed{72"), ("x", "y"), ("72", "72 73"), ("\\pi", "3.14"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer"), SAME)
def test_equal_in_meaning(gold: str, answer: str) -> None:
    assert equal(gold, answer) and equal(gold, gold)


@pytest.mark.parametrize(("gold", "answer"), OTHER)
def test_not_equal(gold: str, answer: str) -> None:
    assert not equal(gold, answer)


HOSTILE = [
    "9**9**9", "9^{9^{9}}", "10^{10^{10}}", "2^{99999999999}", "999999!", "((9!)!)!", "(" * 300, "\\frac{" * 100,
    "\\int_0^1 " * 30, "x^" * 150, "\\sum_{k=1}^{10^{9}} \\frac{1}{k}", "\\prod_{n=1}^{1000000} n", "\x00" * 50,
    "{" * 399,
    "__import__('os').system('true')", "\\begin{pmatrix}" + "1&" * 100, "\\sin(" * 60 + "x", "1" * 399, "🂡" * 100,
    "\\sqrt[" * 50, "5000^{5000}", "\\lim_{x \\to 0} \\frac{\\sin x}{x^{4999}}", "(x+1)^{4000} - (x-1)^{4000}",
]  # fmt: skip


def test_hostile_answers_are_wrong_and_soon() -> None:
    """Each within the limits; the worker is alive or replaced afterwards."""
    assert equal("2n", "n+n")  # the worker is up
    for text in HOSTILE:
        assert not equal("12", text) and not equal("n+1", text), text
    assert equal("3n", "n+n+n")


def test_a_formula_that_takes_too_long_is_ended_and_the_next_one_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algebra, "LIMITS", replace(algebra.LIMITS, cpu_seconds=1.0))
    assert not algebra.same("12", "(x+1)^{4000} - (x-1)^{4000}")
    assert algebra.same("2n", "n+n")


def test_without_math_verify_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algebra, "find_spec", lambda name: None)
    algebra.require.cache_clear()
    with pytest.raises(InterplayError, match=r"interplay\[math\]"):
        algebra.same("2n", "n+n")


def test_it_works_in_threads() -> None:
    found: list[bool] = []
    threads = [threading.Thread(target=lambda n=n: found.append(equal(f"{n}n+n", f"{n + 1}n"))) for n in range(2, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 6


def _golds() -> dict[str, list[str]]:
    def rows(name: str) -> list[dict]:
        assert DATA is not None
        return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]

    return {
        "gsm8k": [r["answer"].rpartition("####")[2].strip() for r in rows("gsm8k/test.jsonl")],
        "math": [r["answer"] for r in rows("math_train/train.jsonl") if r["answer"]],
        "olympiadbench": [", ".join(r["final_answer"]) for r in rows("olympiadbench/OE_TO_maths_en_COMP.jsonl")],
    }


@pytest.mark.skipif(DATA is None, reason="INTERPLAY_DATA names no folder of real samples")
def test_gold_answers_of_the_real_samples_are_right_and_changed_ones_wrong() -> None:
    """Each gold answer in a box is right, and each number plus one is wrong: all of GSM8K, MATH and OlympiadBench."""
    for name, golds in _golds().items():
        assert len(golds) > 600
        lost = [gold for gold in golds if not equal(gold, final(f"So it is \\boxed{{{gold}}}.") or "")]
        assert not lost, f"{name}: {lost[:5]}"
        numbers = [(gold, value) for gold in golds if (value := number(gold)) is not None]
        assert len(numbers) > len(golds) / 2
        assert not [gold for gold, value in numbers if equal(gold, str(value + 1))]
        assert not [gold for gold, value in numbers[::100] if equal(gold, f"{value}, {value + 1}")]


@pytest.mark.slow
@pytest.mark.skipif(DATA is None, reason="INTERPLAY_DATA names no folder of real samples")
def test_formulas_of_the_real_samples_by_algebra_alone() -> None:
    """Only the meaning decides: a formula equals itself by algebra, and does not equal itself plus one."""
    for name, golds in _golds().items():
        formulas = sorted({g for g in golds if number(g) is None})[:150]
        if not formulas:
            continue
        same = sum(algebra.same(gold, gold) for gold in formulas)
        assert same >= 0.97 * len(formulas), f"{name}: {same} of {len(formulas)}"
        changed = [f for f in formulas if "," not in f and equal(f, f"{f.strip('$')}+1")]
        assert len(changed) <= 0.01 * len(formulas), f"{name}: {changed}"


@pytest.mark.parametrize(
    "words",
    [
        "squared", "cubed", "factorial", "thousands", "millions", "dozens", "tens", "tenths", "hundredths", "fifths",
        "halved", "twice", "isn't right", "unlikely", "neither",
    ],
)  # fmt: skip
def test_words_that_make_another_number_are_no_unit(words: str) -> None:
    """They were read as units, as in 5 clips, or ignored by algebra as words."""
    assert not equal("5", f"5 {words}") and not equal("5", f"5\\text{{ {words}}}")
    assert not equal("2\\pi", f"2\\pi\\text{{ {words}}}")


@pytest.mark.parametrize("answer", ["5 fifth graders", "5 meters squared", "5 tents", "5\\text{ K}", "5 inverted cups"])
def test_words_that_only_resemble_them_are_units(answer: str) -> None:
    assert equal("5", answer) and not equal("5", "5\\text{k}")


AFFIRMED = (
    "exactly {}", "precisely {}", "only {}", "just {}", "it is definitely {}", "a total of {}", "x = exactly {}",
    "\\text{{exactly }}{}", "{}\\text{{ exactly}}", "{} exactly", "{} in total", "{}, for sure", "{} (precisely)",
    "{}, no doubt",
)  # fmt: skip
DOUBTED = (
    "probably {}", "maybe {}", "about {}", "at least {}", "I think {}", "could be {}", "\\text{{maybe }}{}", "{} guess",
    "{} I guess", "{} I think", "{} maybe", "{} probably", "{}, perhaps", "{} (likely)", "{} we hope", "{} at most",
    "{} approximately", "{} it seems", "{}\\text{{ I think}}", "{}?", "~{}", "not exactly {}", "exactly {} maybe",
    "{} exactly, I guess", "my best guess: {}",
)  # fmt: skip


@pytest.mark.parametrize("gold", ["5", "-3.5", "5 cm", "\\frac{\\pi}{2}", "x+1", "(1,2)", "\\{1,2\\}"])
def test_words_that_affirm_an_answer_are_left_out_and_words_that_doubt_it_make_it_none(gold: str) -> None:
    """ "exactly 5" was refused, because it is no number; "5 guess" was accepted, because a guess was read as a unit."""
    assert [words for words in AFFIRMED if not equal(gold, words.format(gold))] == []
    doubted = [words for words in DOUBTED if not words.startswith("~") or gold[0].isdigit()]
    assert [words for words in doubted if equal(gold, words.format(gold))] == []


def test_what_resembles_affirming_and_doubting_words_is_read_as_before() -> None:
    units = ("guesses", "books about whales", "laps around it", "likely winners", "possible outcomes", "total")
    assert [unit for unit in units if not equal("5", f"5 {unit}")] == []
    assert not equal("120", "5 exactly!") and equal("5", "5 exactly!")  # not a factorial
    assert equal("probably", "probably") and not equal("only", "just") and not equal("5", "only")
    assert equal("I", "I") and not equal("5", "exactly 6") and not equal("5", "exactly " * 49 + "5, 6")
    assert final("I think the answer is 5.") == "5" and final("\\boxed{5} \\boxed{exactly 5}") == "5"
    assert final("\\boxed{5} \\boxed{" + "exactly " * 2_000 + "5}") is None
