"""A policy that sees is trained like any other: it learns to read first, and a resumed run is bit-identical."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import Killed, killed_at, make, rows, train
from safetensors.torch import load_file
from sighted import picture, save
from typer.testing import CliRunner

from interplay.algorithms.algorithm import CriticSettings
from interplay.cli.main import app
from interplay.config import load, parse
from interplay.engines.engine import Request
from interplay.envs.env import ENVIRONMENTS, Env
from interplay.errors import ConfigError
from interplay.models import senses
from interplay.models.locate import locate
from interplay.rollout import records
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Team
from interplay.training.critic import make_critics
from interplay.training.demonstrations import READ, readings
from interplay.training.trainer import Trainer
from interplay.training.tries import Example
from interplay.types import Completion, Message, Observation, Parameter, Pictured, Rewards, Role, Sample, Tool

pytest.importorskip("PIL")
RECIPES = Path(__file__).parents[2] / "recipes"
SMALL: dict[str, Any] = {
    "name": "vision",
    "device": "cpu",
    "env": {"name": "plan_path", "view": "image", "size": 3, "min_length": 1, "team": "single", "brief": True},
    "policies": {"player": {"base": "tiny-vl-16x1x24", "senses": {"train": True}}},
    "seats": {"actor": "player"},
    "warmstart": {"bot": "bot:random", "read": 2, "episodes": 12, "lr": 1e-2, "batch": 16},
    "algorithm": {"name": "at_grpo", "candidates": 2, "continuation": "round"},
    "sampling": {"max_tokens": 3, "legal": True},
    "rollout": {"tasks": 3},
    "train": {"steps": 3, "lr": 1e-3},
    "eval": {"before": False, "after": False},
    "records": {"tensorboard": "off"},
}


def test_reading_shows_the_same_pictures_with_the_words_that_they_say() -> None:
    plan = resolve(parse(SMALL))
    team = Team(plan.recipe)
    assert plan.recipe.warmstart is not None
    found = readings(plan, team, plan.recipe.warmstart)["player"]
    assert len({e.sample.media[0].digest for e in found}) == len(found) > 12, "each picture once"
    sample = found[0].sample
    assert set(sample.text.split()) <= set("#.G@") and len(sample.text.split()) == 9
    assert READ in team.members["player"].renderer.tokenizer.decode(sample.prompt)
    team.close()


@pytest.mark.parametrize("trained", [True, False])
def test_a_resumed_run_with_pictures_equals_one_that_was_not_killed(tmp_path: Path, trained: bool) -> None:
    data = {**SMALL, "policies": {"player": {"base": "tiny-vl-16x1x24", "senses": {"train": trained}}}}
    trainer = train(tmp_path / "whole", data)
    with pytest.raises(Killed):
        train(tmp_path / "killed", data, observer=killed_at(1))
    train(tmp_path / "killed", data)
    assert rows(tmp_path / "whole") == rows(tmp_path / "killed")
    assert max(row["player/gap"] for row in rows(tmp_path / "whole")) < 1e-4
    record = next(iter(records.read(tmp_path / "whole" / "episodes.jsonl")))
    shown = record.episode.turns[0].observation.messages[0].media[0]
    assert (tmp_path / "whole" / "media" / shown.file).read_bytes() == shown.data
    said = next((tmp_path / "whole" / "logs").glob("llm_conversation_*.log")).read_text()
    assert f"[media/{shown.file}]" in said, "the log names the file of each picture"
    learned = any("vision" in name for name in trainer.learners["player"].weights())
    assert learned is trained


def test_adapters_learn_on_a_base_that_learned_to_read(tmp_path: Path) -> None:
    """With warmstart.base, the eye is trained once, under the adapters, and then stays unchanged. It is saved with the
    base of the run, and exported with it."""
    policy = {"base": "tiny-vl-16x1x24", "adapter": {"rank": 4}, "senses": {"train": True}}
    data = {**SMALL, "policies": {"player": policy}, "warmstart": {**SMALL["warmstart"], "base": True}}
    trainer = train(tmp_path / "run", data)
    names = trainer.learners["player"].weights()
    assert names and not any("vision" in name or "projector" in name for name in names)
    eye = trainer.team.members["player"].loaded.senses
    assert eye is not None and eye.version > 0 and not eye.thawed
    make(tmp_path / "run", data).close()
    base = load(tmp_path / "run").policies["player"].base
    wanted = ["export", str(tmp_path / "run"), "--to", str(tmp_path / "whole"), "--merged"]
    assert CliRunner().invoke(app, wanted).exit_code == 0
    new, trained, exported = (
        {name: tensor for name, tensor in load_file(Path(folder) / "model.safetensors").items() if "vision" in name}
        for folder in (locate("tiny-vl-16x1x24", 0), base, tmp_path / "whole")
    )
    assert any(not torch.equal(trained[name], tensor) for name, tensor in new.items())
    assert (
        all(torch.equal(trained[name], tensor) for name, tensor in exported.items()) and exported.keys() == new.keys()
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"policies": {"player": {"base": "tiny-16x1"}}},
            "plan_path shows pictures that its players need, but 'player' cannot read pictures",
        ),
        (
            {
                "policies": {"player": {"base": "tiny-16x1", "senses": {"limit": 1}}},
                "env": {**SMALL["env"], "view": "text"},
            },
            "reads only text; expected a base that reads",
        ),
        ({"env": {**SMALL["env"], "view": "text"}}, "shows the policies no pictures or sounds"),
        (
            {
                "policies": {
                    "player": {"base": "tiny-vl-16x1x24", "adapter": {"rank": 2}, "senses": {"limit": 2}},
                    "other": {"base": "tiny-vl-16x1x24", "adapter": {"rank": 2}},
                },
                "env": {**SMALL["env"], "team": "pair", "speech": "action"},
                "seats": {"actor": "player", "planner": "other"},
            },
            "share the base 'tiny-vl-16x1x24' but have different senses",
        ),
        (
            {
                "policies": {
                    "player": {"base": "tiny-vl-16x1x24", "adapter": {"rank": 2}, "senses": {"limit": 2}},
                    "other": {"base": "tiny-vl-16x1x24", "trainable": False, "senses": {"limit": 1}},
                },
                "env": {**SMALL["env"], "team": "pair", "speech": "action"},
                "seats": {"actor": "player", "planner": "other"},
            },
            "share the base 'tiny-vl-16x1x24' but have different senses",
        ),
        *(
            (
                {
                    "engine": {"kind": kind, "url": "http://127.0.0.1:9"},
                    "env": {**SMALL["env"], "view": "both"},
                    "algorithm": {"name": "grpo"},
                    "sampling": {},
                },
                f"engine.kind is '{kind}', which reads text alone here, but the model of policies.player sees",
            )
            for kind in ("vllm", "sglang")
        ),
        (
            {"policies": {"player": {"base": "openai:x", "trainable": False, "senses": {"limit": 1}}}},
            "is for local models, but 'openai:x' is remote",
        ),
    ],
)
def test_what_cannot_be_seen_is_refused_in_a_sentence(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        train(tmp_path, {**SMALL, **changes})


def test_the_recipe_of_two_agents_with_qwen2_5_vl_on_a_shrunk_model(tmp_path: Path) -> None:
    """The family's own processor and chat template; the recipe is unchanged but for the base and the sizes."""
    base = save("qwen2_5_vl", tmp_path / "base")
    small = (
        "device=cpu", f"policies.planner.base={base}", f"policies.actor.base={base}", "env.cell=8", "env.turns=2",
        "sampling.max_tokens=6", "rollout.tasks=4", "train.steps=2", "algorithm.candidates=3", "env.size=4",
        "records.tensorboard=off", "eval.before=false", "eval.after=false", "eval.every=0", "env.min_length=1",
        "sampling.legal=true",
    )  # fmt: skip
    trainer = Trainer(resolve(load(RECIPES / "vision" / "qwen2_5_vl.toml", small)), tmp_path / "run")
    try:
        trainer.train()
        planner, actor = trainer.learners["planner"], trainer.learners["actor"]
        assert planner.model is actor.model, "one base in memory for both"
        assert not any("visual" in name for name in planner.weights()), "the eye stays as it is"
    finally:
        trainer.close()
    found = rows(tmp_path / "run")
    assert len(found) == 2 and max(row[f"{name}/gap"] for row in found for name in ("planner", "actor")) < 1e-4
    record = next(iter(records.read(tmp_path / "run" / "episodes.jsonl")))
    assert {turn.role for turn in record.episode.turns} == {"planner", "actor"}
    assert all(turn.last.media for turn in record.episode.turns), "both see the board"


@pytest.mark.parametrize("adapter", [None, {"rank": 2}])
def test_a_league_of_policies_that_see(tmp_path: Path, adapter: dict[str, Any] | None) -> None:
    """An earlier version of a policy plays beside it, and both see the board."""
    data = {
        **SMALL,
        "env": {**SMALL["env"], "team": "pair", "speech": "action"},
        "policies": {"player": {"base": "tiny-vl-16x1x24", "adapter": adapter}},
        "seats": "player",
        "warmstart": None,
        "algorithm": {**SMALL["algorithm"], "keep": "uniform"},
        "rollout": {"tasks": 6},
        "league": {"every": 1, "capacity": 2},
        "matchups": [{"share": 1.0, "one": "player", "others": "@league"}],
    }
    train(tmp_path, data)
    gaps = [row["player/gap"] for row in rows(tmp_path) if "player/gap" in row]  # a step without a signal has none
    assert gaps and max(gaps) < 1e-4
    older = [
        turn
        for record in records.read(tmp_path / "episodes.jsonl")
        for turn in record.episode.turns
        if turn.policy.startswith("player@")
    ]
    assert {turn.policy for turn in older} >= {"player@1"}, "a version that was trained with pictures"
    assert all(len(turn.last.media) == 1 and turn.last.media[0].length == 9 for turn in older)


class Screens(Env):
    """A page has a colour, which only a screenshot shows. The tool that takes it must be called first."""

    reward_names = ("right",)
    roles = ("reader",)
    said: str | None = None

    def _look(self, number: float) -> str:
        return Pictured("the page", (picture(self.task.seed % 7, 24, 24),))

    def observe(self) -> dict[Role, Observation]:
        look = Tool("look", "Takes a screenshot.", (Parameter("number", "of the page", "number"),), self._look)
        asked = Observation((Message("user", "colour?"),), fresh=True, phase="read", tools=(look,))
        return {} if self.said is not None else {"reader": asked}

    def step(self, actions: dict[Role, str]) -> Rewards:
        self.said = actions["reader"]
        return Rewards()

    def outcome(self) -> Rewards:
        return Rewards.team("right", float(len(self.said or "") % 2))

    def state(self) -> str:
        return str(self.said)


def test_screenshots_of_a_tool_are_trained_on_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first reply of every turn is forced to be a call of the tool. The second one is sampled after the picture,
    and the learner gives both the log-probs of the engine."""
    monkeypatch.setitem(ENVIRONMENTS.classes, "screens", Screens)
    data = {
        **SMALL,
        "env": {"name": "screens"},
        "seats": {"reader": "player"},
        "warmstart": None,
        "algorithm": {"name": "grpo", "group": 4},
        "sampling": {"max_tokens": 6},
        "train": {"steps": 2, "lr": 1e-2},
        "eval": {"before": False, "after": False, "opponents": []},
    }
    trainer = make(tmp_path, data)
    player = trainer.team.members["player"]
    generate, call = player.engine.generate, player.renderer.encode_reply("@look 1")

    async def calling(request: Request) -> Completion:
        return await generate(request if request.media else replace(request, forced=call))

    monkeypatch.setattr(player.engine, "generate", calling)
    try:
        trainer.train()
    finally:
        trainer.close()
    assert max(row["player/gap"] for row in rows(tmp_path)) < 1e-4
    shown = set()
    for record in records.read(tmp_path / "episodes.jsonl"):
        (turn,) = record.episode.turns
        assert [sample.tool for sample in turn.samples] == ["look", ""] and turn.last.extends == turn.samples[0].id
        ((message,), (span,)) = turn.last.messages, turn.last.media
        assert message.role == "tool" and message.media[0].digest == span.digest and span.length == 9
        assert (tmp_path / "media" / message.media[0].file).read_bytes() == message.media[0].data
        shown.add(span.digest)
    assert len(shown) > 1, "different screenshots"


@pytest.mark.parametrize("learns", [True, False])
def test_a_critic_sees_the_pictures_of_its_policy(tmp_path: Path, learns: bool) -> None:
    """In the same size. Its eye learns if that of the policy does, and then its values use the new one."""
    sees = {"base": str(save("qwen2_5_vl", tmp_path)), "senses": {"train": learns, "max_pixels": 600}}
    recipe = parse({**SMALL, "env": {**SMALL["env"], "cell": 16}, "policies": {"player": sees}, "warmstart": None})
    team = Team(recipe)
    settings = CriticSettings(lr=1e-2)
    critic = make_critics(team, recipe, settings, ["player"])["player"]
    shown = Message("user", "where?", media=(picture(1, 48, 48),))
    prompt = team.members["player"].renderer.prompt((shown,))
    assert prompt.media[0].length == 4, "at most 600 pixels, and not 48 × 48"
    example = Example("player", Sample("a", prompt.ids, (), (), (), "", media=prompt.media), targets=(1.0,))
    sense = senses.of(critic.model)
    assert sense is not None
    with torch.no_grad():  # as for values
        (before,) = sense.features(prompt.media).values()
    for _ in range(2):  # the head is zero at first, so that nothing below it learns in the first step
        critic.step([example])
    with torch.no_grad():
        (after,) = sense.features(prompt.media).values()
    assert torch.equal(before, after) is not learns
    team.close()


@pytest.mark.parametrize("name", ["hearing", "spotter_pilot", "fusion"])
def test_one_step_of_the_recipes_that_hear(tmp_path: Path, name: str) -> None:
    if name == "hearing":
        pytest.importorskip("espeakng_loader")
    small = (
        "device=cpu", "warmstart.episodes=4", "warmstart.read=1", "warmstart.epochs=1", "rollout.tasks=4",
        "train.steps=1", "algorithm.group=6", "records.tensorboard=off", "eval.before=false", "eval.after=false",
        "eval.every=0",
    )  # fmt: skip
    trainer = Trainer(resolve(load(RECIPES / "vision" / f"{name}.toml", small)), tmp_path)
    try:
        trainer.train()
    finally:
        trainer.close()
    (row,) = rows(tmp_path)
    assert max(value for key, value in row.items() if key.endswith("/gap")) < 1e-4


def test_two_steps_of_the_vision_recipe(tmp_path: Path) -> None:
    small = (
        "device=cpu", "warmstart.episodes=8", "warmstart.read=1", "rollout.tasks=3", "train.steps=2",
        "algorithm.candidates=2", "records.tensorboard=off", "env.turns=3", "eval.before=false", "eval.after=false",
    )  # fmt: skip
    trainer = Trainer(resolve(load(RECIPES / "vision" / "plan_path.toml", small)), tmp_path)
    try:
        trainer.train()
    finally:
        trainer.close()
    assert len(rows(tmp_path)) == 2
