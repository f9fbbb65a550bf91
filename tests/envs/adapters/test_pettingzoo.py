"""The PettingZoo adapter compared with PettingZoo, and our own games compared with PettingZoo's."""

from __future__ import annotations

import random

import pytest
from pettingzoo.env_registry.registration import make

from interplay import envs
from interplay.envs.check import check
from interplay.envs.env import Env
from interplay.errors import ConfigError
from interplay.types import Level

FAST = ("tictactoe_v3", "rps_v2", "leduc_holdem_v4")
SLOW = ("connect_four_v3", "texas_holdem_v4", "texas_holdem_no_limit_v6", "hanabi_v5")


def made(game: str, seed: int = 0, **options: object) -> Env:
    return envs.make(envs.sample_task(f"pettingzoo:{game}", options, index=seed))


@pytest.mark.parametrize("game", [*FAST, *(pytest.param(g, marks=pytest.mark.slow) for g in SLOW)])
def test_conformance(game: str) -> None:
    assert [f for f in check(f"pettingzoo:{game}", {}, episodes=1) if not f.passed] == []


@pytest.mark.slow
@pytest.mark.parametrize(("game", "arguments"), [("chess_v6", {}), ("go_v5", {"board_size": 5})])
def test_long_games_end(game: str, arguments: dict[str, int]) -> None:
    env, rng = made(game, arguments=arguments, max_steps=60), random.Random(0)
    while seen := env.observe():
        ((role, o),) = seen.items()
        assert not env.step({role: rng.choice(o.legal)}) or env.over  # type: ignore[attr-defined]
    assert env.over or len(env.history) == 60  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("game", ["tictactoe_v3", "connect_four_v3"])
def test_the_same_moves_give_the_same_game(game: str, seed: int) -> None:
    """Masks and rewards are PettingZoo's own, step by step."""
    ours, rng = made(game, seed), random.Random(seed)
    theirs = make("aec", f"classic/{game.replace('_v', '-v')}")
    theirs.reset(seed=1)
    totals = dict.fromkeys(theirs.possible_agents, 0.0)
    while seen := ours.observe():
        ((role, o),) = seen.items()
        assert role == theirs.agent_selection
        mask = theirs.observe(role)["action_mask"]
        assert list(o.legal) == [str(i) for i, open_ in enumerate(mask) if open_]
        move = rng.choice(o.legal)
        rewards = ours.step({role: move})
        theirs.step(int(move))
        assert {r.role: r.value for r in rewards} == {k: v for k, v in theirs.rewards.items() if v}
        for r in rewards:
            totals[r.role or ""] += r.value or 0.0
    assert all(theirs.terminations.values()) and sum(totals.values()) == 0 and not ours.outcome()


@pytest.mark.parametrize("seed", range(10))
def test_native_games_agree(seed: int) -> None:
    """Our tic-tac-toe and Connect Four, and PettingZoo's: the same legal moves and the same winner."""
    for name, game, place in (
        ("tictactoe", "tictactoe_v3", lambda m: str(3 * ((int(m) - 1) % 3) + (int(m) - 1) // 3)),
        ("connect_four", "connect_four_v3", lambda m: str(int(m) - 1)),
    ):
        ours, theirs, rng = envs.make(envs.sample_task(name, {})), made(game), random.Random(seed)
        won = dict.fromkeys(theirs.roles, 0.0)
        while seen := ours.observe():
            ((role, o),) = seen.items()
            ((other, p),) = theirs.observe().items()
            assert ours.roles.index(role) == theirs.roles.index(other)
            assert sorted(map(place, o.legal)) == sorted(p.legal)
            move = rng.choice(o.legal)
            ours.step({role: move})
            for r in theirs.step({other: place(move)}):
                won[r.role or ""] += r.value or 0.0
        assert not theirs.observe()
        assert [r.value for r in ours.outcome()] == list(won.values())


def test_cards_in_words_are_what_the_player_holds() -> None:
    for seed in range(12):
        env = made("leduc_holdem_v4", seed)
        ((role, o),) = env.observe().items()
        game = env.env.unwrapped.env.game  # type: ignore[attr-defined]
        mine = game.players[env.roles.index(role)].hand
        assert f"Your card: {mine.rank}. Public card: none yet." in o.messages[-1].content
        assert set(o.legal) <= {"call", "raise", "fold", "check"}


def test_simultaneous_moves_come_through_one_observe() -> None:
    env = made("rps_v2")
    assert env.observe().keys() == {"player_0", "player_1"}
    paid = env.step({"player_0": "rock", "player_1": "paper"})
    assert {r.role: r.value for r in paid} == {"player_0": -1.0, "player_1": 1.0}
    assert "last move: paper" in env.observe()["player_0"].messages[-1].content
    turns = made("rps_v2", api="aec")
    assert turns.observe().keys() == {"player_0"}
    turns.step({"player_0": "rock"})
    assert "last move: none" in turns.observe()["player_1"].messages[-1].content  # not shown before both have moved


def test_an_illegal_reply_ends_the_game() -> None:
    env = made("tictactoe_v3", forfeit=-3.0)
    assert [(r.name, r.level, r.value) for r in env.step({"player_1": "9"})] == [("illegal", Level.PROCESS, -1.0)]
    assert {r.role: r.value for r in env.outcome()} == {"player_1": -3.0} and not env.observe()


def test_a_team_is_paid_together() -> None:
    env, rng = made("hanabi_v5", level="team"), random.Random(0)
    levels = set()
    while seen := env.observe():
        ((role, o),) = seen.items()
        levels |= {r.level for r in env.step({role: rng.choice(o.legal)})}
    assert levels <= {Level.TEAM}


def test_games_of_other_modules() -> None:
    env = made("pettingzoo.classic.rps_v2")
    assert env.observe()["player_0"].legal == ("rock", "paper", "scissors")
    with pytest.raises(ConfigError, match=r"env.api is 'parallel', which .* does not have; expected aec"):
        made("tictactoe_v3", api="parallel")
    with pytest.raises(ConfigError, match=r"'pettingzoo:tictactoe_v3' does not accept env.arguments"):
        made("tictactoe_v3", arguments={"bord_size": 4})
