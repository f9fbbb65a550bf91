"""What judges said, whether the order of two replies changed it, and where a judge and gold disagree."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from written import WHOLE, add_step, group_episodes, tree_episode, turn, write_run

from interplay.types import Episode, Level, Reward, Rewards, Turn
from interplay.viewer.api import Api
from interplay.viewer.gold import disagreements
from interplay.viewer.library import Library
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
        # Answers of remote judges, with words around the choice.
        ([("The first is clearer.\nA", None, False), ("I prefer A.", None, True)], True),
        ([("<think>B?</think>A", None, False), ("It is a tie.", None, True)], False),
    ],
)
def test_a_choice_that_follows_the_place_is_named(
    tmp_path: Path, answers: list[tuple[str, float | None, bool]], flipped: bool | None
) -> None:
    run = write_run(tmp_path / "run", 1, judges={"taste": {"kind": "pairwise", "who": "player", "against": "group"}})
    episode: Episode = tree_episode(50)
    episode.judged = [asked(*answer) for answer in answers]
    add_step(run, 2, more=[episode])
    found = verdicts(RunReader(run, "run"), {})
    (row,) = found["rows"]
    assert row["flipped"] is flipped and len(row["answers"]) == len(answers)
    (judge,) = found["judges"]
    assert judge == {"name": "taste", "asked": 1, "both": int(flipped is not None), "flipped": int(flipped is True)}


@pytest.mark.parametrize(
    ("judge", "text", "parsed"),
    [
        ({"kind": "pointwise"}, "Good, so:\n7", True),
        ({"kind": "pointwise"}, "A", False),  # it is no mark
        ({"kind": "pointwise", "marks": "expected"}, "lovely", True),
        ({"kind": "rubric", "rubric": ["tone"]}, "tone: 7", True),
        ({"kind": "rubric", "rubric": ["tone"]}, "7", False),
    ],
)
def test_an_answer_that_the_run_could_not_parse_is_named(
    tmp_path: Path, judge: dict[str, Any], text: str, parsed: bool
) -> None:
    run = write_run(tmp_path / "run", 1, judges={"taste": {**judge, "who": "player"}})
    episode: Episode = tree_episode(50)
    episode.judged = [asked(text, None, False)]
    add_step(run, 2, more=[episode])
    (row,) = verdicts(RunReader(run, "run"), {})["rows"]
    assert row["answers"] == [{"text": text, "swapped": None, "first": None, "parsed": parsed}]


def test_older_verdicts_are_on_later_pages_and_an_episode_has_its_own(tmp_path: Path) -> None:
    judge = {"kind": "pairwise", "who": "player", "against": "group"}
    run = write_run(tmp_path / "run", 1, judges={"taste": judge})
    played = [tree_episode(100 + n) for n in range(14)]
    for episode in played:
        episode.judged = [asked("A", None, False), asked("I cannot say", None, True)]
    add_step(run, 2, more=played)
    reader = RunReader(run, "run")
    newest, older, beyond = (verdicts(reader, {"page": page}) for page in ("0", "1", "2"))
    assert [row["episode"] for row in newest["rows"]] == [e.id for e in played[:3:-1]]
    assert [row["episode"] for row in older["rows"]] == [e.id for e in played[3::-1]] and beyond["rows"] == []
    assert (older["episodes"], older["page_size"]) == (18, 10) and older["judges"][0]["asked"] == 4
    page = Api(Library([run])).answer("run/run/episode", {"step": "2", "id": "task-100#0"})
    (row,) = page["judged"]
    assert {**row, "step": 2} == older["rows"][-1]
    assert [(a["swapped"], a["first"], a["parsed"]) for a in row["answers"]] == [
        (False, 1.0, True),
        (True, None, False),
    ]


def scored(number: int, replica: int, taste: float | None, win: float) -> Episode:
    """An episode of a task in which a judge and the game scored X."""
    episode = group_episodes(number, (win,) * (replica + 1))[replica]
    episode.rewards += Rewards((Reward("taste", Level.AGENT, "X", taste),))
    return episode


def test_pairs_that_a_judge_orders_unlike_gold_are_counted_and_shown(tmp_path: Path) -> None:
    judge = {"kind": "pairwise", "who": "gold:win", "against": "group"}
    run = write_run(tmp_path / "run", 1, WHOLE, judges={"taste": judge})
    played = [scored(70, 0, 1.0, -1.0), scored(70, 1, 0.5, 1.0), scored(70, 2, -1.0, -1.0), scored(70, 3, None, 1.0)]
    add_step(run, 2, WHOLE, more=played)
    reader = RunReader(run, "run")
    assert disagreements(reader, {})["judges"] == [{"name": "taste", "gold": None}]  # the recipe names no gold
    found = disagreements(reader, {"gold": "win"})
    # Of the pairs (0,1), (0,2), (1,2): the judge prefers 0, 0, 1; the game 1, neither, 1. The unscored one is left out.
    assert found["judges"] == [{"name": "taste", "gold": "win", "pairs": 3, "same": 1, "tied": 1}]
    (row,) = found["rows"]
    assert [(r["episode"], r["judge"], r["gold"]) for r in row["replies"]] == [
        ("task-70#1", 0.5, 1.0),
        ("task-70#0", 1.0, -1.0),
    ]
    assert found["components"] == ["win"]
