"""Alpha-beta search plays perfectly if it sees the end, wins and blocks in time, and beats simpler players."""

from __future__ import annotations

import random
from typing import Any

import pytest

from interplay.agents.bots import Bot, make_bot
from interplay.agents.bots.minimax import MinimaxBot
from interplay.envs import Env, make, sample_task
from interplay.errors import ConfigError


def position(*moves: int, **options: Any) -> Env:
    env = make(sample_task("connect_four", options))
    for move in moves:
        (role,) = env.observe()
        env.step({role: str(move)})
    return env


def choices(env: Env, bot: Bot, tries: int = 10) -> set[str]:
    (role,) = env.observe()
    return {bot.act(env, role, random.Random(seed)) for seed in range(tries)}


@pytest.mark.parametrize("options", [{"columns": 4, "rows": 3, "line": 3}, {"columns": 3, "rows": 4, "line": 3}])
def test_deep_enough_it_plays_only_optimal_moves(options: dict[str, Any]) -> None:
    """In many positions of a small grid, its move is one that an exhaustive solver calls best."""
    solver, rng, deep = MinimaxBot("connect_four"), random.Random(0), make_bot("alpha_beta:12", "connect_four")
    looked = 0
    for _ in range(15):
        env = position(**options)
        while seen := env.observe():
            ((role, o),) = seen.items()
            assert deep.act(env, role, rng) in solver.best(env), env.state()
            looked += 1
            env.step({role: rng.choice(o.legal)})
    assert looked > 60


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize(
    ("moves", "best"),
    [
        ((1, 2, 1, 2, 1, 2), "1"),  # win now rather than block
        ((1, 2, 1, 2, 1), "1"),  # block
        ((3, 3, 4, 4, 5, 7), "2 6"),  # three with both ends open
    ],
)
def test_it_wins_and_blocks_at_every_depth(depth: int, moves: tuple[int, ...], best: str) -> None:
    """Forced moves."""
    assert choices(position(*moves), make_bot(f"alpha_beta:{depth}", "connect_four")) <= set(best.split())


def test_it_sees_an_open_three_coming() -> None:
    """Two discs in the middle of the bottom row: a third with both ends open would win, so the bot must answer next to
    them."""
    assert choices(position(4, 7, 5, 7), make_bot("alpha_beta:4", "connect_four")) <= {"3", "6"}
    assert choices(position(4, 7, 5), make_bot("alpha_beta:4", "connect_four")) <= {"2", "3", "6"}


def test_the_sooner_win_and_the_later_loss() -> None:
    """It prefers the earlier win. Equal moves are drawn at random, only from the given generator."""
    bot = make_bot("alpha_beta", "connect_four")
    assert choices(position(1, 7, 2, 7, 3, 6), bot) == {"4"}
    env = position(columns=3, rows=1, line=3)
    assert choices(env, bot, 40) == {"1", "2", "3"}, "nobody can win here"
    assert bot.act(env, "X", random.Random(3)) == bot.act(env, "X", random.Random(3))


@pytest.mark.parametrize("opponent", ["random", "greedy"])
def test_it_beats_simpler_players_from_both_seats(opponent: str) -> None:
    """It loses at most one of twelve games."""
    bots = {True: make_bot("alpha_beta:3", "connect_four"), False: make_bot(opponent, "connect_four")}
    won = 0
    for game in range(12):
        env, rng, seat = position(), random.Random(game), "XO"[game % 2]
        while seen := env.observe():
            (role,) = seen
            env.step({role: bots[role == seat].act(env, role, rng)})
        won += next(r.value for r in env.outcome() if r.role == seat) == 1.0
    assert won >= 11


@pytest.mark.parametrize("setting", ["0", "-1", "x", "2.5"])
def test_a_wrong_depth_is_refused(setting: str) -> None:
    """One sentence."""
    with pytest.raises(ConfigError, match="has a wrong depth; expected a whole number from 1"):
        make_bot(f"alpha_beta:{setting}", "connect_four")
