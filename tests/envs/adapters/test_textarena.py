"""The TextArena adapter, compared with TextArena itself."""

from __future__ import annotations

import random

import pytest

from interplay import envs
from interplay.envs.adapters.textarena import GAMES_THAT_LIST, MOVES
from interplay.envs.check import check
from interplay.envs.env import Env
from interplay.errors import ConfigError

FREE = ("Nim-v0", "IteratedPrisonersDilemma-v0", "Mastermind-v0", "SimpleNegotiation-v0")


def made(game: str, seed: int = 0, **options: object) -> Env:
    return envs.make(envs.sample_task(f"textarena:{game}", options, index=seed))


@pytest.mark.parametrize(
    "game",
    [
        "TicTacToe-v0-train", "TicTacToe-v0-raw", "KuhnPoker-v0-train", "Nim-v0",
        *(pytest.param(g, marks=pytest.mark.slow) for g in ("WildTicTacToe-v0", *MOVES, *FREE[1:])),
    ],
)  # fmt: skip
def test_conformance(game: str) -> None:
    name = game if "-v" in game else f"{game}-v0"
    assert [f for f in check(f"textarena:{name}", {"max_steps": 8}, episodes=1) if not f.passed] == []


@pytest.mark.parametrize("game", sorted({*GAMES_THAT_LIST, *MOVES}))
def test_what_is_listed_is_taken(game: str) -> None:
    """Random play from the lists is never refused, in every variant for which a list is claimed."""
    env, rng = made(f"{game}-v0", max_steps=12), random.Random(0)
    while seen := env.observe():
        ((role, o),) = seen.items()
        assert o.legal, env.state()
        assert not env.step({role: rng.choice(o.legal)}), env.state()


@pytest.mark.parametrize("seed", range(5))
def test_a_game_is_textarenas_own(seed: int) -> None:
    """The same moves in TextArena itself: the same player each time, the same text, the same rewards."""
    import textarena

    env, rng = made("TicTacToe-v0-train", seed), random.Random(seed)
    theirs = textarena.make("TicTacToe-v0-train")
    theirs.reset(num_players=2, seed=seed)
    while seen := env.observe():
        player, text = theirs.get_observation()
        ((role, o),) = seen.items()
        assert role == f"p{player}" and o.messages[-1].content == text.strip()
        move = rng.choice(o.legal)
        env.step({role: move})
        theirs.step(move)
    rewards, _ = theirs.close()
    assert {r.role: r.value for r in env.outcome()} == {f"p{i}": float(v) for i, v in rewards.items()}


def test_chance_is_the_episodes_own() -> None:
    """Global generators are left unchanged, and do not influence what an episode deals."""
    random.seed(5)
    before = random.getstate()
    first = made("KuhnPoker-v0", 3)
    assert random.getstate() == before
    random.seed(6)
    assert made("KuhnPoker-v0", 3).state() == first.state()
    assert len({made("KuhnPoker-v0", seed).state() for seed in range(12)}) > 1


def test_an_illegal_reply_is_counted_and_the_second_loses() -> None:
    env = made("TicTacToe-v0-train")
    assert [(r.name, r.role, r.value) for r in env.step({"p0": "[9]"})] == [("illegal", "p0", -1.0)]
    assert env.observe()["p0"].legal[:1] == ("[0]",)  # asked again
    assert [r.value for r in env.step({"p0": "hello"})] == [-1.0]
    assert not env.observe() and [r.value for r in env.outcome()] == [-1.0, 1.0]


@pytest.mark.parametrize("game", ["TicTacToe-v0-train", "ConnectFour-v0", "Othello-v0", "GuessTheNumber-v0"])
def test_a_number_that_no_game_can_read_is_an_illegal_reply(game: str) -> None:
    """It raised an error inside the game, so that a policy could have its episode dropped."""
    env = made(game)
    (role,) = env.observe()
    assert [(r.name, r.role) for r in env.step({role: f"[{'9' * 5000}]"})] == [("illegal", role)]


def test_raw_games_keep_the_conversation() -> None:
    env = made("TicTacToe-v0-raw")
    first = env.observe()["p0"]
    assert not first.fresh and "You are Player 0" in first.messages[0].content
    env.step({"p0": "[4]"})
    env.step({"p1": "[0]"})
    later = env.observe()["p0"]
    assert not any("You are Player" in m.content for m in later.messages)  # only what is new
    assert any(m.content == "[Player 1] [0]" for m in later.messages)
    assert not any(m.content == "[Player 0] [4]" for m in later.messages)  # its own words are its own turn


def test_what_cannot_be_made_says_why() -> None:
    with pytest.raises(ConfigError, match=r"env.players is 5, but 'textarena:TicTacToe-v0' does not accept this"):
        made("TicTacToe-v0", players=5)
    with pytest.raises(ConfigError, match="cannot be made: TypeError"):
        made("TicTacToe-v0", arguments={"size": 4})
    assert made("ThreePlayerTicTacToe-v0").roles == ("p0", "p1", "p2")
