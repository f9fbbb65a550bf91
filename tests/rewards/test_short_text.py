"""Short answers in words: exact match and F1, computed by hand."""

from __future__ import annotations

import pytest

from interplay.rewards.short_text import exact_match, f1, normal


def test_exact_match_and_f1_by_hand() -> None:
    """SQuAD's normalisation; F1 over words; for yes and no it is 0 or 1."""
    assert exact_match("The Beatles!", ["beatles"]) and not exact_match("", [""]) and not exact_match("the", ["a"])
    assert f1("Barack Hussein Obama", ["Barack Obama"]) == pytest.approx(2 * (2 / 3) * 1 / (2 / 3 + 1))
    assert f1("cat cat", ["cat"]) == pytest.approx(2 * 0.5 / 1.5)
    assert f1("yes it is", ["yes"]) == 0 and f1("no", ["yes"]) == 0 and f1("Yes.", ["yes"]) == 1
    assert f1("", ["x"]) == 0 and f1("x", []) == 0 and f1("paris " * 5_000, ["Paris"]) == 0
    assert f1("river Rhine", ["Rhine", "the river Rhine"]) == 1


def test_a_number_keeps_its_point_and_its_sign() -> None:
    """Without them 3.5 would equal 35."""
    assert not exact_match("35", ["3.5"]) and not exact_match("5", ["-5"]) and exact_match("3.5.", ["3.5"])
    assert normal("1,254") == "1254" and normal("U.S.") == "us" and normal("1990-5") == "1990-5"


@pytest.mark.parametrize(
    ("answer", "gold"),
    [("C", "C++"), ("C#", "C"), ("12", "1/2"), ("1030", "10:30"), ("5%", "$5"), ("196870", "1968-70"), ("A", "A+")],
)
def test_signs_that_make_another_answer_are_kept(answer: str, gold: str) -> None:
    assert not exact_match(answer, [gold]) and not exact_match(gold, [answer])


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("O’Brien", "O'Brien"), ("“Heroes”", '"Heroes"'), ("1990–91", "1990-91"), ("c++.", "C++"), ("$5", "5"),
        ("5 %", "5%"), ("Jean‑Paul", "Jean-Paul"), ("#1", "1"), ("e.g. (x)", "eg x"),
    ],
)  # fmt: skip
def test_other_ways_of_writing_it_are_the_same_answer(answer: str, gold: str) -> None:
    assert exact_match(answer, [gold]) and exact_match(gold, [answer])


def test_a_number_yes_or_no_may_be_affirmed_but_not_doubted_and_a_name_is_left_as_it_is() -> None:
    assert (
        exact_match("exactly 5", ["5"])
        and exact_match("definitely yes", ["yes"])
        and f1("Yes, of course!", ["yes"]) == 1
    )
    assert not any(exact_match(said, ["5"]) for said in ("about 5", "5 guess", "probably 5", "5 I think", "not only 5"))
    assert (
        not exact_match("Just Kids", ["Kids"])
        and not exact_match("Kids", ["Just Kids"])
        and exact_match("Just Kids", ["just kids"])
    )
