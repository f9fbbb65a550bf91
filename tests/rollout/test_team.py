"""The recipe's policies in memory: which are trainable, and snapshots that do not change."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from interplay.agents.model import ModelAgent
from interplay.agents.scripted import BotAgent
from interplay.algorithms import Tree
from interplay.config import RemoteSection, RewardSection, RolloutSection, parse
from interplay.engines.local import LocalEngine
from interplay.errors import ConfigError, InterplayError
from interplay.models.save import save
from interplay.rollout.resolve import resolve
from interplay.rollout.runner import Runner
from interplay.rollout.team import Speech, Team
from interplay.types import Policy, Scripted, Snapshot

PLAYER, START = Policy("player"), Snapshot("player", "start")

RECIPE: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "tictactoe", "size": 2, "line": 2},
    "policies": {"player": {"base": "tiny-16x1"}, "fixed": {"base": "tiny-16x1", "trainable": False}},
    "seats": {"X": "player", "O": "fixed"},
    "algorithm": {"name": "at_grpo", "candidates": 2},
    "matchups": [{"share": 1.0, "seats": {"O": "player@start"}}],
    "sampling": {"max_tokens": 2},
}


def test_seats_are_filled_by_policies_and_bots(private_cache: None) -> None:
    team = Team(parse(RECIPE))
    how = Speech(1.0, 4)
    player, fixed, bot = (team.agent("X", who, how) for who in (PLAYER, Policy("fixed"), Scripted("random")))
    assert isinstance(player, ModelAgent) and player.trainable and player.sampling.max_tokens == 4
    assert isinstance(fixed, ModelAgent) and not fixed.trainable
    assert isinstance(bot, BotAgent) and not bot.trainable
    assert player.engine is not fixed.engine
    with pytest.raises(ConfigError, match=r"'playr' is not a policy of this run.*Did you mean 'player'"):
        team.agent("X", Policy("playr"), how)
    team.add_remote("far", "a-model", RemoteSection(url="http://127.0.0.1:9/v1"))
    with pytest.raises(ConfigError, match=r"'far' runs on a remote server.*expected Remote\('far'\)"):
        team.agent("X", Policy("far"), how)
    team.close()


def test_if_a_policy_cannot_be_loaded_the_engines_of_the_others_are_closed(
    private_cache: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    closed: list[LocalEngine] = []
    monkeypatch.setattr(LocalEngine, "close", lambda engine: closed.append(engine))
    wrong = {**RECIPE["policies"], "fixed": {"base": str(tmp_path), "trainable": False}}
    with pytest.raises(InterplayError, match=tmp_path.name):
        Team(parse({**RECIPE, "policies": wrong}))
    assert len(closed) == 1


def test_a_snapshot_stays_as_it_was(private_cache: None, tmp_path: Path) -> None:
    """A frozen copy with its own tensors: it plays, has one candidate, and does not change with its policy."""
    plan = resolve(parse(RECIPE))
    team = Team(plan.recipe)
    origin = team.members["player"].loaded.model
    save(team.members["player"].loaded, tmp_path / "start")
    team.snapshot(START, tmp_path / "start")
    copy = team.members["player@start"].loaded.model
    before = {k: v.clone() for k, v in origin.state_dict().items()}
    with torch.no_grad():
        for p in origin.parameters():
            p.add_(1.0)
    for name, tensor in copy.state_dict().items():
        assert torch.equal(tensor, before[name]) and not torch.equal(tensor, origin.state_dict()[name])

    runner = Runner(0, RolloutSection(), Tree(2, "playout"), RewardSection())
    seating = team.seating(plan.seats_for, Speech(1.0, 2))
    episodes = asyncio.run(runner.run([plan.task(i) for i in range(4)], seating))
    assert all(e.error is None and e.seats == {"X": PLAYER, "O": START} for e in episodes)
    assert {t.policy for e in episodes for t in e.turns} <= {"player", "player@start"}
    assert {len([t for t in e.turns if t.role == "X" and t.decision == 0]) for e in episodes} == {2}
    assert all(t.kept and t.outlook is None for e in episodes for t in e.turns if t.policy == "player@start")
    team.close()


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"device is 'cuda'.*expected 'cpu' or 'auto'"):
        Team(parse({**RECIPE, "device": "cuda"}))


def test_copies_of_a_policy_see_what_the_policy_sees(private_cache: None, tmp_path: Path) -> None:
    """A frozen copy, the untrained base, and the policy of another run: pictures have the same size for all of them."""
    pytest.importorskip("PIL")
    seen = {"base": "tiny-vl-16x1x24", "senses": {"max_pixels": 64, "limit": 3}}
    recipe = parse({**RECIPE, "policies": {"player": seen}, "seats": {"X": "player", "O": "bot:random"}})
    team = Team(recipe)
    save(team.members["player"].loaded, tmp_path / "start")
    team.snapshot(START, tmp_path / "start")
    team.bare("player", recipe)
    team.add("other", str(tmp_path / "start"), recipe, recipe.policies["player"])
    for name in ("player", "player@start", "player@base", "other"):
        senses = team.members[name].loaded.senses
        assert senses is not None and (senses.max_pixels, senses.limit) == (64, 3), name
    team.close()


def test_a_snapshot_lends_its_memory_only_to_one_that_sees_in_the_same_size(
    private_cache: None, tmp_path: Path
) -> None:
    pytest.importorskip("PIL")
    sizes = {"player": 64, "fixed": 400, "third": 64}
    sees = {name: {"base": "tiny-vl-16x1x24", "senses": {"max_pixels": size}} for name, size in sizes.items()}
    team = Team(parse({**RECIPE, "policies": sees, "matchups": []}))
    save(team.members["player"].loaded, tmp_path / "start")
    team.snapshot(START, tmp_path / "start")
    lent = team.members["player@start"].loaded
    team.pool.release(START)
    for name, same in (("fixed", False), ("third", True)):
        team.snapshot(Snapshot(name, "start"), tmp_path / "start")
        found = team.members[f"{name}@start"].loaded
        assert found.senses is not None and found.senses.max_pixels == sizes[name]
        assert (found is lent) is same, name
    team.close()
