"""The same game as an outside program and as a native environment is the same training data, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from interplay import algorithms, envs
from interplay.algorithms import Independent, SamplingPlan, Tree
from interplay.algorithms.credit import mix
from interplay.config import Open, RewardSection
from interplay.envs import Env
from interplay.envs import env as registry
from interplay.envs.programs import process
from interplay.types import Credit, Episode, Observation, ProgramCall, Role, Spoken, Task, Turn

GAMES = {
    "tictactoe": {"size": 3},
    "kuhn": {},
    "connect_four": {"columns": 4, "rows": 3, "line": 3},
    "matrix": {"game": "prisoners_dilemma", "rounds": 3},  # simultaneous moves
    "plan_path": {"size": 4, "turns": 4, "min_length": 4, "max_length": 4},  # rewards of quarters: their sums are exact
    "leduc": {},
}


def as_called(cls: type[Env]) -> type[Env]:
    """The native game, its random numbers drawn as those of an outside program are; its own chance is the task's."""

    class Called(cls):  # type: ignore[misc, valid-type]
        def observe(self) -> dict[Role, Observation]:
            return {
                r: replace(o, call=ProgramCall(only=tuple(map(Spoken, o.legal))), legal=())
                for r, o in super().observe().items()
            }

        def fork(self, seed: int | None = None) -> Env:
            return super().fork()  # type: ignore[no-any-return]

    return Called


def tasks_of(name: str, monkeypatch: pytest.MonkeyPatch, count: int = 2, **how: Any) -> tuple[list[Task], list[Task]]:
    """The same tasks, native and of the program."""
    program = how or {"coroutine": "native_game:team"}
    monkeypatch.setitem(registry.ENVIRONMENTS.classes, "called", as_called(envs.lookup(name)))
    native, outside = [], []
    for index in range(count):
        task = envs.sample_task(name, GAMES[name], "train", index)
        row = {"id": task.id, "env": name, "seed": task.seed, "options": dict(task.data)}
        roles = envs.make(task).roles
        names = list(envs.make(task).reward_names)
        native.append(Task(task.id, "called", task.seed, task.data))
        made = envs.sample_task(
            "program",
            {**program, "reward": "native_game:reward", "roles": list(roles), "rewards": names},
        )
        outside.append(Task(task.id, "program", task.seed, {**made.data, "row": row}))
    return native, outside


def trained(episode: Episode) -> list[tuple[Any, ...]]:
    """Everything of an episode that training reads."""
    assert episode.error is None, episode.error
    turns = [t for t in episode.turns if t.playout is None]
    return [
        (t.id, t.keys, t.text, t.candidate, t.kept, worth(t), [(s.prompt, s.action, s.logprobs) for s in t.samples])
        for t in turns
    ]


def worth(turn: Turn) -> float | None:
    """A program tells all its rewards at the end, with the decisions they are for: only their sum is the same."""
    return None if turn.outlook is None else mix(turn.outlook.rewards, turn.role, RewardSection())


def advantages(name: str, settings: dict[str, Any], episodes: list[Episode]) -> dict[str, Any]:
    algorithm = algorithms.make(Open(name=name, **settings), RewardSection(), 0)
    given = Credit()
    algorithm.credit(episodes, given)
    return dict(given.advantages)


@pytest.mark.parametrize("name", GAMES)
def test_a_game_as_a_program_gives_the_same_prompts_ids_logprobs_and_advantages(
    name: str, monkeypatch: pytest.MonkeyPatch, players: Any
) -> None:
    """GRPO: independent episodes of the same tasks."""
    native, outside = tasks_of(name, monkeypatch)
    a = players.play(native, Independent(4))
    b = players.play(outside, Independent(4))
    assert [trained(e) for e in a] == [trained(e) for e in b]
    assert sum(len(e.turns) for e in a) > 8
    found = advantages("grpo", {"group": 4}, a)
    assert found == advantages("grpo", {"group": 4}, b)
    assert any(found.values())


@pytest.mark.parametrize("name", GAMES)
def test_forks_by_replay_are_forks_by_copy(name: str, monkeypatch: pytest.MonkeyPatch, players: Any) -> None:
    """AT-GRPO: every candidate of every decision and what it is worth, with playouts."""
    native, outside = tasks_of(name, monkeypatch, 1)
    plan = Tree(2, "playout")
    a = players.play(native, plan)
    b = players.play(outside, plan)
    assert [trained(e) for e in a] == [trained(e) for e in b]
    settings = {"candidates": 2, "continuation": "playout"}
    assert advantages("at_grpo", settings, a) == advantages("at_grpo", settings, b)


def http(name: str, function: str = "play", **how: Any) -> dict[str, Any]:
    """Options of a program that plays over HTTP. In one game two threads ask at the same time, and one of them may be
    late on a busy machine. In the other games nobody waits for a second call."""
    return {"function": f"http_game:{function}", "program": {"linger": 1000.0 if name == "matrix" else 2.0, **how}}


@pytest.mark.parametrize("name", GAMES)
def test_a_game_over_http_is_the_native_game(name: str, monkeypatch: pytest.MonkeyPatch, players: Any) -> None:
    """Ids, log-probs and advantages, simultaneous moves included, in isolated processes."""
    native, outside = tasks_of(name, monkeypatch, 1, **http(name))
    a = players.play(native, Independent(3))
    b = players.play(outside, Independent(3))
    assert [trained(e) for e in a] == [trained(e) for e in b]
    assert advantages("grpo", {"group": 3}, a) == advantages("grpo", {"group": 3}, b)


@pytest.mark.parametrize("name", [n if n == "kuhn" else pytest.param(n, marks=pytest.mark.slow) for n in GAMES])
def test_a_tree_over_http_is_the_native_tree(name: str, monkeypatch: pytest.MonkeyPatch, players: Any) -> None:
    native, outside = tasks_of(name, monkeypatch, 1, **http(name))
    a, b = (players.play(tasks, Tree(2, "playout")) for tasks in (native, outside))
    assert [trained(e) for e in a] == [trained(e) for e in b]
    settings = {"candidates": 2, "continuation": "playout"}
    assert advantages("at_grpo", settings, a) == advantages("at_grpo", settings, b)


def test_streamed_replies_are_the_same_training_data(monkeypatch: pytest.MonkeyPatch, players: Any) -> None:
    native, outside = tasks_of("tictactoe", monkeypatch, 1, **http("tictactoe", "play_streaming"))
    a, b = (players.play(tasks, Independent(2)) for tasks in (native, outside))
    assert [trained(e) for e in a] == [trained(e) for e in b]


@pytest.mark.parametrize(
    ("name", "function", "plan"),
    [
        ("matrix", "play", Independent(2)),
        ("tictactoe", "play_streaming", Independent(2)),
        ("kuhn", "play", Tree(2, "playout")),
    ],
)
def test_processes_that_are_kept_give_the_same_training_data(
    name: str, function: str, plan: SamplingPlan, monkeypatch: pytest.MonkeyPatch, players: Any
) -> None:
    """Processes have run other episodes before those that are compared. One game streams, and one is a tree."""
    native, outside = tasks_of(name, monkeypatch, 1, **http(name, function, keep=100, environment={"GAME": name}))
    a, _, b = (players.play(tasks, plan) for tasks in (native, outside, outside))
    assert [trained(e) for e in a] == [trained(e) for e in b]
    *_, worker = process._workers.values()
    # A tree needs a process more if more of its replays overlap than in the first run; that one has had one episode.
    played = sum(100 - place.left for place in worker._waiting)
    assert played > len(worker._waiting) > 0, "processes had several episodes"
    how = ("grpo", {"group": 2}) if name != "kuhn" else ("at_grpo", {"candidates": 2, "continuation": "playout"})
    assert advantages(*how, a) == advantages(*how, b)
