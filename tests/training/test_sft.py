"""Imitation of a bot and of recorded play, by a policy or by the base under its adapters."""

from __future__ import annotations

import json
import random
import re
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import Killed, killed_at, train
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from interplay import envs
from interplay.agents.bots import Bot
from interplay.agents.bots import bot as bots
from interplay.agents.render import Renderer
from interplay.config import Section, parse
from interplay.envs import env as environments
from interplay.envs.games.tictactoe import TicTacToe
from interplay.errors import ConfigError, DataError, ToolError
from interplay.models.locate import locate
from interplay.rewards.calculator import calculate
from interplay.rollout import episode_json, records
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Team
from interplay.training import checkpoint
from interplay.training.demonstrations import demonstrations
from interplay.training.local import LocalLearner
from interplay.training.trainer import Observer
from interplay.types import Episode, Keys, Message, Observation, Parameter, Rewards, Sample, Task, Tool, Turn

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


class Waiting(TicTacToe):
    """The board can be seen only after `settle`."""

    settled = False

    async def settle(self) -> None:
        self.settled = True

    def observe(self) -> dict[str, Observation]:
        assert self.settled, "observe() was called before settle()"
        return super().observe()

    def step(self, actions: dict[str, str]) -> Rewards:
        self.settled = False
        return super().step(actions)


@pytest.mark.parametrize("algorithm", [{"name": "grpo", "group": 2}, {"name": "magrpo"}], ids=str)
def test_an_environment_that_waits_is_imitated_and_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: dict[str, Any]
) -> None:
    monkeypatch.setitem(environments.ENVIRONMENTS.classes, "waiting", Waiting)
    trainer = train(tmp_path, {**RECIPE, "env": {"name": "waiting"}, "algorithm": algorithm})
    assert trainer.step_index == 1


def place(sample: Sample) -> tuple[int, str, int]:
    """The decision, role and call of a demonstration, from the end of its id."""
    found = re.fullmatch(r".*/(\d+)([A-Za-z]+)(?:\.(\d+))?", sample.id)
    assert found
    return int(found[1]), found[2], int(found[3] or 0)


def shown(data: dict[str, Any], *overrides: str) -> dict[str, list[tuple[Any, ...]]]:
    """By policy: the role of each demonstration, its tokens, and whether it extends the one before."""
    plan = resolve(parse(data, overrides))
    assert plan.recipe.warmstart is not None
    team = Team(plan.recipe)
    found = demonstrations(plan, team, plan.recipe.warmstart)
    team.close()
    assert all(e.policy == name for name, examples in found.items() for e in examples)
    samples = {name: [e.sample for e in examples] for name, examples in found.items()}
    return {n: [(place(s)[1], s.prompt, s.action, s.extends is not None) for s in mine] for n, mine in samples.items()}


def test_recorded_play_is_imitated_token_for_token(tmp_path: Path) -> None:
    """What was played, as the policy would have seen and said it: exactly the same tokens if it was this policy."""
    train(tmp_path, RECIPE)
    played = [r.episode for r in records.read(tmp_path / "episodes.jsonl")]
    again = {**RECIPE, "warmstart": {"records": str(tmp_path)}}
    lines = [t for e in played for t in e.line()]
    said = [(t.role, t.last.prompt, t.last.action, t.last.extends is not None) for t in lines]
    assert shown(again)["player"] == said and lines
    few = {**RECIPE, "warmstart": {"records": str(tmp_path / "episodes.jsonl"), "episodes": 2}}
    assert len(shown(few)["player"]) == sum(len(e.line()) for e in played[:2])
    won = {**RECIPE, "warmstart": {"records": str(tmp_path), "min_reward": 0.5}}
    winners = [t.role for e in played for t in e.line() if sum(r.value or 0 for r in e.rewards.of(t.role)) >= 0.5]
    assert [role for role, *_ in shown(won)["player"]] == winners and 0 < len(winners) < len(lines)


def test_recorded_play_warms_a_policy_up(tmp_path: Path) -> None:
    """Another policy, with another template of seats, learns from it, and its loss falls."""
    train(tmp_path / "old", RECIPE, "train.steps=2")
    losses: list[float] = []
    watch = Observer(warmstarted=lambda name, done, of, loss: losses.append(loss))
    source = {"records": str(tmp_path / "old"), "epochs": 8, "lr": 1e-2, "batch": 8}
    data = {**RECIPE, "policies": {"fresh": {"base": "tiny-32x1"}}, "seats": "fresh", "warmstart": source}
    train(tmp_path / "new", data, observer=watch)
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize(("schedule", "half"), [("constant", 1.0), ("linear", 0.5), ("cosine", 0.5)])
def test_the_learning_rate_of_the_imitation_follows_its_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str, half: float
) -> None:
    """At the first step and halfway; schedules that fall end near 0."""
    used: list[float] = []
    imitate = LocalLearner.imitate

    def watched(self: LocalLearner, *given: Any) -> float:
        loss = imitate(self, *given)
        used.append(self.optimizer.param_groups[0]["lr"] / 1e-2)
        return loss

    monkeypatch.setattr(LocalLearner, "imitate", watched)
    train(tmp_path, RECIPE, f"warmstart.schedule={schedule}", "warmstart.epochs=2", "train.steps=0")
    assert len(used) % 2 == 0
    assert (used[0], used[len(used) // 2]) == pytest.approx((1.0, half))
    assert used[-1] == pytest.approx(1.0) if schedule == "constant" else used[-1] < 0.2


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({}, "neither or both of bot and records"),
        ({"bot": "bot:random", "records": "x"}, "neither or both of bot and records"),
        ({"records": "nowhere"}, r"warmstart\.records is 'nowhere', but there are no episodes"),
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


def samples_of(data: dict[str, Any], *overrides: str) -> tuple[list[Sample], Renderer]:
    plan = resolve(parse(data, overrides))
    assert plan.recipe.warmstart is not None
    team = Team(plan.recipe)
    (found,) = demonstrations(plan, team, plan.recipe.warmstart).values()
    team.close()
    return [e.sample for e in found], team.members["player"].renderer


def test_a_bots_tool_calls_are_imitated_in_the_models_own_form() -> None:
    found, renderer = samples_of(MATH)
    assert [place(s)[2] for s in found] == [0, 1] * 3 and len({s.id for s in found}) == 6
    for asked, answer in zip(found[::2], found[1::2], strict=True):
        said, _ = renderer.decode(asked.action)
        name, _, expression = said.partition(" ")
        assert name == "@calculator" and asked.text == said and "@calculator EXPRESSION" in spoken(renderer, asked)
        (output,) = answer.messages
        assert output.role == "tool" and Fraction(output.content) == calculate(expression)
        assert answer.text == f"#### {output.content}" and answer.extends == asked.id
        assert answer.prompt[: len(asked.prompt) + len(asked.action)] == asked.prompt + asked.action
        assert spoken(renderer, answer).count(output.content)


def spoken(renderer: Renderer, sample: Sample) -> str:
    return str(renderer.tokenizer.decode(list(sample.prompt)))


def test_calls_that_are_not_allowed_are_not_shown() -> None:
    found, renderer = samples_of(MATH, "tools.calls=0")
    assert [place(s)[2] for s in found] == [0] * 3 and "@calculator" not in spoken(renderer, found[0])
    one, _ = samples_of(MATH, "tools.calls=1")
    assert one[1].messages[0].content.endswith("(no calls left: answer now)")


def tokens(samples: list[Sample]) -> list[tuple[Any, ...]]:
    return [(s.prompt, s.action, s.extends is not None) for s in samples]


def test_recorded_tool_calls_are_imitated_with_what_they_were_answered(tmp_path: Path) -> None:
    """The record contains the tools: exactly the same tokens are learned, although no environment is made."""
    shown, _ = samples_of(MATH)
    for n, (asked, answer) in enumerate(zip(shown[::2], shown[1::2], strict=True)):
        observation = envs.make(task := resolve(parse(MATH)).task(n)).observe()["reasoner"]
        keys = Keys(task.id, 0, task.id, 0, "reasoner", "", "calculator", "")
        turn = Turn(answer.id, None, keys, "player", answer.text, observation, (asked, answer))
        gone = replace(task, env="nowhere")  # nothing of this name can be made
        episode = Episode(task.id, gone, 0, {"reasoner": "player"}, [turn], Rewards())
        records.write(tmp_path / "episodes.jsonl", [episode], 1)
    again, _ = samples_of({**MATH, "warmstart": {"records": str(tmp_path)}})
    assert tokens(again) == tokens(shown)


EARLY = Path(__file__).parents[1] / "data" / "schema_0" / "tools.jsonl"


def test_early_records_name_no_tools_so_their_tasks_are_played_again(tmp_path: Path) -> None:
    """Records of an early version with tool calls: exactly the same tokens, after the same description of tools."""
    recipe = {**MATH, "env": {**MATH["env"], "largest": 9}}
    found, renderer = samples_of({**recipe, "warmstart": {"records": str(EARLY)}})
    said = [s for r in records.read(EARLY) for t in r.episode.line() for s in t.samples]
    assert tokens(found) == tokens(said) and "@calculator EXPRESSION" in spoken(renderer, found[0])
    rows = [json.loads(line) for line in EARLY.read_text().splitlines()]
    for row in rows:
        row["episode"]["task"]["data"]["tools"] = []
    (tmp_path / "episodes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ConfigError, match=r"calls tools at decision 0, but math offers no tools at this decision"):
        samples_of({**recipe, "warmstart": {"records": str(tmp_path)}})


class Vault(envs.Env):
    """Two turns in one conversation; `peek` returns how many are over, `fault` makes it fail, `slow` makes it sleep."""

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
        seconds = 0.05 if self.task.data["slow"] else 60.0
        peek = Tool("peek", "Looks.", (Parameter("what", "what to look at"),), self._peek, seconds)
        return {"guest": Observation((Message("user", f"turn {self.turn}"),), legal=("open",), tools=(peek,))}

    def _peek(self, what: str) -> str:
        if self.task.data["fault"]:
            raise ValueError("the lamp is out")
        time.sleep(self.task.data["slow"] * 60)
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
    """Calls `peek` as it is told to."""

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
    found, renderer = samples_of(vault(PEEK, PEEK))
    assert [place(s) for s in found] == [(d, "guest", n) for d in (0, 1) for n in (0, 1, 2)]
    outputs = [m.content for s in found for m in s.messages]
    assert outputs == [f"é: {turn} over < |end|>" for turn in (0, 0, 1, 1)]
    extended = [s.extends for s in found]
    assert extended == [None, *(s.id for s in found[:-1])], "one conversation, calls and outputs included"
    assert [renderer.decode(s.action)[0] for s in found] == ["@peek é", "@peek é", "open"] * 2


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (
            ("poke", {}),
            r"warmstart.bot: .*'guest' as guest in vault is malformed: there is no tool 'poke'. Tools: peek",
        ),
        (("peek", {"at": "x"}), r"peek has no argument 'at'; expected \"what\""),
        (("peek", {}), r"peek needs the argument 'what'"),
    ],
)
def test_a_bots_call_that_cannot_be_is_named(call: tuple[str, dict[str, Any]], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        samples_of(vault(call))


def test_a_tool_that_breaks_or_hangs_in_a_demonstration_is_a_tool_error() -> None:
    with pytest.raises(ToolError, match=r"tool 'peek' failed: ValueError: the lamp is out"):
        samples_of(vault(PEEK, fault=True))
    with pytest.raises(ToolError, match=r"tool 'peek' exceeded its limit of 0.05 seconds"):
        samples_of(vault(PEEK, slow=True))


def vault_records(
    folder: Path, text: str, outputs: tuple[str, ...], early: bool = False, **data: bool
) -> dict[str, Any]:
    """A recipe that imitates a recorded episode whose first turn called tools by `text`; `early` is schema 0."""
    task = resolve(parse(vault(PEEK))).task(0)
    task = replace(task, data={**task.data, **data})
    peek = Tool("peek", "Looks.", (Parameter("what", "what to look at"),), lambda what: "")

    def turn(decision: int, *samples: Sample) -> Turn:
        seen = Observation((Message("user", f"turn {decision}"),), legal=("open",), tools=(peek,))
        keys = Keys(task.id, 0, task.id, decision, "guest", "", "", "")
        return Turn(samples[-1].id, None, keys, "openai:wise", "open", seen, samples)

    def said(name: str, text: str, *messages: Message) -> Sample:
        return Sample(name, (), (), (), (), text, messages=messages)

    told = tuple(Message("tool", o) for o in outputs)
    calling = turn(0, said("0", text, Message("user", "turn 0")), said("0.1", "open", *told))
    after = turn(1, said("1", "open", Message("user", "turn 1")))
    episode = Episode(task.id, task, 0, {"guest": "openai:wise"}, [calling, after], Rewards())
    if early:
        (folder / "episodes.jsonl").write_text(json.dumps({"episode": as_early(episode)}) + "\n")
    else:
        (folder / "episodes.jsonl").unlink(missing_ok=True)
        records.write(folder / "episodes.jsonl", [episode], 1)
    return {**vault(PEEK), "warmstart": {"records": str(folder)}}


def as_early(episode: Episode) -> dict[str, Any]:
    """As early versions wrote a remote model's turns: calls inside the turn, and no tools."""
    out = episode_json.to_json(episode)
    (blank,) = json.loads((EARLY.parent / "legal.jsonl").read_text().splitlines()[1])["episode"]["turns"]
    blank |= {"calls": [], "rewards": [], "status": "ok", "fresh": False, "parent": None}
    out["turns"] = []
    for turn in episode.turns:
        keys = {**blank["keys"], "decision": turn.decision, "role": "guest"}
        same = {**blank, "keys": keys, "role": "guest", "decision": turn.decision, "legal": turn.observation.legal}
        whole = [
            {**same, "id": s.id, "text": s.text, "messages": [[m.role, m.content] for m in s.messages]}
            for s in turn.samples
        ]
        out["turns"].append({**whole[-1], "calls": whole[:-1]})
    return out


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "peek", "arguments": {"what": "a"}}</tool_call>'
        '<tool_call>{"name": "peek", "arguments": {"what": "b"}}</tool_call><tool_call>{</tool_call>',
        '[TOOL_CALLS] [{"name": "peek", "arguments": {"what": "a"}}, {"name": "peek", "arguments": {"what": "b"}}, 3]',
    ],
)
@pytest.mark.parametrize("early", [False, True])
def test_calls_recorded_in_another_models_form_are_said_in_this_ones(tmp_path: Path, text: str, early: bool) -> None:
    """If the learner imitated calls in another format, it would learn to answer with them."""
    answers = ("one <|end|>", "two", "error: no call\n(no calls left: answer now)")
    recipe = vault_records(tmp_path, text, answers, early)
    found, renderer = samples_of(recipe)
    assert [renderer.decode(s.action)[0] for s in found] == ["@peek a", "@peek b", "open", "open"]
    assert [[m.content for m in s.messages] for s in found[1:3]] == [["one < |end|>"], ["two"]]
    few, _ = samples_of(recipe, "tools.calls=1")
    assert few[1].text == "open" and few[1].messages[0].content == "one < |end|>\n(no calls left: answer now)"


def test_imitating_recorded_calls_plays_nothing_again(tmp_path: Path) -> None:
    """The tools are in the record, so their environment need not exist any more."""
    recipe = vault_records(tmp_path, "@peek a", ("one",), made=False)
    Vault.steps = 0
    found, renderer = samples_of(recipe)
    assert [s.text for s in found] == ["@peek a", "open", "open"] and Vault.steps == 0
    assert "@peek WHAT: Looks." in spoken(renderer, found[0])
    assert [s.text for s in samples_of(recipe, "tools.calls=0")[0]] == ["open", "open"]


def test_early_records_that_cannot_be_played_again_are_refused_where_tools_matter(tmp_path: Path) -> None:
    recipe = vault_records(tmp_path, "@peek a", ("one",), early=True)
    Vault.steps = 0
    assert [s.text for s in samples_of(recipe)[0]] == ["@peek a", "open", "open"]
    assert Vault.steps == 1, "the last step shows no more tools"
    recipe = vault_records(tmp_path, "@peek a", ("one",), early=True, made=False)
    with pytest.raises(
        ConfigError, match=r"cannot be played again to find them \(the vault's data is gone\); restore what"
    ):
        samples_of(recipe)
    assert [s.text for s in samples_of(recipe, "tools.calls=0")[0]] == ["open", "open"]


ADAPTERS = {**RECIPE, "policies": {"player": {**TINY, "per": "role", "adapter": {"rank": 2}}}}


def test_the_base_under_adapters_learns_once_and_stays_with_the_run(tmp_path: Path) -> None:
    """New adapters start on it, in training, after a kill, on disk and in PEFT."""
    from peft import PeftModel

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
