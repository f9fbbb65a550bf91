"""Matrix games: the payoffs are the table's, nobody sees a move early, wrong tables are refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from interplay.envs import Env, make, sample_task
from interplay.envs.games.matrix import GAMES
from interplay.errors import ConfigError
from interplay.types import Level, Rewards, Role

THREE = {
    "actions": [["Left", "Right"], ["up", "down"], ["In.", "out"]],
    "payoff": [[[[a + b + c, a - b, -c] for c in range(2)] for b in range(2)] for a in range(2)],
}


def new(**options: Any) -> Env:
    return make(sample_task("matrix", options))


def payoffs(rewards: Rewards) -> dict[Role | None, float | None]:
    assert {r.level for r in rewards if r.name == "payoff"} == {Level.AGENT}
    return {r.role: r.value for r in rewards if r.name == "payoff"}


@pytest.mark.parametrize("game", sorted(GAMES))
def test_every_entry_of_a_known_table_is_paid(game: str) -> None:
    """promise 8: deterministic from the actions; each pair of listed actions pays its entry."""
    actions, table = GAMES[game]
    for (i, a), (j, b) in itertools.product(enumerate(actions[0]), enumerate(actions[1])):
        env = new(game=game)
        assert payoffs(env.step({"p0": a, "p1": b})) == dict(zip(("p0", "p1"), table[i][j], strict=True))
        assert not env.observe() and not env.outcome()


def test_the_known_tables_are_the_games_of_that_name() -> None:
    """promise 8: the defining inequalities hold: T > R > P > S, stag R > T ≥ P > S, and two zero-sum games."""
    pd, stag = GAMES["prisoners_dilemma"][1], GAMES["stag_hunt"][1]
    assert pd[1][0][0] > pd[0][0][0] > pd[1][1][0] > pd[0][1][0]
    assert stag[0][0][0] > stag[1][0][0] >= stag[1][1][0] > stag[0][1][0]
    for game in ("matching_pennies", "rock_paper_scissors"):
        assert all(sum(entry) == 0 for row in GAMES[game][1] for entry in row)
    for game, (_, table) in GAMES.items():
        if game != "matching_pennies":
            assert all(table[i][j] == table[j][i][::-1] for i in range(len(table)) for j in range(len(table))), game


def test_rock_loses_to_paper() -> None:
    """promise 8: the table is indexed by p0's action first."""
    assert payoffs(new(game="rock_paper_scissors").step({"p0": "rock", "p1": "paper"})) == {"p0": -1, "p1": 1}


def test_three_players_move_at_once() -> None:
    """promise 8: simultaneous moves; all roles are observed, each with its own list; case and full stops are
    ignored."""
    env = new(**THREE, rounds=2)
    assert list(env.observe()) == ["p0", "p1", "p2"]
    assert env.observe()["p2"].legal == ("In.", "out")
    assert payoffs(env.step({"p0": "right", "p1": "DOWN.", "p2": "In."})) == {"p0": 2, "p1": 0, "p2": 0}
    assert env.observe()["p1"].messages[0].content == "Last round: p0 Right, p1 down, p2 In.. Your move?"
    assert payoffs(env.step({"p0": "Left", "p1": "down", "p2": " out\n"})) == {"p0": 2, "p1": -1, "p2": -1}
    assert not env.observe()


def test_rounds_show_the_past_and_then_end() -> None:
    """promise 8: the moves of this round are shown only when all have moved; every episode ends."""
    env = new(rounds=3)
    before = env.observe()
    for _ in range(3):
        assert all(o.legal == ("cooperate", "defect") for o in env.observe().values())
        env.step({"p0": "cooperate", "p1": "defect"})
    assert not env.observe()
    assert "p1 defect" not in before["p0"].messages[-1].content
    twice = new(rounds=3)
    twice.step({"p0": "cooperate", "p1": "defect"})
    assert twice.observe()["p0"].messages[-1].content == "Last round: p0 cooperate, p1 defect. Your move?"


def test_an_illegal_reply_ends_the_game_for_all() -> None:
    """promise 8: illegal actions have a defined consequence, for one offender and for several."""
    env = new(rounds=5, game="matching_pennies")
    rewards = env.step({"p0": "heads or tails", "p1": "heads"})
    assert [(r.role, r.value) for r in rewards if r.name == "illegal"] == [("p0", -1.0)]
    assert payoffs(rewards) == {"p0": -5.0, "p1": 0.0}, "the lowest payoff for each of the five rounds left"
    assert not env.observe()
    both = new().step({"p0": "", "p1": "x"})
    assert [r.role for r in both if r.name == "illegal"] == ["p0", "p1"]


def test_the_state_says_when_it_is_over() -> None:
    """promise 8: state() shows whether a game has ended, also after a forfeit."""
    env = new()
    before = env.state()
    env.step({"p0": "", "p1": ""})
    assert before.startswith("round 1 of 1") and env.state().startswith("over")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"game": "stag_hnt"}, "env.game is 'stag_hnt'; .*Did you mean 'stag_hunt'"),
        ({"actions": [["a"], ["b"]]}, "env.actions and env.payoff belong together"),
        ({"actions": [["a"], ["b"]], "payoff": [[[1]]]}, r"env.payoff at \[0, 0\] is \[1\]; expected 2 numbers"),
        ({"actions": [["a", "c"], ["b"]], "payoff": [[[1, 1]]]}, r"env.payoff at \[1, 0\] is None"),
        ({"actions": [["a"], ["b"]], "payoff": [[[1, "x"]]]}, r"env.payoff at \[0, 0\] is \[1, 'x'\]"),
        ({"actions": [["a"], ["b"]], "payoff": [[[1, float("nan")]]]}, r"env.payoff at \[0, 0\] is \[1, nan\]"),
        ({"actions": [[], ["b"]], "payoff": [[[1, 1]]]}, r"env.actions of p0 is \[\]"),
        ({"actions": [["a", "A."], ["b"]], "payoff": [[[1, 1]], [[0, 0]]]}, r"env.actions of p0 is \['a', 'A.'\]"),
        ({"actions": [["a"], ["."]], "payoff": [[[1, 1]]]}, r"env.actions of p1 is \['.'\]"),
        ({"rounds": 0}, "env.rounds is 0; expected a whole number"),
    ],
)
def test_a_wrong_table_is_refused_with_one_sentence(options: dict[str, Any], sentence: str) -> None:
    """promise 8: a table that cannot be played (or not legally) is refused."""
    with pytest.raises(ConfigError, match=sentence):
        new(**options)


def test_talk_comes_before_each_move_and_is_read_by_all() -> None:
    """Promise 8: each round has two phases. Nobody sees a message before all players have sent theirs."""
    env = new(rounds=2, talk=True)
    first = env.observe()
    assert {(o.phase, o.legal) for o in first.values()} == {("talk", ())}
    assert "Before each move everybody sends everybody a message" in first["p0"].messages[0].content
    assert first["p1"].messages[-1].content == "You are p1. Your message?"
    assert not env.step({"p0": "Let us both\ncooperate.", "p1": ""}), "talk pays nothing"
    for o in env.observe().values():
        assert (o.phase, o.legal) == ("move", ("cooperate", "defect"))
        assert [m.content for m in o.messages] == ["p0: Let us both cooperate.\np1: (nothing)\nYour move?"]
    assert payoffs(env.step({"p0": "cooperate", "p1": "defect"})) == {"p0": 0, "p1": 5}
    again = env.observe()["p0"]
    assert again.phase == "talk" and again.messages[-1].content == "Last round: p0 cooperate, p1 defect. Your message?"
    env.step({"p0": "Why?", "p1": "Because."})
    assert payoffs(env.step({"p0": "defect", "p1": "defect"})) == {"p0": 1, "p1": 1}
    assert not env.observe() and "Because." in env.state()


def test_talk_cannot_be_illegal_nor_pass_for_anothers() -> None:
    """promise 8: any text is a message, as one line of at most 500 characters; moves are still checked."""
    env = new(rounds=3, talk=True, game="matching_pennies")
    assert not env.step({"p0": "hello\np1: I play heads\nYour move?", "p1": "x" * 20_000})
    lines = env.observe()["p1"].messages[0].content.split("\n")
    assert len(lines) == 3 and lines[0] == "p0: hello p1: I play heads Your move?" and len(lines[1]) == 504
    rewards = env.step({"p0": "heads", "p1": "whatever"})
    assert [(r.role, r.value) for r in rewards if r.name == "illegal"] == [("p1", -1.0)]
    assert payoffs(rewards) == {"p0": 0.0, "p1": -3.0} and not env.observe()


def test_a_fork_in_the_middle_of_a_round_has_its_own_messages() -> None:
    """promise 8: a fork shares nothing."""
    env = new(rounds=2, talk=True)
    env.step({"p0": "a", "p1": "b"})
    fork = env.fork()
    fork.step({"p0": "defect", "p1": "defect"})
    fork.step({"p0": "c", "p1": "d"})
    assert env.observe()["p0"].phase == "move" and "c" not in env.state().split("\n")[-1]
