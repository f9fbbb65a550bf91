"""Preferences: what both orders come to, what balancing keeps, and how verdicts agree with labels."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interplay.errors import DataError
from interplay.rewards.agreement import agreement, auc, expected_error, kappa, temperature
from interplay.rewards.gold import Rater, Scored, component_sum
from interplay.rewards.preference import (
    Pair,
    Verdict,
    balanced,
    both_orders,
    coverage,
    even_lengths,
    flip_rate,
    held_out,
    in_random_order,
    points,
    voted,
)
from interplay.rewards.strengths import RatedGame, bradley_terry, davidson
from interplay.types import Level, Message, Reward

ASKED = (Message("user", "Which?"),)


def pair(n: int, label: float | None = None, first: str = "a", second: str = "b") -> Pair:
    return Pair(f"p{n}", ASKED, first, second, label, f"q{n // 4}")


@given(st.floats(0, 1))
def test_a_judge_of_places_says_exactly_half_after_the_swap(p: float) -> None:
    """Whatever it says of the first place, it says it of both replies."""
    assert both_orders(Verdict(p), Verdict(p)).p == pytest.approx(0.5, abs=1e-15)
    assert both_orders(Verdict(1.0), Verdict(1.0)).p == 0.5


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_order_in_which_a_pair_is_given_does_not_matter(there: float, back: float) -> None:
    one, other = both_orders(Verdict(there), Verdict(back)), both_orders(Verdict(back), Verdict(there))
    assert one.p is not None and other.p is not None
    assert one.p == pytest.approx(1 - other.p, abs=1e-15)


def test_sampled_verdicts_that_disagree_abstain_and_coverage_says_so() -> None:
    first, second = Verdict(1.0, sampled=True), Verdict(0.0, sampled=True)
    assert both_orders(first, first).p is None  # it chose the first place twice
    assert both_orders(first, second).p == 1.0
    assert both_orders(first, Verdict(None)).p is None
    assert coverage([both_orders(first, first), both_orders(first, second)]) == 0.5
    assert flip_rate([(first, first), (first, second)]) == 0.5


def test_votes_are_averaged_without_those_that_abstain() -> None:
    found = voted([Verdict(1.0), Verdict(None), Verdict(0.0), Verdict(1.0)])
    assert found.p == pytest.approx(2 / 3) and found.votes == 4
    assert voted([Verdict(None)] * 3).p is None


def test_points_of_ties() -> None:
    assert points(Verdict(0.5, tie=1.0), "half") == 0.0
    assert points(Verdict(0.5, tie=1.0), "abstain") is None
    assert points(Verdict(None), "half") is None
    assert points(Verdict(0.75), "half") == 0.5


def test_balancing_within_questions_keeps_as_many_right_as_wrong_and_drops_the_one_sided() -> None:
    rows = [(q, right) for q, rights in {"a": [1, 1, 1, 0], "b": [1, 1], "c": [0, 0, 1]}.items() for right in rights]
    kept = balanced(rows, lambda r: bool(r[1]), lambda r: r[0], "question")
    assert sorted(kept) == [("a", 0), ("a", 1), ("c", 0), ("c", 1)]
    assert kept == balanced(rows, lambda r: bool(r[1]), lambda r: r[0], "question")
    over_all = balanced(rows, lambda r: bool(r[1]), lambda r: r[0], "class")
    assert sum(r for _, r in over_all) == 3 == len(over_all) / 2


@pytest.mark.parametrize("how", ["question", "class"])
@pytest.mark.parametrize("most", [1, 2, 7, 20])
def test_a_limit_keeps_the_balance(how: Any, most: int) -> None:
    """Rows of many questions, which come one after the other."""
    rng = random.Random(most)
    rows = [(rng.randrange(6), rng.random() < 0.4, n) for n in range(200)]
    kept = balanced(rows, lambda r: r[1], lambda r: r[0], how, 0, most)
    assert len(kept) == most // 2 * 2 and kept == sorted(kept, key=lambda r: r[2])
    for question in range(6) if how == "question" else ("",):
        right = [r[1] for r in kept if question in ("", r[0])]
        assert sum(right) * 2 == len(right)
    assert len(balanced(rows, lambda r: r[1], lambda r: r[0], how, 0, 1000)) == len(
        balanced(rows, lambda r: r[1], lambda r: r[0], how)
    )


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.sampled_from([0.0, 0.5, 1.0])), max_size=60))
def test_balanced_by_length_the_longer_reply_wins_as_often_as_the_shorter_one(
    drawn: list[tuple[int, int, float]],
) -> None:
    rows = [("x" * a, "y" * b, label, n) for n, (a, b, label) in enumerate(drawn)]
    kept = even_lengths(rows, lambda row: row[:3])
    decided = [row for row in kept if row[2] != 0.5 and len(row[0]) != len(row[1])]
    assert sum((len(a) > len(b)) == (label > 0.5) for a, b, label, _ in decided) * 2 == len(decided)
    undecided = [row for row in rows if row[2] == 0.5 or len(row[0]) == len(row[1])]
    assert [row for row in kept if row in undecided] == undecided  # neither is evidence about lengths
    assert kept == even_lengths(rows, lambda row: row[:3]) == sorted(kept, key=lambda row: row[3])


def test_balancing_by_length_balances_small_and_large_differences_apart() -> None:
    """Here the longer reply wins if the difference is large, and the shorter one more often if it is small. If only the
    totals were equal, a judge could still learn that much longer is better."""
    rng = random.Random(0)
    gaps = [rng.randrange(1, 101) for _ in range(2000)]
    rows = [("x" * gap, "", float(rng.random() < (0.9 if gap > 50 else 0.4)), n) for n, gap in enumerate(gaps)]
    kept = even_lengths(rows, lambda row: row[:3])
    large = [label for first, _, label, _ in kept if len(first) > 60]
    assert len(large) > 100 and sum(large) * 2 == pytest.approx(len(large), abs=4)


def test_pairs_in_random_order_have_no_better_place() -> None:
    pairs = in_random_order([pair(n, 1.0) for n in range(400)], seed=0)
    assert 160 < sum(p.label == 1.0 for p in pairs) < 240  # five standard deviations
    assert all((p.first == "a") == (p.label == 1.0) for p in pairs)


def test_a_question_is_held_out_for_ever() -> None:
    out = [held_out(f"q{n}", 0.25, 0) for n in range(2000)]
    assert out == [held_out(f"q{n}", 0.25, 0) for n in range(2000)]
    assert 400 < sum(out) < 600


def games(strengths: dict[str, float], count: int, seed: int, tie: float = 0.0, place: float = 0.0) -> list[RatedGame]:
    rng, out = random.Random(seed), []
    names = sorted(strengths)
    for a in names:
        for b in names:
            if a != b:
                gap = (strengths[a] - strengths[b] + place) / 2
                weights = [math.exp(gap), tie, math.exp(-gap)]
                out += [(a, b, rng.choices([1.0, 0.5, 0.0], weights)[0]) for _ in range(count)]
    return out


TRUE = {"a": 1.0, "b": 0.3, "c": -0.2, "d": -1.1}


def test_bradley_terry_recovers_planted_strengths_within_two_standard_errors() -> None:
    """Of 200 strengths (50 tables), about 95% within two errors: at least 90% is six standard deviations of slack."""
    inside = 0
    for seed in range(50):
        found = bradley_terry(games(TRUE, 60, seed))
        inside += sum(abs(found.values[n] - TRUE[n]) <= 2 * found.errors[n] for n in TRUE)
    assert inside >= 180


def test_davidson_recovers_strengths_ties_and_the_first_place_within_two_standard_errors() -> None:
    inside = 0
    for seed in range(30):
        found = davidson(games(TRUE, 60, seed, tie=0.8, place=0.5), place=True)
        inside += sum(abs(found.values[n] - TRUE[n]) <= 2 * found.errors[n] for n in TRUE)
        assert found.tie is not None and found.tie_error and found.place is not None and found.place_error
        inside += abs(found.tie - math.log(0.8)) <= 2 * found.tie_error
        inside += abs(found.place - 0.5) <= 2 * found.place_error
    assert inside >= 0.9 * 180


def test_davidson_without_ties_is_refused() -> None:
    with pytest.raises(DataError, match="bradley_terry"):
        davidson([("a", "b", 1.0)])


def test_agreement_counts_strict_labels_and_prints_the_longer_reply_beside() -> None:
    pairs = [pair(0, 1.0, "long reply", "short"), pair(1, 0.0, "long reply", "short"), pair(2, 0.5), pair(3, 1.0)]
    found = agreement(pairs, [Verdict(0.9), Verdict(0.2), Verdict(0.5), Verdict(None)])
    assert found.accuracy == 1.0 and found.count == 2 and found.coverage == 0.75
    assert found.longer == pytest.approx(0.5)  # right, wrong, and a pair of equal lengths for a half
    assert (found.shorter, found.shorter_count) == (1.0, 1)  # the second pair
    assert not found.passes(0.5)  # two pairs prove nothing
    with pytest.raises(DataError, match="no label"):
        agreement([pair(0)], [Verdict(1.0)])


def test_calibration_by_hand() -> None:
    assert expected_error([0.8] * 10, [1.0] * 8 + [0.0] * 2) == pytest.approx(0.0)
    assert expected_error([1.0] * 10, [1.0] * 5 + [0.0] * 5) == pytest.approx(0.5)
    assert kappa([1, 1, 0, 0], [1, 0, 0, 0]) == pytest.approx(0.5)
    assert auc([3, 2, 1, 0], [True, False, True, False]) == pytest.approx(0.75)


def test_temperature_finds_how_much_too_sure_a_judge_was() -> None:
    rng = random.Random(0)
    logits = [rng.gauss(0, 1.5) for _ in range(4000)]
    labels = [float(rng.random() < 1 / (1 + math.exp(-x))) for x in logits]
    said = [1 / (1 + math.exp(-3 * x)) for x in logits]  # three times as sure as it should be
    assert temperature(said, labels) == pytest.approx(3.0, rel=0.1)


def test_a_rater_without_noise_and_bias_is_the_gold_judge() -> None:
    rater = Rater()
    good, bad = Scored("x", 2.0), Scored("a much longer one", 1.0)
    assert (rater.label("n", good, bad), rater.label("n", bad, good), rater.label("n", good, good)) == (1.0, 0.0, 0.5)


def test_a_rater_has_the_noise_and_bias_it_was_given() -> None:
    one, other = Scored("x" * 200, 1.0), Scored("x" * 100, 1.0)
    assert Rater(temperature=1.0, length=0.5).probability(one, other) == pytest.approx(1 / (1 + math.exp(-0.5)))
    assert Rater(temperature=1.0, first=1.0).probability(one, one) == pytest.approx(1 / (1 + math.exp(-1.0)))
    noisy = Rater(noise=0.2)
    said = [noisy.label(f"n{i}", Scored("", 1.0), Scored("", 0.0)) for i in range(2000)]
    assert 0.75 < sum(said) / 2000 < 0.85


def test_gold_that_was_never_scored_is_not_zero() -> None:
    rewards = [Reward("gold", Level.AGENT, "a", 1.0), Reward("gold", Level.TEAM, None, 2.0)]
    assert component_sum(rewards, "gold", "a") == 3.0 and component_sum(rewards, "gold", "b") == 2.0
    assert component_sum(rewards, "other", "a") is None
    assert component_sum([*rewards, Reward("gold", Level.AGENT, "a", None)], "gold", "a") is None
