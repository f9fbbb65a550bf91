"""Tic-tac-toe compared with known numbers: games and positions, exact odds of random play, OpenSpiel."""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playing import play, wins

from interplay.envs import Env, make, sample_task
from interplay.envs.games.tictactoe import TicTacToe
from interplay.errors import ConfigError
from interplay.types import Level, Role


def new(**options: Any) -> Env:
    return make(sample_task("tictactoe", options))


def ending(env: Env) -> str:
    return next((str(r.role) for r in env.outcome() if r.value == 1.0), "draw")


def after(env: Env, role: Role, move: str) -> Env:
    twin = env.fork()
    twin.step({role: move})
    return twin


def games(env: Env, memo: dict[str, Counter[str]]) -> Counter[str]:
    """How many games lead from here to each ending."""
    if env.state() not in memo:
        acting = env.observe()
        count = Counter() if acting else Counter([ending(env)])
        for role, o in acting.items():
            for move in o.legal:
                count += games(after(env, role, move), memo)
        memo[env.state()] = count
    return memo[env.state()]


def odds(env: Env, memo: dict[str, dict[str, Fraction]]) -> dict[str, Fraction]:
    """The exact chance of each ending when both play at random."""
    if env.state() not in memo:
        chance = dict.fromkeys(("X", "O", "draw"), Fraction())
        acting = env.observe()
        if not acting:
            chance[ending(env)] = Fraction(1)
        for role, o in acting.items():
            for move in o.legal:
                for end, p in odds(after(env, role, move), memo).items():
                    chance[end] += p / len(o.legal)
        memo[env.state()] = chance
    return memo[env.state()]


def test_the_rules_give_the_known_number_of_games_and_positions() -> None:
    """promise 8: legal lists and endings are those of tic-tac-toe, counted over the whole game tree."""
    memo: dict[str, Counter[str]] = {}
    count = games(new(), memo)
    assert count == {"X": 131_184, "O": 77_904, "draw": 46_080}
    assert count.total() == 255_168
    assert len(memo) == 5_478


def test_random_play_has_the_known_odds() -> None:
    """promise 8: a legal list is complete and without duplicates, so random play has its exact odds."""
    chance = odds(new(), {})
    assert chance == {"X": Fraction(737, 1260), "O": Fraction(121, 420), "draw": Fraction(8, 63)}
    assert [round(100 * float(chance[end]), 2) for end in ("X", "O", "draw")] == [58.49, 28.81, 12.70]


def test_a_whole_game_agrees_with_openspiel(samples: Path) -> None:
    """promise 8: the same actions give the board, the legal actions and the returns that OpenSpiel gives."""
    text = (samples / "openspiel_playthroughs" / "tic_tac_toe.txt").read_text(encoding="utf-8")
    states = text.split("\n# State ")[1:]
    env, boards = new(), 0
    for state in states:
        picture = "".join(re.findall(r"^# ([.xo]{3})$", state, re.M))
        if picture:  # OpenSpiel leaves some states out
            cells = env.state().rsplit("\n", 1)[0].split()
            assert "".join(cell[0].lower() if cell[0] in "XO" else "." for cell in cells) == picture
            boards += 1
        if legal := re.search(r"^LegalActions\(\) = (\[.*\])$", state, re.M):
            ((_, o),) = env.observe().items()
            assert [int(a) - 1 for a in o.legal] == ast.literal_eval(legal[1])
        if chosen := re.search(r"^action: (\d+)$", state, re.M):
            play(env, int(chosen[1]) + 1)
    assert boards > 5
    assert not env.observe()
    returns = re.findall(r"^Returns\(\) = (\[.*\])$", text, re.M)[-1]
    assert [wins(env)["X"], wins(env)["O"]] == ast.literal_eval(returns)


def test_win_and_draw_are_zero_sum() -> None:
    """promise 8: the outcome is +1 and −1, or 0 for both, at the agent level."""
    won, drawn = play(new(), 1, 4, 2, 5, 3), play(new(), 1, 2, 3, 5, 4, 6, 8, 7, 9)
    assert wins(won) == {"X": 1.0, "O": -1.0}
    assert wins(drawn) == {"X": 0.0, "O": 0.0}
    assert {(r.name, r.level) for r in won.outcome()} == {("win", Level.AGENT)}
    assert not won.observe() and not drawn.observe()


def test_the_last_cell_can_still_win() -> None:
    """promise 8: a full board with a line is a win, not a draw."""
    assert wins(play(new(), 3, 1, 6, 5, 2, 7, 4, 8, 9)) == {"X": 1.0, "O": -1.0}


@pytest.mark.parametrize("reply", ["", "0", "10", "5", "cell 3", "1 2", "3.5", "999999999999", "²", "☃"])
def test_an_illegal_reply_forfeits_the_game(reply: str) -> None:
    """promise 8: illegal actions have a defined consequence."""
    env = play(new(), 5)
    rewards = env.step({"O": reply})
    assert [(r.name, r.level, r.role, r.value) for r in rewards] == [("illegal", Level.PROCESS, "O", -1.0)]
    assert not env.observe()
    assert wins(env) == {"X": 1.0, "O": -1.0}


@pytest.mark.parametrize("reply", ["3", " 3\n", "3.", "(3)", "**3**"])
def test_decoration_around_the_number_is_forgiven(reply: str) -> None:
    """promise 8: it is defined what counts as a legal reply: only the number, ignoring punctuation."""
    assert not new().step({"X": reply})


@settings(max_examples=200)
@given(st.text(max_size=30))
def test_any_text_is_a_move_or_a_forfeit(reply: str) -> None:
    """promise 8: no reply raises an exception, and each either marks one cell or ends the game."""
    env = new()
    rewards = env.step({"X": reply})
    marked = env.state().split("\n", 3)[:3]
    assert ("X" in " ".join(marked)) == bool(env.observe()) == (not rewards)


def test_every_fresh_prompt_is_complete_and_memory_sends_only_the_news() -> None:
    """promise 8: a player sees the board and nothing else, with and without memory."""
    fresh, memory = play(new(), 1, 2), play(new(memory=True), 1, 2)
    assert fresh.observe()["X"].fresh and len(fresh.observe()["X"].messages) == 2
    assert not memory.observe()["X"].fresh and len(memory.observe()["X"].messages) == 1
    assert fresh.observe()["X"].messages[-1] == memory.observe()["X"].messages[-1]
    assert memory.observe()["X"].messages[-1].content == "#1 @2 3\n4 5 6\n7 8 9"


@pytest.mark.parametrize("line", [(1, 2, 3), (14, 15, 16), (1, 5, 9), (1, 6, 11), (4, 7, 10)])
def test_three_in_a_row_anywhere_on_a_larger_board(line: tuple[int, int, int]) -> None:
    """promise 8: on 4×4 with three in a row a line may lie anywhere, in all four directions."""
    a, b = [cell for cell in (8, 12, 13) if cell not in line][:2]
    env = play(new(size=4), line[0], a, line[1], b)
    assert env.observe()
    assert wins(play(env, line[2])) == {"X": 1.0, "O": -1.0}


def test_four_in_a_row_needs_four() -> None:
    """promise 8: `line` is the number that wins."""
    env = play(new(size=4, line=4), 1, 5, 2, 6, 3, 9)
    assert env.observe()
    assert wins(play(env, 4)) == {"X": 1.0, "O": -1.0}


def test_a_line_longer_than_the_board_is_refused() -> None:
    """promise 8: an environment that nobody could win is refused."""
    with pytest.raises(ConfigError, match=r"env\.line is 3; expected at most env\.size \(2\)"):
        new(size=2)


def test_forks_of_a_subclass_stay_in_the_subclass() -> None:
    """promise 8: a fork is a copy, of the same class, and playing it leaves the original alone."""

    class Variant(TicTacToe):
        pass

    env = Variant(sample_task("tictactoe", {}))
    fork = env.fork()
    assert type(fork) is Variant and type(env.redeal("X", random.Random(0))) is Variant
    fork.step({"X": "1"})
    assert "1" in env.observe()["X"].legal and "1" not in fork.observe()["O"].legal
