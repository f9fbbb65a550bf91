"""Imitation of a bot and of recorded play, into a policy or into the base under its adapters."""

from __future__ import annotations

import json
import random
import time
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
from interplay.agents.bots import Bot
from interplay.agents.bots import bot as bots
from interplay.agents.render import Renderer
from interplay.config import Section, parse
from interplay.envs import env as environments
from interplay.errors import ConfigError, DataError, ToolError
from interplay.models.locate import locate
from interplay.rewards.calculator import calculate
from interplay.rollout import records
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Team
from interplay.training import checkpoint
from interplay.training.sft import demonstrations
from interplay.training.trainer import Observer
from interplay.types import Episode, Message, Observation, Parameter, Rewards, Task, Tool, Turn

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


class Vault(envs.Env):
    """Two turns in one conversation; `peek` tells how many are over, `fault` breaks it, `slow` lets it sleep."""

    class Options(Section):
        fault: bool = False
        slow: bool = False
        made: bool = True

    roles = ("guest",)
    reward_names = ("open",)
    steps = 0

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.turn = 0
        if not task.data["made"]:
            raise DataError("the vault's data is gone.")

    def observe(self) -> dict[str, Observation]:
        if self.turn == 2:
            return {}
        peek = Tool("peek", "Looks.", (Parameter("what", "what to look at"),), self._peek, seconds=0.05)
        return {"guest": Observation((Message("user", f"turn {self.turn}"),), legal=("open",), tools=(peek,))}

    def _peek(self, what: str) -> str:
        if self.task.data["fault"]:
            raise ValueError("the lamp is out")
        time.sleep(self.task.data["slow"] * 0.3)
        return f"{what}: {self.turn} over <|end|>"

    def step(self, actions: dict[str, str]) -> Rewards:
        self.turn += 1
        Vault.steps += 1
        return Rewards()

    def outcome(self) -> Rewards:
        return Rewards.team("open", 1.0)

    def state(self) -> str:
        return str(self.turn)


class Guest(Bot):
    """Peeks, as it is told to."""

    name = "guest"
    takes = "a call as JSON"

    def __init__(self, env_name: str, setting: str = "") -> None:
        super().__init__(env_name, setting)
        self.call = json.loads(setting)

    def act(self, env: envs.Env, role: str, rng: random.Random) -> str:
        return "open"

    def calls(self, env: envs.Env, role: str) -> tuple[tuple[str, dict[str, Any]], ...]:
        return tuple((name, given) for name, given in self.call)


@pytest.fixture(autouse=True)
def _known_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(environments.ENVIRONMENTS.classes, "vault", Vault)
    monkeypatch.setitem(bots.BOTS.classes, "guest", Guest)


def vault(*calls: tuple[str, dict[str, Any]], **options: Any) -> dict[str, Any]:
    return {
        **RECIPE,
        "env": {"name": "vault", **options},
        "warmstart": {"bot": f"bot:guest:{json.dumps(calls)}", "episodes": 1},
        "eval": {"opponents": ["team"], "success": "open"},
        "sampling": {"max_tokens": 2},
    }


PEEK = ("peek", {"what": "é"})


def test_a_tool_sees_the_environment_as_it_is_when_it_is_called() -> None:
    found, renderer = turns_of(vault(PEEK, PEEK))
    assert [(t.decision, t.call) for t in found] == [(d, n) for d in (0, 1) for n in (0, 1, 2)]
    outputs = [m.content for t in found for m in t.messages]
    assert outputs == [f"é: {turn} over < |end|>" for turn in (0, 0, 1, 1)]
    assert all(t.merged for t in found[1:]), "one conversation, calls and outputs included"
    assert [renderer.decode(t.action)[0] for t in found] == ["@peek é", "@peek é", "open"] * 2


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (
            ("poke", {}),
            r"warmstart.bot: .*'guest' as guest in vault makes no call: there is no tool 'poke'. Tools: peek",
        ),
        (("peek", {"at": "x"}), r"peek has no argument 'at'; expected \"what\""),
        (("peek", {}), r"peek needs the argument 'what'"),
    ],
)
def test_a_bots_call_that_cannot_be_is_named(call: tuple[str, dict[str, Any]], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        turns_of(vault(call))


def test_a_tool_that_breaks_or_hangs_in_a_demonstration_is_a_tool_error() -> None:
    with pytest.raises(ToolError, match=r"tool 'peek' broke: ValueError: the lamp is out"):
        turns_of(vault(PEEK, fault=True))
    with pytest.raises(ToolError, match=r"tool 'peek' ran longer than its 0.05 seconds"):
        turns_of(vault(PEEK, slow=True))


def vault_records(folder: Path, text: str, outputs: tuple[str, ...], **data: bool) -> dict[str, Any]:
    """A recipe that imitates a recorded episode whose first turn called tools by `text`."""
    (call, said, *_), _ = turns_of(vault(PEEK))
    first = replace(call, text=text, messages=(Message("user", "turn 0"),))
    turn = replace(said, messages=tuple(Message("tool", o) for o in outputs), calls=(first,))
    task = resolve(parse(vault(PEEK))).task(0)
    task = replace(task, data={**task.data, **data})
    after = replace(said, decision=1, calls=(), messages=(Message("user", "turn 1"),))
    episode = Episode(task.id, task, 0, {"guest": "openai:wise"}, [turn, after], Rewards())
    (folder / "episodes.jsonl").write_text(json.dumps({"episode": records.to_json(episode)}) + "\n")
    return {**vault(PEEK), "warmstart": {"records": str(folder)}}


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "peek", "arguments": {"what": "a"}}</tool_call>'
        '<tool_call>{"name": "peek", "arguments": {"what": "b"}}</tool_call><tool_call>{</tool_call>',
        '[TOOL_CALLS] [{"name": "peek", "arguments": {"what": "a"}}, {"name": "peek", "arguments": {"what": "b"}}, 3]',
    ],
)
def test_calls_recorded_in_another_models_form_are_said_in_this_ones(tmp_path: Path, text: str) -> None:
    """A call that the learner could not make would teach it to answer with one."""
    recipe = vault_records(tmp_path, text, ("one <|end|>", "two", "error: no call\n(no calls left: answer now)"))
    found, renderer = turns_of(recipe)
    assert [renderer.decode(t.action)[0] for t in found] == ["@peek a", "@peek b", "open", "open"]
    assert [[m.content for m in t.messages] for t in found[1:3]] == [["one < |end|>"], ["two"]]
    few, _ = turns_of(recipe, "tools.calls=1")
    assert few[1].text == "open" and few[1].messages[0].content == "one < |end|>\n(no calls left: answer now)"


def test_records_that_cannot_be_played_again_are_refused_where_tools_matter(tmp_path: Path) -> None:
    Vault.steps = 0
    recipe = vault_records(tmp_path, "@peek a", ("one",))
    before = Vault.steps
    turns_of(recipe)
    assert Vault.steps == before + 1, "the last step shows no more tools"
    recipe = vault_records(tmp_path, "@peek a", ("one",), made=False)
    with pytest.raises(ConfigError, match=r"cannot be played again, .* \(the vault's data is gone\); expected what"):
        turns_of(recipe)
    assert [t.text for t in turns_of(recipe, "tools.calls=0")[0]] == ["open", "open"]


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
