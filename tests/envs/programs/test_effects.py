"""Tools that change the world: a program with such tools is forked only if their results are recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interplay import envs
from interplay.algorithms import Tree
from interplay.config import load
from interplay.envs.programs import counts
from interplay.errors import ConfigError, ReplayError
from interplay.rollout.resolve import resolve
from interplay.types import Task

Make = Callable[..., list[Task]]
ROOT = Path(__file__).parents[3]
RECORDED = {"effects": True, "recorded": True}


@pytest.fixture
def paid(teams_can_be_imported: None) -> list[str]:
    """What the tool `pay` of small_teams has paid."""
    import small_teams  # type: ignore[import-not-found]

    counts.take()
    found: list[str] = small_teams.PAID
    found.clear()
    return found


def test_branches_share_what_was_done_before_them_and_do_the_rest_themselves(program: Make, paid: list[str]) -> None:
    (task,) = program("small_teams:pays", how=RECORDED)
    env = envs.make(task)
    env.observe()
    env.step({"planner": "5"})
    assert "receipt 1" in env.observe()["solver"].messages[0].content
    twins = [env.fork() for _ in range(3)]
    for n, twin in enumerate(twins):
        twin.step({"solver": f"tip {n}"})
        assert not twin.observe()
    assert paid == ["5", "tip 0", "tip 1", "tip 2"]
    assert counts.take()["program/replays"] == 3


def test_a_tool_of_a_process_is_recorded_with_its_error(tmp_path: Path) -> None:
    file = tmp_path / "paid.txt"
    how = {**RECORDED, "walls": "none", "environment": {"PAID": str(file)}}
    options = {"function": "commands:pays", "reward": "commands:length", "roles": ["planner", "solver"], "program": how}
    env = envs.make(envs.sample_task("program", options))
    env.observe()
    env.step({"planner": "5"})
    asked = env.observe()["solver"].messages[0].content
    assert "for 5" in asked and "nothing cannot be paid" in asked
    twin = env.fork()
    for one in (env, twin):
        one.step({"solver": "1"})
        assert not one.observe()
    assert file.read_text().splitlines() == ["5", "nothing", "1", "1"]


def test_recorded_tools_and_the_reward_can_be_in_one_module() -> None:
    """The trainer imports the module too, for its reward."""
    options = {"function": "paying:run", "reward": "paying:reward", "roles": ["planner"], "program": RECORDED}
    env = envs.make(envs.sample_task("program", options))
    env.observe()
    env.step({"planner": "5"})
    assert not env.observe()
    assert [(r.name, r.value) for r in envs.outcome_of(env)] == [("score", float(len("receipt for 5")))]


def test_a_reward_that_cannot_be_imported_is_told_before_the_program_runs() -> None:
    options = {"function": "paying:run", "reward": "no_such_module:reward", "roles": ["planner"]}
    with pytest.raises(ConfigError, match=r"env\.reward is 'no_such_module:reward'.*env\.program\.python\), move"):
        envs.make(envs.sample_task("program", options)).observe()


def test_a_replay_that_would_do_something_new_does_not_do_it(program: Make, paid: list[str]) -> None:
    (task,) = program("small_teams:pays_by_chance", how=RECORDED)
    env = envs.make(task)
    env.observe()
    twin = env.fork()
    env.step({"planner": "x"})
    twin.step({"planner": "y"})
    with pytest.raises(ReplayError, match=r"pay\(\[.amount 1.\]\), which was not called before"):
        twin.observe()
    assert paid == ["amount 0"]


def test_trees_of_a_program_with_effects_are_played_when_these_are_recorded(
    program: Make, players: Any, paid: list[str]
) -> None:
    with pytest.raises(ConfigError, match=r"effects = true.*recorded = true"):
        players.play(program("small_teams:pays", how={"effects": True}), Tree(2, "playout"))
    paid.clear()
    played = players.play(program("small_teams:pays", how=RECORDED), Tree(2, "playout"))
    assert not [e.error for e in played if e.error] and paid


def test_trees_of_a_program_with_effects_are_refused_before_anything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not after the evaluation with which a run begins."""
    monkeypatch.chdir(ROOT)
    tree = """algorithm={name="at_grpo",candidates=2,continuation="playout"}"""
    env = ["env.function=commands:one", "env.reward=commands:length", "env.program={effects=true}"]
    changes = [*env, tree, 'eval.opponents=["team"]']
    recipe = load("recipes/programs/openai.toml", changes)
    with pytest.raises(ConfigError, match=r"effects = true.*recorded = true"):
        resolve(recipe)


def test_recorded_without_effects_is_refused(program: Make) -> None:
    with pytest.raises(ConfigError, match="effects = true"):
        envs.make(*program("small_teams:pays", how={"recorded": True}))
