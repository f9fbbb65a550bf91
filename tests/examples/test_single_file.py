"""`examples/single_file.py`, run as a reader would run it: it is short, needs nothing else, and learns."""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "single_file.py"
STEP = re.compile(r"step +(\d+)  beats its start (\d+) of (\d+)  entropy (\S+)  gap (\S+)  \S+ s")
SEAT = re.compile(r"as ([XO]): wins (\S+)% illegal (\S+)%")


def play(*options: str) -> tuple[list[re.Match[str]], dict[str, dict[str, tuple[float, float]]]]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options],
        capture_output=True,
        text=True,
        timeout=1200,  # only so that it cannot hang for good
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    return told(done.stdout)


def told(output: str) -> tuple[list[re.Match[str]], dict[str, dict[str, tuple[float, float]]]]:
    """The lines of the steps, and for each evaluation the shares of games won and forfeited from each seat."""
    lines = output.splitlines()
    steps = [match for match in map(STEP.fullmatch, lines) if match]
    scores = {
        line.split()[0]: {role: (float(wins) / 100, float(bad) / 100) for role, wins, bad in SEAT.findall(line)}
        for line in lines
        if SEAT.search(line)
    }
    assert len(steps) + len(scores) == len(lines), output
    return steps, scores


@pytest.fixture
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("examples/single_file.py")


def test_it_is_short_and_stands_alone() -> None:
    source = SCRIPT.read_text()
    assert len(source.splitlines()) <= 270
    imported: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module and node.level == 0
            imported.add(node.module.split(".")[0])
    assert imported - set(sys.stdlib_module_names) == {"torch", "transformers"}


def test_the_walk_is_told_in_order() -> None:
    names = [node.name for node in ast.parse(SCRIPT.read_text()).body if isinstance(node, ast.FunctionDef)]
    walk = ["tasks", "rollout", "reward", "score", "credit", "batch", "step", "publish", "log"]
    assert names[: len(walk)] == walk


def test_it_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """In this process, which has loaded PyTorch already; the slow test runs it as a program."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--steps", "3", "--games", "8", "--seed", "0"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    steps, scores = told(capsys.readouterr().out)
    assert [int(match[1]) for match in steps] == [1, 2, 3]
    assert all(int(match[3]) == 4 and int(match[2]) <= 4 for match in steps)
    assert all(float(match[5]) < 1e-4 for match in steps)
    assert list(scores) == ["untrained", "before", "after"]
    for role in "XO":
        assert scores["untrained"][role][1] > 0.9  # random weights name a free cell by luck alone
        assert scores["before"][role][1] < 0.4  # measured over seeds: 0.16 to 0.22 of games are forfeited


def test_rules_and_forks(script: ModuleType) -> None:
    env = script.TicTacToe()
    for move in "1425":
        env.step(move)
    assert env.observe() == "AB3de6789X"
    wins, loses, breaks = env.fork(), env.fork(), env.fork()
    wins.step("3")
    assert wins.over and (wins.outcome("X"), wins.outcome("O")) == (1.0, -1.0)
    for move in "96":
        loses.step(move)
    assert loses.over and (loses.outcome("X"), loses.outcome("O")) == (-1.0, 1.0)
    breaks.step("4")
    assert breaks.over and breaks.illegal and (breaks.outcome("X"), breaks.outcome("O")) == (-2.0, 1.0)
    assert env.observe() == "AB3de6789X" and not env.over  # a fork shares nothing
    draw = script.TicTacToe()
    for move in "123547698":
        assert not draw.over
        draw.step(move)
    assert draw.over and draw.winner is None and draw.outcome("X") == draw.outcome("O") == 0.0


def test_credit_compares_within_a_decision_and_pools_equal_moves(script: ModuleType) -> None:
    def turn(action: int, outlook: float) -> Any:
        game = script.Game(script.TicTacToe(), {})
        return script.Turn("X", (0,), action, 0.0, game, outlook)

    groups = [[turn(0, 1.0), turn(0, -1.0), turn(1, 1.0), turn(2, 1.0)], [turn(3, -1.0), turn(4, -1.0)]]
    script.credit(groups)
    assert [t.advantage for t in groups[0]] == [-0.5, -0.5, 0.5, 0.5]
    assert [t.advantage for t in groups[1]] == [0.0, 0.0]  # all failed alike: nothing to learn


def test_a_stale_sampler_is_caught(script: ModuleType) -> None:
    """Without publish the sampler has the old weights; the next step must refuse to train on its replies."""
    torch = script.torch
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = script.LlamaConfig(vocab_size=len(script.VOCABULARY), initializer_range=0.1, **shape)
    policy = script.Policy(script.LlamaForCausalLM(config))
    start = script.Policy(script.copy.deepcopy(policy.model))
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=1e-2)

    def once() -> float:
        groups = script.rollout(script.tasks(8, policy, start), policy, 4)
        script.reward(groups)
        script.score(groups, start)
        script.credit(groups)
        return script.step(policy, optimizer, script.batch(groups))

    assert once() < 1e-4
    script.publish(policy)
    assert once() < 1e-4
    with pytest.raises(SystemExit, match="differ from the sampler's"):
        once()


@pytest.mark.long
@pytest.mark.slow
def test_it_learns_to_win() -> None:
    steps, scores = play("--steps", "60", "--games", "48", "--seed", "0")
    assert len(steps) == 60 and all(float(match[5]) < 1e-4 for match in steps)
    # Measured over three seeds: X from 0.44-0.46 to 0.84-0.94, O from 0.22-0.24 to 0.61-0.69. 500 games per seat: one
    # standard error is 0.02, so these margins are ten of them, and half of what is learned.
    assert scores["after"]["X"][0] > scores["before"]["X"][0] + 0.2
    assert scores["after"]["O"][0] > scores["before"]["O"][0] + 0.2
    assert all(scores["after"][role][1] < 0.05 for role in "XO")
