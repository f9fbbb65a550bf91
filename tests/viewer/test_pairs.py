"""Pairs of replies that a person compares."""

from __future__ import annotations

from pathlib import Path

import pytest
from written import write_run

from interplay.errors import InterplayError
from interplay.rewards.comparisons import read_comparisons
from interplay.viewer.pairs import LABELS, label, next_pair
from interplay.viewer.run import RunReader


def test_a_pair_shows_two_replies_to_one_prompt_and_no_score(tmp_path: Path) -> None:
    run = RunReader(write_run(tmp_path / "run", 2), "run")
    orders = set()
    for n in range(30):
        pair = next_pair(run, {"n": str(n)})["pair"]
        assert set(pair) == {"input", "role", "output_1", "output_2"}
        assert pair["output_1"] != pair["output_2"]
        orders.add(pair["output_1"] < pair["output_2"])
    assert orders == {True, False}
    assert next_pair(run, {"n": "3"}) == next_pair(run, {"n": "3"})


def test_a_pair_is_asked_only_once(tmp_path: Path) -> None:
    """Whichever verdict it got, and in either order."""
    run = RunReader(write_run(tmp_path / "run", 1), "run")
    asked = []
    for n in range(100):
        pair = next_pair(run, {"n": str(n)})["pair"]
        if pair is None:
            break
        asked.append((str(pair["input"]), frozenset((pair["output_1"], pair["output_2"]))))
        label(run, {**pair, "label": n % 3})
    assert len(asked) == len(set(asked)) == 12  # the pairs of four candidates, at two decisions
    assert next_pair(run, {"n": "0"}) == {"pair": None, "labelled": 12}


def test_verdicts_are_appended_to_the_run_folder(tmp_path: Path) -> None:
    run = RunReader(write_run(tmp_path / "run", 1), "run")
    pair = next_pair(run, {"n": "0"})["pair"]
    assert label(run, {**pair, "label": 2}) == 1
    assert label(run, {**pair, "label": 0}) == 2
    assert label(run, {**pair, "label": 1}) == 3
    second, tie, first = read_comparisons(run.folder / LABELS)  # as `interplay judge audit` does
    assert (second.first, second.second) == (pair["output_2"], pair["output_1"])
    assert (first.first, first.second) == (pair["output_1"], pair["output_2"])
    assert (first.label, second.label, tie.label) == (1.0, 1.0, 0.5)
    assert [[m.role, m.content] for m in first.question] == pair["input"]
    with pytest.raises(InterplayError, match="label"):
        label(run, {**pair, "label": 7})
