"""The ceiling of a player that sees nothing is exact, and a continued run counts all of its time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from interplay import envs
from interplay.envs.env import sample_task
from interplay.envs.games.plan_path import PlanPath

OPTIONS = {"size": 3, "walls": 0.2, "min_length": 1, "team": "single", "brief": True}


@pytest.fixture(scope="module")
def perception(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("benchmarks/perception.py")


def test_the_share_that_a_blind_player_solves_is_what_play_shows(perception: ModuleType) -> None:
    p = {"U": 0.4, "D": 0.1, "L": 0.3, "R": 0.2}
    rng, solved, games = random.Random(0), 0, 2000
    for index in range(games):
        env = envs.make(sample_task("plan_path", OPTIONS, "test", index))
        assert isinstance(env, PlanPath)
        while seen := env.observe():
            legal = seen["actor"].legal
            env.step({"actor": rng.choices(legal, [p[m] for m in legal])[0]})
        solved += env.solved
    exact = perception.solved_blind(perception.boards(3, 2, "test"), np.array(list(p.values())))
    assert abs(solved / games - exact) < 4 * (exact * (1 - exact) / games) ** 0.5


def test_no_fixed_chances_beat_the_ceiling(perception: ModuleType) -> None:
    boards = perception.boards(3, 2, "test")
    value, _ = perception.ceiling(boards)
    dice = np.random.default_rng(0)
    found = [perception.solved_blind(boards, dice.dirichlet(np.ones(4))) for _ in range(40)]
    assert max(found) <= value + 1e-4 < 1.0


@pytest.mark.parametrize(
    ("task", "shares"), [("hearing", [25.0]), ("spotter_pilot", [25.0, 25.0]), ("fusion", [25.0, 25.0])]
)
def test_the_other_ceilings_are_a_quarter(perception: ModuleType, task: str, shares: list[float]) -> None:
    table = perception.Table()
    perception.ceilings(table, task, {"length": 1})
    assert [line.value for line in table.lines] == shares


def test_a_continued_run_counts_the_seconds_of_its_earlier_parts(perception: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "seconds.json").write_text("[2.0, 5.0]")
    watch = perception.Stopwatch(tmp_path, "cpu")
    assert watch.imitation == 2.0 and watch.total >= 5.0
    watch.keep()
    assert perception.Stopwatch(tmp_path, "cpu").total >= 5.0


def test_means_over_runs_have_students_interval(
    perception: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for number, value in enumerate((89.0, 90.0, 91.0)):
        files.append(tmp_path / f"{number}.json")
        more = [{"what": "only here", "value": 1.0}] if number == 0 else []
        files[-1].write_text(json.dumps([{"what": "solved", "value": value}, *more]))
    perception.show_means(files)
    printed = capsys.readouterr().out
    assert "90.0 ± 2.5  (89.0, 90.0, 91.0)" in printed and "only here" not in printed
