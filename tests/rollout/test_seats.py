"""Seats by role and turn, policies per role, and agents that take the turns of a role one after another."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from interplay.algorithms import Independent, Tree
from interplay.config import PolicySection, RewardSection, RolloutSection, parse
from interplay.errors import ConfigError
from interplay.rollout.resolve import resolve
from interplay.rollout.runner import Runner
from interplay.rollout.team import Speech, Team
from interplay.seats import ByTurn, Occupant, Policy, Remote, Scripted, Seats, Snapshot, everyone

TINY = {"base": "tiny-16x1"}
RECIPE: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "tictactoe", "size": 2, "line": 2},
    "policies": {"opener": {**TINY, "adapter": {"rank": 2}}, "closer": {**TINY, "adapter": {"rank": 2}}},
    "seats": {"X@1": "opener", "X": "closer", "O": "bot:random"},
    "algorithm": {"name": "grpo", "group": 2},
    "sampling": {"max_tokens": 2},
}

ROUNDS: dict[str, Any] = {  # where a prompt goes on from what was said before
    **RECIPE,
    "env": {"name": "matrix", "game": "stag_hunt", "rounds": 3},
    "seats": {"p0@1": "opener", "p0": "closer", "p1": "bot:random"},
    "sampling": {"max_tokens": 4},
}


def test_a_seat_is_a_role_or_a_turn_of_it() -> None:
    one, two, three, rest = map(Policy, ("one", "two", "three", "rest"))
    seats = Seats({})
    found = seats.map({"a@1": "one", "a@3": "three", "a": "rest", "b": "bot:random"}, ("a", "b"))
    assert found == {"a": ByTurn((one, rest, three, rest), always=True), "b": Scripted("random")}
    assert everyone(found["a"]) == (one, rest, three)
    assert seats.map({"a@1": "one", "a@2": "two"}, ("a",)) == {"a": ByTurn((one, two), always=False)}
    assert seats.map({"a@1": "one"}, ("a",)) == {"a": ByTurn((one,), always=False)}
    assert seats.map({"a@1": "one", "a": "rest"}, ("a",)) == {"a": ByTurn((one, rest), always=True)}


def test_a_policy_behind_a_server_is_seated_as_remote() -> None:
    """Wherever it is named: only the recipe's policy says that it is remote."""
    seats = Seats({"far": PolicySection(base="openai:gpt", trainable=False), "near": PolicySection(base="tiny")})
    assert seats.map("far", ("a",)) == {"a": Remote("far")}
    assert seats.map({"a@1": "far", "a": "near"}, ("a",)) == {"a": ByTurn((Remote("far"), Policy("near")), always=True)}
    assert seats.occupant("near, then far") == ByTurn((Policy("near"), Remote("far")), always=True)


@pytest.mark.parametrize(
    ("seats", "says"),
    [
        ({"X@0": "opener", "X": "closer", "O": "bot:random"}, "has the turn '0'; expected role@turn"),
        ({"X@first": "opener", "X": "closer", "O": "bot:random"}, "has the turn 'first'"),
        (
            {"Y@1": "opener", "X": "closer", "O": "bot:random"},
            "seats.Y@1 is not a role of this environment; known: O, X",
        ),
        ({"X@2": "opener", "O": "closer"}, "seats.X@2 is set, but X@1 is not"),
        (
            {"X@1": "opener", "O": "closer"},
            "seats names 1 turn of X, but X can have 2 turns; expected seats.X, or every",
        ),
        ({"X@1": "opner", "X": "closer", "O": "bot:random"}, "names policy 'opner'.*Did you mean 'opener'"),
        ({"X@1": "bot:nobody", "X": "closer", "O": "opener"}, "seats.X is 'bot:nobody'"),
    ],
)
def test_a_wrong_seat_is_one_sentence(seats: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        resolve(parse({**RECIPE, "seats": seats}))


def test_a_policy_per_role_is_as_many_policies() -> None:
    shared = {
        **RECIPE,
        "policies": {"player": {**TINY, "per": "role", "lr": 0.1}},
        "seats": "player",
        "matchups": [{"share": 0.5, "seats": {"O": "player@start"}}],
    }
    plan = resolve(parse(shared))
    assert plan.seats == {"X": Policy("player-X"), "O": Policy("player-O")}
    assert plan.trainable == ["player-X", "player-O"]
    assert plan.recipe.matchups[0].seats == {"O": "player-O@start"} and plan.snapshots == [Snapshot("player-O")]
    assert {plan.settings(n).lr for n in plan.trainable} == {0.1}
    assert resolve(parse(plan.recipe.model_dump())).recipe == plan.recipe, "what a run folder keeps is the same plan"
    with pytest.raises(ConfigError, match=r"eval\.opponents names 'player', which has per = 'role'"):
        resolve(parse(shared, ['eval.opponents=["player"]']))


def test_a_matchup_of_a_policy_per_role_seats_each_roles_own() -> None:
    """One line turns a league of one policy into a league of one policy per role: the share is divided among the roles
    that `one` can play."""
    data = {
        **RECIPE,
        "policies": {"player": {**TINY, "per": "role"}},
        "seats": "player",
        "league": {"every": 1},
        "matchups": [
            {"share": 0.4, "one": "player", "others": "player@league"},
            {"share": [[0, 0.2], [5, 0.4]], "one": "bot:random", "others": "player@now"},
            {"share": 0.1, "one": "player", "others": "@league"},
        ],
    }
    plan = resolve(parse(data))
    assert [(m.share, m.seats) for m in plan.recipe.matchups] == [
        (0.2, {"X": "player-X", "O": "player-O@league"}),
        (0.2, {"X": "player-X@league", "O": "player-O"}),
        ([[0, 0.1], [5, 0.2]], {"X": "bot:random", "O": "player-O@now"}),
        ([[0, 0.1], [5, 0.2]], {"X": "player-X@now", "O": "bot:random"}),
        (0.05, {"X": "player-X", "O": "@league"}),
        (0.05, {"X": "@league", "O": "player-O"}),
    ]
    assert resolve(parse(plan.recipe.model_dump())).recipe == plan.recipe
    only = {**data, "seats": {"X": "player", "O": "bot:random"}, "league": None}
    grown = resolve(parse({**only, "matchups": [{"share": 0.5, "seats": {"O": "player"}}]}))
    assert grown.trainable == ["player-X", "player-O"], "a seat in a matchup is one to learn in too"
    with pytest.raises(ConfigError, match=r"seats 'player-O@start', but 'player-O'.* is not trained in that role"):
        resolve(parse({**only, "matchups": [{"share": 0.5, "seats": {"O": "player@start"}}]}))
    with pytest.raises(ConfigError, match=r"league\.alarm\.panel names 'player@start', which has per = 'role'"):
        resolve(parse({**data, "league": {"alarm": {"panel": ["player@start"]}}}))


def test_a_run_in_which_nobody_may_learn_is_refused() -> None:
    data = {**RECIPE, "policies": {"player": {**TINY, "frozen": [[0]]}}, "seats": "player"}
    with pytest.raises(ConfigError, match=r"every trainable policy is frozen in all \d+ steps"):
        resolve(parse(data))
    resolve(parse(data), training=False)


def play(data: dict[str, Any], tree: bool = False) -> tuple[Team, list[Any]]:
    plan = resolve(parse(data))
    team = Team(plan.recipe)
    runner = Runner(0, RolloutSection(), Tree(2, "playout") if tree else Independent(), RewardSection())
    seating = team.seating(plan.seats_for, Speech(1.0, 4, legal=True))
    return team, asyncio.run(runner.run([plan.task(i) for i in range(2)], seating))


@pytest.mark.parametrize("tree", [False, True])
def test_each_turn_is_taken_by_whoever_sits_there(private_cache: None, tree: bool) -> None:
    """They share one conversation: each turn extends the one before token for token, although another policy took
    it."""
    team, episodes = play(ROUNDS, tree)
    seats = {"p0": ByTurn((Policy("opener"), Policy("closer")), always=True), "p1": Scripted("random")}
    assert all(e.error is None and e.seats == seats for e in episodes)
    for episode in episodes:
        line = episode.line("p0")
        assert [t.policy for t in line] == ["opener", "closer", "closer"]
        for before, turn in itertools.pairwise(line):
            assert turn.parent == before.id and turn.last.extends == before.last.id
            said = before.last.prompt + before.last.action
            assert turn.last.prompt[: len(said)] == said
        if tree:
            assert {t.policy for t in episode.turns if t.role == "p0" and t.decision == 0} == {"opener"}
            assert {t.policy for t in episode.turns if t.role == "p0" and t.decision > 0} == {"closer"}
    team.close()


@pytest.mark.parametrize("opener", ["bot:first", "stranger"])
def test_what_another_said_for_the_role_is_remembered(private_cache: None, opener: str) -> None:
    """Also after a bot, or a model with another tokenizer: then the prompt is rendered from scratch."""
    policies = {"closer": TINY} | ({} if opener.startswith("bot:") else {opener: TINY})
    data = {**ROUNDS, "policies": policies, "seats": {"p0@1": opener, "p0": "closer", "p1": "bot:random"}}
    team, episodes = play(data)
    tokenizer = team.members["closer"].loaded.tokenizer
    for episode in episodes:
        first, second, third = episode.line("p0")
        assert first.policy == opener and second.last.extends is None and third.last.extends == second.last.id
        assert f"<|assistant|>{first.text}<|end|>" in tokenizer.decode(second.asked)
    team.close()


def test_a_turn_that_nobody_takes_stops_the_run(private_cache: None) -> None:
    """This is not a failure of an episode, which would only be dropped and would bias the training data."""
    plan = resolve(parse(RECIPE))
    team = Team(plan.recipe)
    seats: dict[str, Occupant] = {"X": ByTurn((Policy("opener"),), always=False), "O": Scripted("random")}
    short = team.seating(lambda task: seats, Speech(1.0, 2, legal=True))
    runner = Runner(0, RolloutSection(), Independent(), RewardSection())
    with pytest.raises(ConfigError, match="role X has a turn 2, but no player is named for it"):
        asyncio.run(runner.run([plan.task(0)], short))
    team.close()


def test_a_recipe_may_stop_replies_at_a_string(private_cache: None) -> None:
    plan = resolve(parse({**RECIPE, "sampling": {"max_tokens": 8, "stop": ["a", "e"]}}))
    team = Team(plan.recipe)
    runner = Runner(0, RolloutSection(), Independent(), RewardSection())
    episodes = asyncio.run(runner.run([plan.task(i) for i in range(8)], team.seating(plan.seats_for, Speech(1.0, 8))))
    tokenizer = team.members["opener"].loaded.tokenizer
    said = [t.last.action for e in episodes for t in e.turns if t.role == "X"]
    assert all(e.error is None for e in episodes)
    assert any(len(action) < 8 and set("ae") & set(tokenizer.decode(action[-1:])) for action in said)
    assert not any(set("ae") & set(tokenizer.decode(action[:-1])) for action in said)
    team.close()
