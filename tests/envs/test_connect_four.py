"""Connect Four against known answers: published move counts, a recorded game, and lines in every direction."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import play, wins

from interplay.envs import Env, make, sample_task
from interplay.envs.games.connect_four import ConnectFour, connected
from interplay.errors import ConfigError
from interplay.types import Level

PERFT = [7, 49, 343, 2_401, 16_807, 117_649, 823_536, 5_673_234]


def new(**options: Any) -> Env:
    return make(sample_task("connect_four", options))


def perft(env: ConnectFour, depth: int) -> int:
    """The number of lines of `depth` moves from here; lines that end early are not counted. It only steps and does not
    observe."""
    if env.over:
        return 0
    role = env.roles[env.moves % 2]
    open_columns = [str(c + 1) for c, height in enumerate(env.heights) if height < env.rows]
    if depth == 1:
        return len(open_columns)
    count = 0
    for move in open_columns:
        twin = env.fork()
        twin.step({role: move})
        count += perft(twin, depth - 1)
    return count


def test_the_rules_give_the_published_counts() -> None:
    """promise 8: perft to depth 6."""
    env = new()
    assert isinstance(env, ConnectFour)
    assert [perft(env, depth) for depth in range(1, 7)] == PERFT[:6]


@pytest.mark.slow
def test_the_rules_give_the_published_counts_deeper() -> None:
    """promise 8: from depth 7 on, some games are won and some columns are full."""
    env = new()
    assert isinstance(env, ConnectFour)
    assert [perft(env, depth) for depth in (7, 8)] == PERFT[6:]


def test_legal_lists_are_those_of_the_count() -> None:
    """promise 8: the observed legal actions are those that perft counts, down to depth 4 and with a full column."""
    count, todo = 0, [(new(), 0)]
    while todo:
        env, depth = todo.pop()
        ((_, o),) = env.observe().items()
        if depth == 3:
            count += len(o.legal)
            continue
        todo += [(play(env.fork(), move), depth + 1) for move in o.legal]
    assert count == PERFT[3]
    assert play(new(), *[3] * 6).observe()["X"].legal == ("1", "2", "4", "5", "6", "7")


def test_a_whole_game_agrees_with_openspiel() -> None:
    """promise 8: OpenSpiel's recorded game, its final board and returns."""
    env = play(new(), *(int(a) + 1 for a in "01264102605406503"))
    board = [".......", "o......", "x......", "o.....o", "xoo.oxx", "xoxxxxo"]
    assert env.state().lower().replace(" ", "").split("\n")[1:-1] == board
    assert not env.observe() and wins(env) == {"X": 1.0, "O": -1.0}
    assert {(r.name, r.level) for r in env.outcome()} == {("win", Level.AGENT)}


@pytest.mark.parametrize(
    "moves",
    [
        (1, 2, 1, 2, 1, 2, 1),  # up
        (4, 4, 5, 5, 6, 6, 7),  # across, at the right edge
        (1, 2, 2, 3, 3, 4, 3, 4, 4, 6, 4),  # rising
        (7, 6, 6, 5, 5, 4, 5, 4, 4, 2, 4),  # falling
    ],
)
def test_four_in_a_row_wins_in_every_direction(moves: tuple[int, ...]) -> None:
    """promise 8: and three in a row do not win."""
    env = play(new(), *moves[:-1])
    assert env.observe()
    assert wins(play(env, moves[-1])) == {"X": 1.0, "O": -1.0}
    assert not env.observe()


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 8), st.integers(2, 5))
def test_lines_are_found_as_by_looking(seed: int, columns: int, rows: int, line: int) -> None:
    """promise 8: the shifts of `connected` agree with a plain check of every line of the grid, without wrapping."""
    rng = random.Random(seed)
    cells = {(c, r) for c in range(columns) for r in range(rows) if rng.random() < 0.5}
    bits = sum(1 << c * (rows + 1) + r for c, r in cells)
    plain = any(
        all((c + i * dc, r + i * dr) in cells for i in range(line))
        for c, r in cells
        for dc, dr in ((1, 0), (0, 1), (1, 1), (1, -1))
    )
    assert connected(bits, rows, line) == plain


def test_a_full_grid_without_a_line_is_a_draw() -> None:
    """promise 8: every episode ends, here with 0 for both."""
    drawn = play(new(columns=3, rows=1, line=2), 1, 2, 3)
    assert not drawn.observe() and wins(drawn) == {"X": 0.0, "O": 0.0}


@pytest.mark.parametrize("reply", ["", "0", "8", "3", "col 4", "1 2", "2.5", "99999999999", "²", "☃", "-1"])
def test_an_illegal_reply_forfeits_the_game(reply: str) -> None:
    """promise 8: illegal actions (here also the full column 3) have a defined consequence."""
    env = play(new(), *[3] * 6)
    rewards = env.step({"X": reply})
    assert [(r.name, r.level, r.role, r.value) for r in rewards] == [("illegal", Level.PROCESS, "X", -1.0)]
    assert not env.observe() and wins(env) == {"X": -1.0, "O": 1.0}


def test_both_seats_see_the_same_kind_of_board() -> None:
    """promise 8: # is always one's own disc, and every prompt is complete."""
    env = play(new(columns=3, rows=2, line=2), 1)
    seen = env.observe()["O"]
    assert seen.fresh and seen.messages[-1].content == "1 2 3\n. . .\n@ . ."
    assert play(env, 3).observe()["X"].messages[-1].content == "1 2 3\n. . .\n# . @"
    assert len(new(brief=True).observe()["X"].messages) == 1 and len(new().observe()["X"].messages) == 2
    wide = play(new(columns=11), 10).observe()["O"].messages[-1].content.split("\n")
    assert len({len(row) for row in wide}) == 1, "columns of two digits keep the grid straight"


def test_a_line_longer_than_the_grid_is_refused() -> None:
    """promise 8: an environment that nobody could win is refused."""
    with pytest.raises(ConfigError, match=r"env\.line is 4; expected at most the longer side of the grid \(3\)"):
        new(columns=3, rows=3)
