"""The same tokens for a team and for one agent: exactly equal, whatever they say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from interplay.config import parse
from interplay.errors import ConfigError
from interplay.evaluation import ablation
from interplay.evaluation.budget import Matched, _majority, matched
from interplay.evaluation.field import Field
from interplay.evaluation.played import Played
from interplay.rollout.resolve import resolve
from interplay.rollout.team import Team
from interplay.seats import RunPlan
from interplay.types import Completion, Episode, Stop, Task

RECIPE: dict[str, Any] = {
    "name": "t", "device": "cpu",
    "env": {"name": "plan_path", "size": 3, "min_length": 1, "brief": True, "turns": 2},
    "policies": {"p": {"base": "tiny-16x1"}}, "seats": "p", "algorithm": {"name": "grpo"},
    "sampling": {"max_tokens": 3},
    "eval": {"opponents": ["team"], "success": "solved", "ablations": ["budget"],
             "single": {"options": {"team": "single"}}},
}  # fmt: skip


@pytest.fixture(scope="module")
def team(private_cache: None) -> Any:
    team = Team(parse(RECIPE))
    yield team
    team.close()


def compare(team: Team, games: int = 6, played: Played | None = None, **changes: Any) -> tuple[Matched, list[Episode]]:
    plan = resolve(parse({**RECIPE, **changes}))
    field = Field(plan, team, games, seeds=[0, 1], played=played)

    async def go() -> tuple[Matched, list[Episode]]:
        whole = await field.play(plan.seats)
        return await matched(field, whole), whole

    return asyncio.run(go())


def speak(team: Team, monkeypatch: pytest.MonkeyPatch, says: Callable[[Any], str]) -> None:
    """A script replaces the model: `says` gives the text of a reply, which ends or is cut off at its limit."""
    renderer = team.members["p"].renderer

    async def generate(request: Any) -> Completion:
        tokens = renderer.encode_reply(says(request))[: request.sampling.max_tokens]
        stop = Stop.END if tokens[-1] in renderer.stop_ids else Stop.LENGTH
        return Completion(tokens, (0.0,) * len(tokens), (0,) * len(tokens), stop)

    monkeypatch.setattr(team.members["p"].engine, "generate", generate)


def test_every_budget_is_spent_to_the_token(team: Team, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Replies of one to three tokens, and budgets that no number of whole episodes fills exactly: task by task, over
    two seeds. One longer episode never uses more. The saved episodes give the same."""
    speak(team, monkeypatch, lambda request: "x" * (request.seed % 3))
    found, whole = compare(team, played=Played(tmp_path / "played.jsonl"))
    spent = [sum(len(s.action) for t in e.line() for s in t.samples) for e in whole]
    assert [row.budget for row in found.tasks] == spent and len(spent) == 12 and len(set(spent)) > 2
    assert all(row.samples == row.budget and 0 < row.longer <= row.budget for row in found.tasks)
    ways = {way.name: way for way in found.ways}
    assert list(ways) == ["team", "one agent, longer", "one agent, majority", "one agent, best"]
    assert ways["one agent, best"].used == ways["team"].used == ways["team"].budget == sum(spent) / 12
    assert ways["one agent, best"].episodes > ways["one agent, longer"].episodes == 1
    monkeypatch.undo()
    assert compare(team, played=Played(tmp_path / "played.jsonl"))[0] == found


def test_a_reply_may_be_as_long_as_the_budget(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """The team says one token per turn and the single agent never stops: `longer` uses the whole budget at once."""
    speak(team, monkeypatch, lambda request: "" if request.key[0] < 1000 else "x" * 99)
    found, _ = compare(team, games=2)
    assert all(row.budget == row.longer == row.samples == 4 for row in found.tasks), "2 roles, 2 turns"
    assert {way.name: way.episodes for way in found.ways}["one agent, best"] == 1.0


def test_the_tasks_that_the_single_agent_solves_are_counted_as_won(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """The team wastes its tokens; the single agent goes right at every third turn, which solves some tasks."""
    calls: dict[object, int] = {}

    def says(request: Any) -> str:
        if request.key[0] < 1000:  # the team's seed is the recipe's; that of a sample is a hash
            return "x"
        nth = calls[request.key[1]] = calls.get(request.key[1], 0) + 1
        return "x" if nth % 3 else "R"

    speak(team, monkeypatch, says)
    env = {**RECIPE["env"], "size": 5, "turns": 3, "walls": 0.3, "max_length": 1}
    found, whole = compare(team, games=10, env=env)
    assert all((row.budget, row.longer, row.samples) == (12, 6, 12) for row in found.tasks), "3 turns, 2 tokens"
    right = [e.task.id for e in whole if "R" in _way(e.task)]
    assert 0 < len(right) < len(whole) == 20
    ways = {way.name: way for way in found.ways}
    assert ways["team"].won.value == 0.0 and ways["team"].gap is None
    for name in ("one agent, longer", "one agent, majority", "one agent, best"):
        assert ways[name].won.value == pytest.approx(len(right) / 20)
        assert ways[name].gap is not None and ways[name].gap.value == pytest.approx(-len(right) / 20)


def _way(task: Task) -> list[str]:
    """The moves that solve the task at once."""
    from interplay import envs

    env = envs.make(task)
    solved = []
    for move in "UDLR":
        trial = env.fork()
        trial.step({"planner": "x"})
        trial.step({"actor": move})
        solved += [move] if not trial.observe() and "not solved" not in trial.state() else []
    return solved


def test_the_majority_is_of_whole_games() -> None:
    def game(state: str, cut: bool = False) -> Episode:
        return Episode("e", Task("t", "sums", 0), 0, {}, final_state=state, truncated=cut)

    assert _majority([game("a"), game("b"), game("b")]).final_state == "b"
    assert _majority([game("a"), game("b")]).final_state == "a", "of equals the first"
    assert _majority([game("a"), game("b", cut=True), game("b", cut=True)]).final_state == "a"
    assert _majority([game("b", cut=True)]).final_state == "b"
    silent = [replace(game("none"), answered=False) for _ in range(3)]
    assert _majority([*silent, game("a")]).final_state == "a", "who gives no answer has no vote"
    assert _majority(silent).final_state == "none"


@pytest.mark.parametrize(
    ("single", "says"),
    [
        ({"options": {}}, r"eval.single.options leaves the roles planner, actor; expected options of plan_path"),
        ({"options": {"team": "single"}, "policy": "q"}, r"eval.single.policy is 'q'; expected a policy"),
        ({"options": {"team": "singel"}}, r"env.team is 'singel'"),
    ],
)
def test_a_single_agent_that_is_none_is_refused(single: dict[str, Any], says: str) -> None:
    plan: RunPlan = resolve(parse({**RECIPE, "eval": {**RECIPE["eval"], "single": single}}))
    with pytest.raises(ConfigError, match=says):
        ablation.check(plan)
