"""Training with an outside program: several policies in it, and what is never trained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from interplay.config import Recipe, validate
from interplay.envs.programs import counts
from interplay.errors import ConfigError, GuardError
from interplay.rollout.records import read
from interplay.rollout.resolve import resolve
from interplay.training.trainer import Observer, Trainer

TEAMS = Path(__file__).parents[1] / "envs" / "programs" / "teams"


@pytest.fixture(autouse=True)
def teams_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TEAMS))


def trainer(folder: Path, coroutine: str, policies: Mapping[str, Any], **rest: Any) -> Trainer:
    seats = {"planner": next(iter(policies)), "solver": list(policies)[-1]}
    env = {"name": "program", "coroutine": coroutine, "reward": "small_teams:length", "roles": list(seats)}
    data = {
        "name": "p", "device": "cpu", "env": env, "policies": policies, "seats": seats,
        "algorithm": {"name": "grpo", "group": 4}, "sampling": {"max_tokens": 6}, "rollout": {"tasks": 2},
        "eval": {"opponents": ["team"], "success": "score"}, **rest,
    }  # fmt: skip
    return Trainer(resolve(validate(Recipe, data)), folder)


def weights(made: Trainer, name: str) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in made.team.members[name].loaded.model.state_dict().items()}


def test_a_step_of_one_policy_leaves_the_other_of_the_same_program_bit_identical(tmp_path: Path) -> None:
    train = {"steps": 1, "lr": 1e-2, "update": "alternating", "weight_decay": 0.1}
    made = trainer(tmp_path, "small_teams:two", {"a": {"base": "tiny"}, "b": {"base": "tiny"}}, train=train)
    try:
        before = {name: weights(made, name) for name in ("a", "b")}
        made.train()
        after = {name: weights(made, name) for name in ("a", "b")}
    finally:
        made.close()
    same = {name: all(torch.equal(before[name][k], after[name][k]) for k in before[name]) for name in before}
    assert same == {"a": False, "b": True}


def test_adapters_a_frozen_policy_a_remote_model_and_a_bot_serve_one_program(tmp_path: Path, served: Any) -> None:
    """The adapters learn, and nobody else's turns are trained. A server cannot be held to a list of replies."""
    url = served(lambda body: f"far {len(body['messages'])}")
    policies = {
        "a": {"base": "tiny", "adapter": {"rank": 2}}, "b": {"base": "tiny", "adapter": {"rank": 2}},
        "past": {"base": "tiny", "trainable": False},
        "far": {"base": "openai:gpt", "trainable": False, "remote": {"url": url}},
    }  # fmt: skip
    seats = {"a": "a", "b": "b", "past": "past", "far": "far", "bot": "bot:first"}
    env = {"name": "program", "coroutine": "small_teams:five", "reward": "small_teams:length", "roles": list(seats)}
    made = trainer(tmp_path, "", policies, train={"steps": 1}, env=env, seats=seats)
    try:
        made.train()
    finally:
        made.close()
    (record, *_) = read(tmp_path / "episodes.jsonl")
    spoke = {
        turn.role: (str(turn.policy), turn.text, bool(turn.samples and turn.last.action))
        for turn in record.episode.turns
    }
    assert {role: who for role, (who, _, _) in spoke.items()} == seats
    assert spoke["far"][1] == "far 1" and spoke["bot"][1] == "left"
    assert [role for role, (_, _, ids) in spoke.items() if ids] == ["a", "b", "past"]
    row = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["episodes_failed"] == 0 and row["a/tokens"] > 0 and row["b/tokens"] > 0
    listed = {**env, "route": {"far": {"only": ["yes", "no"]}}}
    other = trainer(tmp_path / "other", "", policies, train={"steps": 1}, env=listed, seats=seats)
    try:
        with pytest.raises(ConfigError, match=r"listed replies of the role 'far'.*a remote model cannot be restricted"):
            other.train()
    finally:
        other.close()


def test_a_judge_marks_what_a_program_did(tmp_path: Path, served: Any) -> None:
    policies = {"a": {"base": "tiny"}, "far": {"base": "openai:gpt", "trainable": False}}
    policies["far"]["remote"] = {"url": served(lambda body: "7")}  # type: ignore[assignment]
    seats = {"planner": "a", "solver": "a"}
    judges = {"taste": {"kind": "pointwise", "who": "far"}}
    made = trainer(tmp_path, "small_teams:two", policies, train={"steps": 1}, seats=seats, judges=judges)
    try:
        made.train()
    finally:
        made.close()
    for record in read(tmp_path / "episodes.jsonl"):
        marks = [r.value for r in record.episode.rewards if r.name == "taste"]
        assert marks and all(mark is not None for mark in marks) and record.episode.judged


def test_a_run_records_that_its_program_has_no_walls(tmp_path: Path) -> None:
    env = {"name": "program", "function": "commands:one", "reward": "commands:length", "roles": ["planner"]}
    env |= {"program": {"walls": "none", "network": True}}
    made = trainer(tmp_path, "", {"a": {"base": "tiny"}}, env=env, seats={"planner": "a"})
    made.close()
    how = json.loads((tmp_path / "run.json").read_text())["recipe"]["env"]["program"]
    assert (how["walls"], how["network"]) == ("none", True)


def test_assistant_text_that_nobody_sampled_is_never_trained(tmp_path: Path) -> None:
    """It is part of prompts; every trained token was sampled."""
    made = trainer(tmp_path, "small_teams:forgets", {"a": {"base": "tiny"}}, train={"steps": 1})
    learned: list[Any] = []
    whole = made.learning.learn

    def noted(played: Any, clock: Any) -> Any:
        learned.append(whole(played, clock))
        return learned[-1]

    made.learning.learn = noted  # type: ignore[method-assign]
    try:
        made.train()
        renderer = made.team.members["a"].renderer
    finally:
        made.close()
    (step,) = learned
    trained = step.batches["a"].trained
    sampled = {s.id: s.action for e in step.episodes for t in e.turns for s in t.samples}
    assert {x.sample.id: x.sample.action for x in trained} == sampled
    foreign = renderer.tokenizer("never said by anyone", add_special_tokens=False)["input_ids"]
    assert any(
        tuple(foreign) == x.sample.prompt[i : i + len(foreign)] for x in trained for i in range(len(x.sample.prompt))
    )
    assert step.metrics["history/foreign"] > 0 and step.metrics["history/kept"] > 0


def test_a_program_that_asks_nobody_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = trainer(tmp_path, "small_teams:asks_nobody", {"a": {"base": "tiny-16x1"}}, train={"steps": 2})
    try:
        made.train()
    finally:
        made.close()
    assert sum("no trained policy was asked for a reply" in line for line in caplog.messages) == 1


def test_the_same_crash_in_many_episodes_stops_the_run_with_file_and_line(tmp_path: Path) -> None:
    made = trainer(tmp_path, "small_teams:crashes_on_anything", {"a": {"base": "tiny"}}, train={"steps": 1})
    try:
        with pytest.raises(
            GuardError,
            match=r"8 of the 8 .* ValueError at .*small_teams\.py:\d+ \(one of them: cannot read .*; this is a bug",
        ):
            made.train()
    finally:
        made.close()


def measured(metrics: Mapping[str, float]) -> dict[str, float]:
    """All metrics except times."""
    return {k: v for k, v in metrics.items() if "seconds" not in k and "per_second" not in k and k != "memory_gib"}


def test_a_run_with_a_program_is_the_same_when_it_is_repeated(tmp_path: Path) -> None:
    """Bit for bit: nothing depends on which call came first."""
    found = []
    for n in range(2):
        made = trainer(tmp_path / str(n), "small_teams:slow_branch", {"a": {"base": "tiny"}}, train={"steps": 2})
        seen: list[dict[str, float]] = []
        counts.take()  # of other tests
        made.observer = Observer(stepped=lambda step, metrics, seen=seen: seen.append(dict(metrics)))
        try:
            made.train()
            found.append((weights(made, "a"), [measured(m) for m in seen]))
        finally:
            made.close()
    assert found[0][1] == found[1][1]
    assert all(torch.equal(found[0][0][k], found[1][0][k]) for k in found[0][0])
