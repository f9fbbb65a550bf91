"""The arena rates the better player above the worse one, from both seats, with the same result every time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from chat_server import Chat, serving
from small import RECIPE

from interplay.cli.arena import _named, _seat
from interplay.cli.main import app
from interplay.config import parse
from interplay.errors import ConfigError
from interplay.evaluation import exploitability
from interplay.evaluation.arena import Standing, meet, shares_rewards, sheets
from interplay.evaluation.field import Field
from interplay.evaluation.played import Played
from interplay.evaluation.sheet import markdown
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Team
from interplay.types import Policy

KUHN = {"name": "kuhn", "brief": True}


def play(players: list[str], games: int, played: Played | None = None, **changes: Any) -> Standing:
    plan = resolve(parse({**RECIPE, **changes}))
    seated = {p.removeprefix("bot:"): dict.fromkeys(plan.roles, plan.occupant(p)) for p in players}
    team = Team(plan.recipe)
    try:
        return asyncio.run(meet(Field(plan, team, games, played=played), seated))
    finally:
        team.close()


def test_the_better_player_is_rated_above_the_worse(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From both seats, and the same when repeated; adding a player changes nothing between the others. A game that is
    too large for exploitability says so."""
    monkeypatch.setattr(exploitability, "LIMIT", 100)
    players = ["bot:minimax", "bot:greedy", "bot:random", "player"]
    store = Played(tmp_path / "played.jsonl")
    found = play(players, 10, store)
    assert [r.name for r in found.ratings][2:] == ["random", "player"]
    assert all(r.games == 3 * 2 * 10 and r.low <= r.value <= r.high for r in found.ratings)
    both = found.payoff["minimax"]["random"].value + found.payoff["random"]["minimax"].value
    assert both == pytest.approx(1) and found.payoff["minimax"]["random"].value > 0.8
    assert found.reward["minimax"]["random"].value == pytest.approx(-found.reward["random"]["minimax"].value)
    assert found.habits["player"].illegal > 0.5 and found.habits["minimax"].illegal == 0
    assert found.habits["minimax"].openings > 1 and found.habits["player"].tokens > 0
    assert all(h.exploitability is None and "has more than 100 positions" in h.why for h in found.hunted.values())
    assert found == play(players, 10), "the same seeds, the same standing"
    more = play([*players, "bot:first"], 10, store)
    assert more.payoff["minimax"]["random"] == found.payoff["minimax"]["random"]


def test_exploitability_is_exact_where_the_game_is_small() -> None:
    """Kuhn: 0 at the equilibrium, 11/24 for random play; a model's value is within the bounds of its scores. A bot that
    cannot report its probabilities has no value."""
    found = play(["bot:equilibrium", "bot:random", "bot:greedy", "player"], 4, env=KUHN)
    assert abs(found.hunted["equilibrium"].exploitability or 0) < 1e-12
    assert found.hunted["random"].exploitability == pytest.approx(11 / 24)
    mine = found.hunted["player"]
    assert mine.exploitability is not None and 0 <= mine.exploitability <= 2 and 0.5 < (mine.stray or 0) <= 1
    assert found.hunted["greedy"].why == "bot:greedy does not report the probabilities of its moves."
    text = "\n".join(map(markdown, sheets(found)))
    assert "| exploitability |" in text and "0.4583" in text


def test_minimax_cannot_be_exploited() -> None:
    found = play(["bot:minimax", "bot:first"], 1, env={"name": "tictactoe", "size": 2, "line": 2})
    assert found.hunted["minimax"].exploitability == 0.0


def test_a_team_game_is_played_together() -> None:
    """Hanabi: every player with every other one and with itself; two players with the same rules do well together."""
    small = {"name": "hanabi", "variant": "small"}
    found = play(["bot:hanabi", "bot:random"], 12, env=small)
    assert found.together and found.ratings == [] and found.hunted == {}
    assert found.alone["hanabi"] == found.payoff["hanabi"]["hanabi"]
    assert found.alone["hanabi"].value > 4 > 1 > found.mixed["hanabi"].value
    assert found.mixed["hanabi"] == found.mixed["random"], "they only have each other"
    titles = [s.title for s in sheets(found)]
    assert titles == ["Playing together", "Mean reward together", "How they play"]
    three = play(["bot:hanabi", "bot:random"], 2, env={**small, "players": 3})
    assert set(three.payoff["random"]) == {"hanabi", "random"}


@pytest.mark.parametrize(
    ("env", "together"),
    [("tictactoe", False), ("kuhn", False), ("negotiation", False), ("hanabi", True), ("plan_path", True)],
)
def test_who_is_rewarded_says_whether_they_play_together(env: str, together: bool) -> None:
    recipe = {**RECIPE, "env": {"name": env}, "eval": {"opponents": []}}
    assert shares_rewards(resolve(parse(recipe))) is together


def test_with_more_than_two_roles_everybody_has_every_seat_once() -> None:
    """Three players, where saying `a` pays one point each time: a player who always says it is ahead of a random
    one."""
    payoff = [[[[float(i == 0), float(j == 0), float(k == 0)] for k in (0, 1)] for j in (0, 1)] for i in (0, 1)]
    env = {"name": "matrix", "actions": [["a", "b"]] * 3, "payoff": payoff}
    found = play(["bot:random", "bot:first"], 10, env=env)
    assert [r.name for r in found.ratings] == ["first", "random"] and all(r.games == 2 * 3 * 10 for r in found.ratings)
    assert found.reward["first"]["random"].value == 1.0 and 0.3 < found.reward["random"]["first"].value < 0.7
    assert found.payoff["first"]["random"].value + found.payoff["random"]["first"].value == pytest.approx(1)
    assert found.habits["first"].games == 3 * 10 * (1 + 2) and "each in turn" in markdown(list(sheets(found))[1])


def test_what_cannot_meet_is_refused(team: Team) -> None:
    with pytest.raises(ConfigError, match="at least two players"):
        play(["bot:random"], 1)
    alone = {"name": "matrix", "actions": [["a", "b"]], "payoff": [[1], [0]]}
    with pytest.raises(ConfigError, match="has only one role, so players cannot meet in it; use interplay eval"):
        play(["bot:random", "bot:first"], 1, env=alone)
    with pytest.raises(ConfigError, match="two players are called 'a'; give one another name"):
        _named(["a=bot:random", "a=bot:first"])
    with pytest.raises(ConfigError, match="Did you mean 'minimax'"):
        _seat(resolve(parse(RECIPE)), team, "x", "bot:minmax")


def test_names_and_sources_are_told_apart() -> None:
    found = _named(["bot:random", "smart=bot:alpha_beta:2", "openai:gpt@http://h/v1?a=b", "g=openai:x@http://h/v1"])
    assert found == {
        "bot:random": "bot:random", "smart": "bot:alpha_beta:2", "gpt": "openai:gpt@http://h/v1?a=b",
        "g": "openai:x@http://h/v1",
    }  # fmt: skip


L2 = """
name = "l2"
device = "cpu"
seats = { X = "x", O = "o" }
[env]
name = "tictactoe"
size = 2
line = 2
[policies.x]
base = "tiny-16x1"
adapter = { rank = 2 }
[policies.o]
base = "tiny-16x1"
adapter = { rank = 2 }
[algorithm]
name = "grpo"
group = 2
[sampling]
max_tokens = 2
[rollout]
tasks = 2
[train]
steps = 1
lr = 1e-2
[eval]
games = 2
before = false
after = false
[records]
tensorboard = "off"
"""


def test_the_command_seats_runs_of_adapters_checkpoints_and_remote_models(tmp_path: Path) -> None:
    """A run with an adapter per role plays each role with its own adapter; so does its checkpoint, in another recipe's
    arena. A model behind a server needs its name and address. The output is JSON, Markdown and a page."""
    recipe, run, out = tmp_path / "r.toml", tmp_path / "run", tmp_path / "out"
    recipe.write_text(L2)
    app(["train", str(recipe), "--run", str(run)], standalone_mode=False)
    older = run / "checkpoints" / "step-000001"
    with serving(Chat(answer=lambda body: "1")) as chat:
        players = ["bot:random", f"new={run}", f"old={older}", f"far=openai:gpt@{chat.url}", f"peft={older}/policies/x"]
        app(["arena", str(recipe), *players, "--games", "2", "--out", str(out)], standalone_mode=False)
        asked = len(chat.bodies)
        app(["arena", str(recipe), *players, "--games", "2", "--out", str(out)], standalone_mode=False)
        assert len(chat.bodies) == asked > 0, "what was played is not played again"
    data = json.loads((out / "arena.json").read_text())
    assert {r["name"] for r in data["ratings"]} == {"bot:random", "new", "old", "far", "peft"}
    assert data["failed"] == 0 and data["hunted"]["far"]["why"] == "far is a remote model, which returns no log-probs."
    assert data["payoff"]["new"]["old"]["value"] == 0.5, "the same weights: what one wins as X the other wins as X"
    assert "## How they play" in (out / "arena.md").read_text() and "<svg" in (out / "arena.html").read_text()
    plan = resolve(parse(RECIPE | {"env": {"name": "tictactoe", "size": 2, "line": 2}}))
    team = Team(plan.recipe)
    try:
        assert _seat(plan, team, "new", str(run)) == {"X": Policy("new/x"), "O": Policy("new/o")}
        assert team.members["new/x"].engine is team.members["new/o"].engine, "one base for both adapters"
    finally:
        team.close()
