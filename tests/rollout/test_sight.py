"""What a recipe asks its players to see and hear is checked before anything is loaded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from interplay.cli.main import app
from interplay.config import parse
from interplay.envs.games.voice import hiss
from interplay.envs.tasks.columns import Columns
from interplay.envs.tasks.prepare import prepare
from interplay.errors import ConfigError
from interplay.models.families import taken_by
from interplay.rollout.resolve import resolve
from interplay.rollout.sight import refuse_blind

RECIPE = str(Path(__file__).parents[2] / "recipes" / "vision" / "plan_path.toml")
BLIND = "plan_path shows pictures that its players need, but 'player' cannot read pictures; expected a model that can, "
SIGHTED: dict[str, Any] = {
    "name": "test",
    "env": {"name": "plan_path", "view": "image", "size": 3, "min_length": 1, "team": "single"},
    "policies": {"player": {"base": "tiny-vl-16x1x24"}},
    "seats": "player",
    "algorithm": {"name": "grpo"},
    "eval": {"opponents": []},
}


def plan(**changes: Any) -> Any:
    return resolve(parse({**SIGHTED, **changes}))


def env(**options: Any) -> dict[str, Any]:
    return {**SIGHTED["env"], **options}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["policies.player.base=tiny"], f"{BLIND}such as tiny-vl, or env.view = 'text'."),
        (["policies.player.base=smollm2"], f"{BLIND}such as tiny-vl, or env.view = 'text'."),
        (["engine.kind=vllm"], "engine.kind is 'vllm', which reads text alone here, but the model of policies.player"),
        (["train.shard=fsdp"], "train.shard is 'fsdp', but the model of policies.player sees or hears"),
        (["env.size=5"], "plan_path draws pictures of 40 × 40 pixels, but 'tiny-vl' sees 32 × 32, so that cells would"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would_refuse(changes: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["train", RECIPE, *changes, "--dry-run"])
    assert isinstance(done.exception, ConfigError) and says in str(done.exception)


def test_players_in_matchups_must_see_too() -> None:
    policies = {**SIGHTED["policies"], "blind": {"base": "tiny-16x1", "trainable": False}}
    with pytest.raises(ConfigError, match="'blind' cannot read pictures"):
        plan(policies=policies, matchups=[{"share": 0.5, "seats": {"actor": "blind"}}], env=env())
    plan(policies=policies, matchups=[{"share": 0.5, "seats": {"actor": "blind"}}], env=env(view="both"))


def test_a_remote_model_must_take_images() -> None:
    far = {"base": "openai:far", "trainable": False, "remote": {"url": "http://127.0.0.1:9/v1", "images": False}}
    policies, seats = {**SIGHTED["policies"], "far": far}, {"actor": "player", "planner": "far"}
    with pytest.raises(ConfigError, match="'far' cannot read pictures"):
        plan(policies=policies, seats=seats, env=env(team="pair"))
    far["remote"]["images"] = True  # type: ignore[index]
    plan(policies=policies, seats=seats, env=env(team="pair"))


def test_the_remedy_for_sounds_is_a_model_that_hears(tmp_path: Path) -> None:
    hearing = {"name": "hearing"}
    with pytest.raises(ConfigError) as refused:
        plan(env=hearing)
    assert str(refused.value) == (
        "hearing shows sounds that its players need, but 'player' cannot read sounds; expected a model that can, such "
        "as tiny-av."
    )
    plan(env=hearing, policies={"player": {"base": "tiny-av-16x1x24"}})
    with pytest.raises(ConfigError, match=r"spotter_pilot shows pictures and sounds that .* such as tiny-av"):
        plan(env={"name": "spotter_pilot"}, policies={"player": {"base": "tiny-16x1"}})
    (tmp_path / "a.wav").write_bytes(hiss(3))
    (tmp_path / "train.jsonl").write_text(json.dumps({"q": "What is said?", "a": "1", "clip": "a.wav"}))
    prepare("x", tmp_path / "train.jsonl", tmp_path / "out", holdout=0, columns=Columns("q", "a", media=("clip",)))
    with pytest.raises(ConfigError, match=r"math shows sounds .* such as tiny-av, or rows without sounds in env.data"):
        plan(env={"name": "math", "team": "single", "data": str(tmp_path / "out")})


def test_what_a_base_takes_is_told_without_loading_it(tmp_path: Path) -> None:
    known = {"tiny": set(), "tiny-32x2": set(), "tiny-vl-16x1": {"image"}, "tiny-av": {"image", "audio"},
             "tiny-whisper": {"audio"}, "smollm2": set(), "a.gguf": set(), "nobody/never-downloaded": None}  # fmt: skip
    assert {base: taken_by(base) for base in known} == known
    for config, takes in (
        ({"model_type": "qwen2_5_vl"}, {"image"}), ({"model_type": "qwen2_audio"}, {"audio"}),
        ({"model_type": "llava", "sounds_as_pictures": True}, {"image", "audio"}), ({"model_type": "llama"}, set()),
        ({}, None),
    ):  # fmt: skip
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert taken_by(str(tmp_path)) == takes
    refuse_blind(parse(SIGHTED), "player", {"image"})


def test_an_eye_that_nothing_would_train_is_refused() -> None:
    player = {"base": "tiny-vl-16x1x24", "adapter": {"rank": 2}, "senses": {"train": True}}
    says = "only imitation with warmstart.base = true trains the eye or ear of the base; expected that, no adapter, or"
    with pytest.raises(ConfigError, match=says):
        plan(policies={"player": player})
    with pytest.raises(ConfigError, match=says):
        plan(policies={"player": player}, warmstart={"bot": "bot:random"})
    plan(policies={"player": player}, warmstart={"bot": "bot:random", "base": True})
    resolve(parse({**SIGHTED, "policies": {"player": player}}), training=False)


def test_empty_senses_are_no_senses() -> None:
    """With a model that reads text, with a remote one, and beside a policy of the same base without the table."""
    empty: dict[str, Any] = {"player": {"base": "tiny-16x1", "senses": {}}}
    assert plan(policies=empty, env=env(view="text")).recipe.policies["player"].senses is None
    parse({**SIGHTED, "policies": {"player": {"base": "openai:x", "trainable": False, "senses": {}}}})
    found = plan(policies={"player": {"base": "tiny-vl-16x1x24", "senses": {"limit": 0}}})
    assert found.recipe.policies["player"].senses is None
    assert (
        plan(policies={"player": {"base": "tiny-vl-16x1x24", "senses": {"limit": 1}}}).recipe.policies["player"].senses
    )


@pytest.mark.parametrize(
    ("base", "options", "fits"),
    [
        ("tiny-vl", {"size": 5}, "policies.player.base = 'tiny-vl-64x3x40', or env.size of at most 4."),
        ("tiny-av-16x1x24", {"size": 4, "view": "both"}, "'tiny-av-16x1x32', or env.size of at most 3."),
        ("tiny-vl", {"size": 4, "cell": 12}, "'tiny-vl-64x3x48', or env.cell = 8."),
        ("tiny-vl", {"name": "sokoban", "size": 6}, "policies.player.base = 'tiny-vl-64x3x48'."),
    ],
)
def test_a_board_that_the_eye_would_blur_is_refused_with_what_fits(base: str, options: Any, fits: str) -> None:
    given = {"name": "plan_path", "view": "image", "team": "single", **options}
    if given["name"] == "plan_path":
        given["min_length"] = 1
    policies = {"player": {"base": base}}
    with pytest.raises(ConfigError, match=re.escape(fits)):
        plan(env=given, policies=policies)
    plan(env={**given, "view": "text"}, policies=policies)
    larger = re.search("tiny-[av][vl]-[0-9x]+", fits)
    assert larger is not None
    plan(env=given, policies={"player": {"base": larger[0]}})
