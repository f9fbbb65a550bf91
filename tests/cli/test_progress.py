"""Progress if the output is not a terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from interplay.cli import progress, session
from interplay.cli.progress import Bar, Lines, games_played, reporter


def test_a_terminal_gets_a_bar_and_a_file_gets_lines() -> None:
    assert isinstance(reporter(Console(file=io.StringIO(), force_terminal=True)), Bar)
    assert isinstance(reporter(Console(file=io.StringIO())), Lines)


def test_a_bar_says_left_after_the_time_that_is_left() -> None:
    """Before it, the word would belong to the time that has passed."""
    out = io.StringIO()
    with Bar(Console(file=out, force_terminal=True, width=120)) as shown:
        shown.stage("measure before", info="3 games a seat")  # of unknown length
        shown._bar.refresh()
        shown.stage("train", 0, 8)
        shown.advance(4, 8, "reward +0.50")
        shown._bar.refresh()
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "\n").splitlines()
    told = [" ".join(line.split()) for line in lines]
    assert any(re.fullmatch(r"measure before ━+ 0:00:00 3 games a seat", line) for line in told)
    assert any(re.fullmatch(r"train ━+.*━+ 50% 0:00:00 [-0-9:]+ left reward \+0\.50", line) for line in told)


def test_lines_say_where_a_stage_begins_and_ends_and_no_more_than_one_in_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lines are never wrapped, however long."""
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    out = io.StringIO()
    with reporter(Console(file=out, width=80)) as shown:
        shown.stage("measure before", info="3 games a seat")
        shown.stage("train", 2, 9)
        for done in range(3, 10):
            shown.advance(done, 9, "reward [1] " + "x" * 90)
            now += 4.0
    lines = out.getvalue().splitlines()
    assert lines[:2] == ["measure before (3 games a seat)", "train from 2 of 9"]
    assert [line.split()[1] for line in lines[2:]] == ["3/9", "6/9", "9/9"]
    assert all(line.endswith("reward [1] " + "x" * 90) for line in lines[2:])


def test_every_training_step_has_its_line() -> None:
    out = io.StringIO()
    with reporter(Console(file=out, width=80)) as shown:
        shown.stage("train", 0, 5, each=True)
        for done in range(1, 6):
            shown.advance(done, 5, "reward +0.50")
    assert out.getvalue().splitlines()[1:] == [f"train {n}/5 reward +0.50" for n in range(1, 6)]


def test_a_short_evaluation_is_named_for_people() -> None:
    assert session._measured("eval/win_rate/team") == "success"
    assert session._measured("eval/win_rate/bot:random") == "wins vs random"


def test_a_bar_shows_how_far_a_stage_is() -> None:
    out = io.StringIO()
    with Bar(Console(file=out, force_terminal=True, width=120)) as shown:
        shown.stage("train", 0, 4)
        shown.advance(3, 4, "reward +0.25")
    assert "75%" in out.getvalue() and "reward +0.25" in out.getvalue()


def test_games_are_counted() -> None:
    out = io.StringIO()
    with games_played(Console(file=out), 3) as one_more:
        for _ in range(3):
            one_more()
    assert out.getvalue().splitlines() == ["play: 3 in all", "play 1/3 games", "play 3/3 games"]
