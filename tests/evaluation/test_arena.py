"""The arena: the better bot is rated above the worse, from both seats, the same way every time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from interplay.cli.main import app
from interplay.config import parse
from interplay.errors import ConfigError
from interplay.evaluation.arena import Standing, round_robin
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Team

RECIPE: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "tictactoe"},
    "policies": {"player": {"base": "tiny-16x1"}},
    "seats": "player",
    "algorithm": {"name": "grpo"},
    "sampling": {"max_tokens": 2},
}


def meet(players: dict[str, str], games: int = 12, **changes: Any) -> Standing:
    plan = resolve(parse({**RECIPE, **changes}))
    team = Team.load(plan.recipe)
    try:
        return asyncio.run(round_robin(plan, team, players, games, 1.0))
    finally:
        team.close()


def test_the_better_player_is_rated_above_the_worse() -> None:
    players = {"best": "bot:minimax", "some": "bot:greedy", "any": "bot:random", "untrained": "player"}
    found = meet(players)
    assert [r.name for r in found.ratings] == ["best", "some", "any", "untrained"]
    assert all(r.games == 3 * 2 * 12 for r in found.ratings)
    assert (
        found.payoff["best"]["any"] == pytest.approx(1 - found.payoff["any"]["best"])
        and found.payoff["best"]["any"] > 0.8
    )
    assert found.illegal["untrained"] > 0.5 and found.illegal["best"] == 0
    assert found.openings["best"] > 1 and found.tokens["untrained"] > 0
    assert found == meet(players), "the same seeds, the same standing"


def test_what_cannot_meet_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least two players"):
        meet({"one": "bot:random"})
    with pytest.raises(ConfigError, match="has 3 roles; an arena needs a game for two"):
        meet({"a": "bot:random", "b": "bot:first"}, env={"name": "hanabi", "players": 3})


def test_the_command_writes_markdown_and_json(tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        'name = "t"\ndevice = "cpu"\nseats = "player"\n[env]\nname = "tictactoe"\n'
        '[policies.player]\nbase = "tiny-16x1"\n'
        '[algorithm]\nname = "grpo"\n[sampling]\nmax_tokens = 2\n'
    )
    for name in ("out.md", "out.json"):
        players = ["bot:random", "smart=bot:minimax", "player", "other=tiny-16x1"]
        app(["arena", str(recipe), *players, "--games", "2", "--out", str(tmp_path / name)], standalone_mode=False)
    assert (tmp_path / "out.md").read_text().count("\n") == 6
    data = json.loads((tmp_path / "out.json").read_text())
    assert {r["name"] for r in data["ratings"]} == {"bot:random", "smart", "player", "other"}
