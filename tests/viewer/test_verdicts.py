"""What judges said, and whether the order of two replies changed it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from written import add_step, tree_episode, turn, write_run

from interplay.types import Episode, Turn
from interplay.viewer.run import RunReader
from interplay.viewer.verdicts import verdicts


def asked(text: str, sure: float | None, swapped: bool, vote: int = 0) -> Turn:
    """A judge's answer to question 0, restricted to A and B if `sure` is its probability."""
    made = turn("task-50#0", 0, "judge", text, 2 * vote + swapped)
    sample = made.samples[0]
    if sure is not None:
        sample = replace(sample, logprobs=(math.log(sure),), mask=((5,), (6,)))
    made.samples = (sample,)
    made.keys = replace(made.keys, phase="taste")
    return made


@pytest.mark.parametrize(
    ("answers", "flipped"),
    [
        ([("A", None, False), ("B", None, True)], False),
        ([("A", None, False), ("A", None, True)], True),
        # B was drawn, but A is more likely in both orders: the verdict is the probability.
        ([("B", 0.3, False), ("A", 0.6, True)], True),
        ([("A", 0.9, False), ("A", 0.2, True)], False),
        ([("A", None, False)], None),
        ([("A", None, False), ("I cannot say", None, True)], None),
    ],
)
def test_a_choice_that_follows_the_place_is_named(
    tmp_path: Path, answers: list[tuple[str, float | None, bool]], flipped: bool | None
) -> None:
    run = write_run(tmp_path / "run", 1)
    episode: Episode = tree_episode(50)
    episode.judged = [asked(*answer) for answer in answers]
    add_step(run, 2, more=[episode])
    found = verdicts(RunReader(run, "run"), {})
    (row,) = found["rows"]
    assert row["flipped"] is flipped and len(row["answers"]) == len(answers)
    (judge,) = found["judges"]
    assert judge == {"name": "taste", "asked": 1, "both": int(flipped is not None), "flipped": int(flipped is True)}
