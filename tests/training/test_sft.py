"""Imitation of a bot and of recorded play, into a policy or into the base under its adapters."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from runs import Killed, killed_at, train
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from interplay import envs
from interplay.agents.render import Renderer
from interplay.config import parse
from interplay.errors import ConfigError
from interplay.policies.model import locate
from interplay.rewards.calculator import calculate
from interplay.rollout import records
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Team
from interplay.training import checkpoint
from interplay.training.sft import demonstrations
from interplay.training.trainer import Observer
from interplay.types import Episode, Rewards, Turn

TINY = {"base": "tiny-16x1"}
RECIPE: dict[str, Any] = {
    "name": "test",
    "device": "cpu",
    "env": {"name": "tictactoe"},
    "policies": {"player": TINY},
    "seats": "player",
    "algorithm": {"name": "grpo", "group": 4},
    "warmstart": {"bot": "bot:random", "episodes": 12, "lr": 1e-2, "batch": 8},
    "sampling": {"max_tokens": 2, "legal": True},
    "rollout": {"tasks": 2},
    "train": {"steps": 1, "lr": 1e-2},
    "records": {"tensorboard": "off"},
}


def shown(data: dict[str, Any], *overrides: str) -> dict[str, list[tuple[Any, ...]]]:
    plan = resolve(parse(data, overrides))
    assert plan.recipe.warmstart is not None
    team = Team.load(plan.recipe)
    found = demonstrations(plan, team, plan.recipe.warmstart)
    team.close()
    return {name: [(t.role, t.prompt, t.action, t.merged) for t in turns] for name, turns in found.items()}


def test_recorded_play_is_imitated_token_for_token(tmp_path: Path) -> None:
    """What was played, as the policy would have seen and said it: the very tokens, where it was this policy."""
    train(tmp_path, RECIPE)
    played = list(records.read(tmp_path / "episodes.jsonl"))
    again = {**RECIPE, "warmstart": {"records": str(tmp_path)}}
    lines = [t for e in played for t in e.line()]
    assert shown(again)["player"] == [(t.role, t.prompt, t.action, t.merged) for t in lines] and lines
    few = {**RECIPE, "warmstart": {"records": str(tmp_path / "episodes.jsonl"), "episodes": 2}}
    assert len(shown(few)["player"]) == sum(len(e.line()) for e in played[:2])
    won = {**RECIPE, "warmstart": {"records": str(tmp_path), "min_reward": 0.5}}
    winners = [t.role for e in played for t in e.line() if sum(r.value or 0 for r in e.rewards.of(t.role)) >= 0.5]
    assert [role for role, *_ in shown(won)["player"]] == winners and 0 < len(winners) < len(lines)


def test_recorded_play_warms_a_policy_up(tmp_path: Path) -> None:
    """Another policy, with another template of seats, learns from it: its loss falls."""
    train(tmp_path / "old", RECIPE, "train.steps=2")
    losses: list[float] = []
    watch = Observer(warmstarted=lambda name, done, of, loss: losses.append(loss))
    source = {"records": str(tmp_path / "old"), "epochs": 8, "lr": 1e-2, "batch": 8}
    data = {**RECIPE, "policies": {"fresh": {"base": "tiny-32x1"}}, "seats": "fresh", "warmstart": source}
    train(tmp_path / "new", data, observer=watch)
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({}, "neither or both of bot and records"),
        ({"bot": "bot:random", "records": "x"}, "neither or both of bot and records"),
        ({"records": "nowhere"}, r"warmstart\.records is 'nowhere', where no episodes are"),
        ({"bot": "bot:random", "min_reward": 1.0}, r"min_reward is set with warmstart\.bot"),
    ],
)
def test_a_wrong_source_is_one_sentence(section: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        resolve(parse({**RECIPE, "warmstart": section}))


def test_nothing_to_imitate_is_said(tmp_path: Path) -> None:
    (tmp_path / "episodes.jsonl").write_text("")
    with pytest.raises(ConfigError, match="holds no episode to imitate"):
        shown({**RECIPE, "warmstart": {"records": str(tmp_path)}})


def test_roles_by_turn_are_shown_to_whoever_takes_them() -> None:
    data = {
        **RECIPE,
        "policies": {n: {**TINY, "adapter": {"rank": 2}} for n in ("one", "two")},
        "seats": {"X@1": "one", "X": "two", "O": "bot:random"},
    }
    found = shown(data)
    assert len(found["one"]) == 12 and {role for role, *_ in found["two"]} == {"X"}
    whole = shown({**RECIPE, "seats": {"X": "player", "O": "bot:random"}})["player"]
    assert sorted(found["one"] + found["two"]) == sorted(whole), "the same prompts, whoever speaks"


MATH: dict[str, Any] = {
    **RECIPE,
    "env": {"name": "math", "team": "single", "tools": ["calculator"], "form": "hashes"},
    "warmstart": {"bot": "bot:expert", "episodes": 3},
    "eval": {"opponents": ["team"], "success": "correct"},
    "sampling": {"max_tokens": 2},
}


def turns_of(data: dict[str, Any], *overrides: str) -> tuple[list[Turn], Renderer]:
    plan = resolve(parse(data, overrides))
    assert plan.recipe.warmstart is not None
    team = Team.load(plan.recipe)
    (found,) = demonstrations(plan, team, plan.recipe.warmstart).values()
    team.close()
    return found, team.members["player"].renderer


def test_a_bots_tool_calls_are_imitated_in_the_models_own_form() -> None:
    found, renderer = turns_of(MATH)
    assert [t.call for t in found] == [0, 1] * 3 and len({t.id for t in found}) == 6
    for asked, answer in zip(found[::2], found[1::2], strict=True):
        said, _ = renderer.decode(asked.action)
        name, _, expression = said.partition(" ")
        assert name == "@calculator" and asked.text == said and "@calculator EXPRESSION" in spoken(renderer, asked)
        (output,) = answer.messages
        assert output.role == "tool" and Fraction(output.content) == calculate(expression)
        assert answer.text == f"#### {output.content}" and answer.merged and answer.parent == asked.id
        assert answer.prompt[: len(asked.prompt) + len(asked.action)] == asked.prompt + asked.action
        assert spoken(renderer, answer).count(output.content) and answer.calls == (asked,)


def spoken(renderer: Renderer, turn: Turn) -> str:
    return str(renderer.tokenizer.decode(list(turn.prompt)))


def test_calls_that_are_not_allowed_are_not_shown() -> None:
    found, renderer = turns_of(MATH, "tools.calls=0")
    assert [t.call for t in found] == [0] * 3 and "@calculator" not in spoken(renderer, found[0])
    one, _ = turns_of(MATH, "tools.calls=1")
    assert one[1].messages[0].content.endswith("(no calls left: answer now)")


def test_recorded_tool_calls_are_imitated_with_what_they_were_answered(tmp_path: Path) -> None:
    """Records name no tools: the task is played again to see which there were."""
    shown, _ = turns_of(MATH)
    played = []
    for asked, answer in zip(shown[::2], shown[1::2], strict=True):
        observation = envs.make(task := resolve(parse(MATH)).task(len(played))).observe()["reasoner"]
        first = replace(asked, messages=observation.messages, fresh=True)
        turn = replace(answer, calls=(first,), fresh=True)
        played.append(Episode(task.id, task, 0, {"reasoner": "player"}, [turn], Rewards()))
    with (tmp_path / "episodes.jsonl").open("w") as file:
        file.writelines(json.dumps({"episode": records.to_json(e)}) + "\n" for e in played)
    again, _ = turns_of({**MATH, "warmstart": {"records": str(tmp_path)}})
    assert [(t.prompt, t.action, t.merged) for t in again] == [(t.prompt, t.action, t.merged) for t in shown]
    with pytest.raises(ConfigError, match=r"calls tools at decision 0, and played again math offers none there"):
        played = [replace(e, task=replace(e.task, data={**e.task.data, "tools": []})) for e in played]
        with (tmp_path / "episodes.jsonl").open("w") as file:
            file.writelines(json.dumps({"episode": records.to_json(e)}) + "\n" for e in played)
        turns_of({**MATH, "warmstart": {"records": str(tmp_path)}})


ADAPTERS = {**RECIPE, "policies": {"player": {**TINY, "per": "role", "adapter": {"rank": 2}}}}


def test_the_base_under_adapters_learns_once_and_stays_with_the_run(tmp_path: Path) -> None:
    """Adapters start from nothing on it, in training, after a kill, on disk and in PEFT."""

    whole = train(tmp_path / "whole", ADAPTERS, "warmstart.base=true", "train.steps=2")
    with pytest.raises(Killed):
        train(tmp_path / "cut", ADAPTERS, "warmstart.base=true", "train.steps=2", observer=killed_at(1))
    train(tmp_path / "cut", ADAPTERS, "warmstart.base=true", "train.steps=2")
    original = AutoModelForCausalLM.from_pretrained(locate("tiny-16x1", 0)).state_dict()
    (base,) = (tmp_path / "whole" / "bases").iterdir()
    imitated = load_file(base / "model.safetensors")
    assert any(not torch.equal(original[k], v) for k, v in imitated.items())
    for name in ("player-X", "player-O"):
        start = checkpoint.read(tmp_path / "whole" / "checkpoints" / "step-000001").policy(name)
        ends = [checkpoint.read(tmp_path / n / "checkpoints" / "step-000002").policy(name) for n in ("whole", "cut")]
        a, b, c = (load_file(e / "adapter_model.safetensors") for e in (*ends, start))
        assert all(torch.equal(a[k], b[k]) for k in a) and not all(torch.equal(a[k], c[k]) for k in a)
        assert json.loads((start / "adapter_config.json").read_text())["base_model_name_or_path"] == str(base)
    recipe = json.loads((tmp_path / "whole" / "run.json").read_text())["recipe"]
    assert {p["base"] for p in recipe["policies"].values()} == {str(base)}
    model = AutoModelForCausalLM.from_pretrained(base).eval()
    for tensor, ours in zip(model.parameters(), whole.team.members["player-X"].loaded.model.parameters(), strict=True):
        assert torch.equal(tensor, ours), "reinforcement learning leaves the base alone"
    peft = PeftModel.from_pretrained(model, checkpoint.latest(tmp_path / "whole" / "checkpoints").policy("player-X"))  # type: ignore[union-attr]
    assert peft.peft_config["default"].r == 2
