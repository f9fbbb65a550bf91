"""A composition and reward weights in a recipe are trained, or refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interplay.cli import main as cli
from interplay.errors import ConfigError

RECIPE = """
name = "composed"
device = "cpu"
seats = "player"
[env]
name = "matrix"
game = "stag_hunt"
rounds = 2
[policies.player]
base = "tiny-16x1"
[algorithm]
name = "custom"
plan = { kind = "replay", candidates = 3 }
grouping = ["episode", "decision", "role"]
credit = "leave_one_out"
loss = "cispo"
clip_low = 1.0
clip_high = 5.0
[reward]
process = 0.5
agent = 2.0
team = 0.0
gamma = 0.9
weights = { payoff = 3.0 }
[warmstart]
bot = "bot:random"
episodes = 60
lr = 3e-2
batch = 16
[sampling]
max_tokens = 4
[rollout]
tasks = 4
[train]
steps = 2
lr = 1e-3
[eval]
before = false
after = false
[records]
tensorboard = "off"
"""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    file = tmp_path / "composed.toml"
    file.write_text(RECIPE)
    return str(file)


def train(recipe: str, *overrides: str) -> None:
    result = CliRunner().invoke(cli.app, ["train", recipe, *overrides])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output


def test_a_composition_by_hand_trains_and_logs_every_reward_by_name(recipe: str, tmp_path: Path) -> None:
    """Components are logged without weights; levels and the total are logged with the recipe's weights: 2 · 3 · payoff
    and 0.5 · illegal, averaged over both roles."""
    train(recipe, "--run", str(tmp_path / "run"))
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:
        payoff = (row["reward/payoff/p0"] + row["reward/payoff/p1"]) / 2
        illegal = (row.get("reward/illegal/p0", 0.0) + row.get("reward/illegal/p1", 0.0)) / 2
        assert row["reward_level/agent"] == pytest.approx(6 * payoff)
        assert row.get("reward_level/process", 0.0) == pytest.approx(0.5 * illegal)
        assert row["reward"] == pytest.approx(6 * payoff + 0.5 * illegal)
    assert max(row.get("player/grad_norm", 0.0) for row in rows) > 0


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ('algorithm.grouping=["role"]', ["algorithm.grouping", "mix tasks or roles", "expected 'role' and one of"]),
        ('algorithm.grouping=["task", "role"]', ["a replay compares replies to one prompt"]),
        ("algorithm.plan.candidates=1", ["algorithm.plan.candidates is 1", "at least 2"]),
        ("algorithm.plan.keep=greedy", ["algorithm.plan.keep has no meaning with kind = 'replay'"]),
        ("algorithm.plan.kind=replai", ["algorithm.plan.kind is 'replai'", "'replay'"]),
        ("algorithm.credit=gae", ["algorithm.credit is 'gae'", "'leave_one_out'"]),
        ("reward.weights.payof=1.0", ["reward.weights.payof", "Did you mean 'payoff'?"]),
        ("reward.procces=1.0", ["procces", "Did you mean 'process'?"]),
    ],
)
def test_an_impossible_composition_is_refused_with_the_reason(recipe: str, override: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        train(recipe, override, "--dry-run")
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_continuation_none_is_refused_where_only_the_end_pays(recipe: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"gives rewards only at the end, so all candidates would have the same return; expected 'playout'",
    ):
        train(recipe, "env={name='tictactoe'}", "algorithm.plan.continuation=none", "reward.weights={}", "--dry-run")


def test_the_gumbel_actor_is_refused_without_masks(recipe: str) -> None:
    with pytest.raises(ConfigError, match=r"trains every legal reply.*expected sampling.legal = true"):
        train(recipe, "algorithm={name='maddpg', actor='gumbel'}", "--dry-run")
