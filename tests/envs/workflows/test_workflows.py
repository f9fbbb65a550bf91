"""Workflows in a recipe: which role gets which prompt, how replies are merged, what is refused, and the diagram."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from interplay import envs
from interplay.cli.main import app
from interplay.config import load, validate
from interplay.envs.workflows.graph import WorkflowSection, filled, mermaid
from interplay.envs.workflows.machine import Machine
from interplay.errors import ConfigError
from interplay.rollout.resolve import resolve
from interplay.training.trainer import Observer, Trainer
from interplay.types import Spoken

ROOT = Path(__file__).parents[3]
RECIPE = ROOT / "recipes" / "programs" / "workflow.toml"


def workflow(**nodes: Mapping[str, Any]) -> WorkflowSection:
    return validate(WorkflowSection, {"nodes": nodes}, "workflow")


def walked(section: WorkflowSection, said: Mapping[str, list[str]], task: Mapping[str, Any] | None = None) -> Any:
    """Return the answer and every (node, prompt) on the way. `said` has the replies of each node, in order."""
    asked: list[tuple[str, str]] = []
    left = {name: list(texts) for name, texts in said.items()}

    async def ask(role: str, messages: Any, **how: Any) -> Spoken:
        asked.append((how["phase"], messages[-1].content))
        return Spoken(left[how["phase"]].pop(0))

    answer = asyncio.run(Machine(section, task or {}, "the task", ask).answer())  # type: ignore[arg-type]
    return answer, asked


def long_enough(task: Any, text: str) -> float:
    return float(len(text))


def test_nodes_are_visited_by_the_conditions_of_their_transitions() -> None:
    section = workflow(
        plan={"role": "a", "prompt": "Plan {task}", "next": "solve"},
        solve={"role": "b", "prompt": "{task}: {plan} ({check})", "next": "check"},
        check={
            "role": "c", "prompt": "{solve}",
            "next": [{"to": "solve", "contains": "WRONG", "times": 1}, {"to": "end", "matches": r"\d"}, {"to": "plan"}],
        },
    )  # fmt: skip
    said = {"plan": ["p1", "p2"], "solve": ["s1", "s2", "s3"], "check": ["it is wrong", "no", "fine 7"]}
    answer, asked = walked(section, said)
    assert [name for name, _ in asked] == ["plan", "solve", "check", "solve", "check", "plan", "solve", "check"]
    assert asked[1][1] == "the task: p1 ()" and asked[3][1] == "the task: p1 (it is wrong)"
    assert answer == "fine 7"


def test_a_node_is_visited_at_most_as_often_as_its_limit_says() -> None:
    section = workflow(loop={"role": "a", "prompt": "{last}", "next": "loop", "limit": 3})
    answer, asked = walked(section, {"loop": ["1", "2", "3", "4"]})
    assert [text for _, text in asked] == ["", "1", "2"] and answer == "3"


@pytest.mark.parametrize(
    ("merge", "answer"), [("vote", "Two"), ("concat", "(1) one\n(2) Two\n(3) two "), ("best", "two ")]
)
def test_several_replies_become_one(merge: str, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "checks", sys.modules[__name__])
    how = {"verify": "checks:long_enough"} if merge == "best" else {}
    node = {"role": "a", "prompt": "x", "samples": 3, "merge": merge, **how}
    assert walked(workflow(ask=node), {"ask": ["one", "Two", "two "]})[0] == answer


def is_even(task: Mapping[str, Any], text: str) -> bool:
    return int(text) % 2 == int(task["rest"])


def test_a_function_of_the_task_and_the_reply_decides_a_transition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "checks", sys.modules[__name__])
    ends = [{"to": "end", "verify": "checks:is_even"}, {"to": "ask"}]
    section = workflow(ask={"role": "a", "prompt": "x", "next": ends})
    assert walked(section, {"ask": ["1", "3", "4", "5"]}, {"rest": 0})[0] == "4"
    assert walked(section, {"ask": ["2", "3", "4", "5"]}, {"rest": 1})[0] == "3"


def test_a_tool_runs_on_the_prompt_and_a_role_can_remember() -> None:
    section = workflow(
        ask={"role": "a", "prompt": "{task}", "talk": True, "next": [{"to": "end", "equals": " Done "}, {"to": "run"}]},
        run={"tool": "calculator", "prompt": "{ask}", "next": "ask"},
    )
    asked: list[list[str]] = []

    async def ask(role: str, messages: Any, **how: Any) -> Spoken:
        asked.append([m.content for m in messages])
        return Spoken("2 * 21" if len(asked) == 1 else "done")

    machine = Machine(section, {}, "t", ask)  # type: ignore[arg-type]
    assert asyncio.run(machine.answer()) == "done"
    assert machine.said["run"] == ["42"]
    assert asked == [["t"], ["t", "2 * 21", "t"]]


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        ({}, "nodes is empty"),
        ({"a": {"prompt": "x"}}, "no role and tool"),
        ({"a": {"role": "r", "prompt": "{b}"}}, r"placeholder \{b\}"),
        ({"a": {"role": "r", "prompt": "x", "next": "bb"}}, "next names 'bb'"),
        ({"a": {"role": "r", "prompt": "x"}, "b": {"role": "r", "prompt": "y"}}, "b is never reached"),
        ({"a": {"tool": "python", "prompt": "x", "samples": 2}}, "a tool gives the same result every time"),
        ({"a": {"role": "r", "prompt": "x", "merge": "best"}}, "expected workflow.nodes.a.verify"),
        ({"a": {"role": "r", "prompt": "{"}}, "write every brace"),
        ({"a": {"role": "r", "prompt": "x", "next": [{"to": "end", "matches": "("}]}}, "has the pattern"),
    ],
)
def test_a_workflow_that_cannot_work_is_one_sentence(nodes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        workflow(**nodes)


def test_a_workflow_beside_another_environment_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"env\.name is 'sums', .*\[workflow\]; expected env\.name = 'workflow:sums'"):
        load(RECIPE, ['env={name = "sums"}'])


def test_the_recipe_is_played_phases_are_nodes_and_the_inner_reward_is_the_teams(monkeypatch: Any) -> None:
    recipe = load(RECIPE)
    env = envs.make(envs.sample_task(recipe.env.name, recipe.env.options))
    phases = []
    replies = {"plan": "add", "solve": "5", "check": "right", "answer": "5"}
    while seen := env.observe():
        ((role, o),) = seen.items()
        phases.append((role, o.phase))
        env.step({role: replies[o.phase]})
    assert phases == [("planner", "plan"), *[("solver", "solve")] * 3, ("checker", "check"), ("solver", "answer")]
    (reward,) = envs.outcome_of(env)
    assert (reward.name, reward.level.value, reward.role) == ("correct", "team", None)
    with pytest.raises(ConfigError, match="expected one role"):
        envs.sample_task("workflow:kuhn", {"workflow": recipe.env.options["workflow"]})


def test_the_recipe_trains_with_groups_by_node(tmp_path: Path) -> None:
    small = ["train.steps=1", "rollout.tasks=1", "algorithm.candidates=2", "device=cpu", "sampling.max_tokens=4"]
    trainer = Trainer(resolve(load(RECIPE, small)), tmp_path)
    seen: list[dict[str, float]] = []
    trainer.observer = Observer(stepped=lambda step, metrics: seen.append(dict(metrics)))
    try:
        trainer.train()
    finally:
        trainer.close()
    assert seen[0]["episodes_failed"] == 0 and seen[0]["program/replays"] > 0


def test_the_picture_shows_every_node_and_transition() -> None:
    found = CliRunner().invoke(app, ["draw", str(RECIPE)])
    assert found.exit_code == 0, found.output
    for part in (
        "flowchart TD",
        "start([start]) --> plan",
        "solver ×3 vote",
        'check -->|"contains wrong, times 1"| solve',
    ):
        assert part in found.output
    assert mermaid(workflow(a={"role": "r", "prompt": "x"})).endswith("done([end])")


def test_what_has_not_been_said_is_empty() -> None:
    assert filled("a {b} {{c}} {d.all}", {"b": "1"}) == "a 1 {c} "
