"""Control groups of outside programs: each run has its own, with the limits of the recipe.

The last tests need a real control group. `tests/execution/in_vm.sh` runs them on a machine that has none for us; with
`--noconftest`, which they do not need, they import no torch there.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from interplay import envs
from interplay.envs.programs import process
from interplay.envs.programs.groups import RunGroups
from interplay.errors import EnvError
from interplay.execution.jail import cgroup
from interplay.types import Task

TEAMS = Path(__file__).parent / "teams"
NAMES = (
    "cgroup.procs", "memory.max", "memory.oom.group", "pids.max", "memory.events", "pids.events", "pids.current",
    "cgroup.events",
)  # fmt: skip


@pytest.fixture(autouse=True)
def teams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TEAMS))


SETTINGS = {"memory_mb": 100.0, "disk_mb": 20.0, "processes": 7}


@pytest.mark.parametrize("walls", [True, False])
def test_a_run_gets_the_limits_of_the_recipe(walls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a run is in memory if there are walls. Threads are not limited like processes, because libraries
    start one for each core."""
    for name in NAMES:
        (tmp_path / name).write_text("")
    monkeypatch.setattr(cgroup, "make_cgroup", lambda place: cgroup.Cgroup(str(tmp_path)))
    made = RunGroups({**SETTINGS, "walls": walls}, cgroup)
    assert made.new() is None
    made.place = str(tmp_path)
    group = made.new()
    assert list(made) == [group], "every later run closes its files"
    assert int((tmp_path / "memory.max").read_text()) == (100 + 20 * walls + cgroup.OVERHEAD) * (1 << 20)
    assert int((tmp_path / "pids.max").read_text()) >= 7 + 1024


def test_runs_go_on_if_no_more_groups_can_be_made(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = RunGroups({**SETTINGS, "walls": True}, cgroup)
    made.place = str(tmp_path / "gone")
    assert made.new() is None and not made.place
    assert "no control group could be made" in capfd.readouterr().err


# -- with real control groups of the kernel ---------------------------------------------------------------------------


@pytest.fixture
def place() -> str:
    found, reason = cgroup.find_place()
    if not found:
        pytest.skip(f"no control groups for us: {reason}")
    return found


def task_of(function: str, **how: Any) -> Task:
    options = {"reward": "commands:length", "roles": ["planner"], "function": f"greedy:{function}", "program": how}
    return envs.sample_task("program", options)


def groups(place: str) -> set[str]:
    return {name for name in os.listdir(place) if name.startswith("interplay-")}


def result(task: Task) -> Any:
    env: Any = envs.make(task)
    assert env.observe() == {}, "it asks nothing"
    return env._run.result


@pytest.mark.slow
@pytest.mark.parametrize("walls", ["sandbox", "none"])
def test_the_kernel_limits_a_run_and_nothing_of_it_is_left(place: str, walls: str) -> None:
    before = groups(place)
    how = {"walls": walls, "memory_mb": 150.0, "disk_mb": 1.0, "seconds": 300.0}
    with pytest.raises(EnvError, match=r"LimitExceeded .* it used more than env.program.memory_mb \(150\)"):
        result(task_of("fills_sockets", **how))
    assert 0 < result(task_of("starts_threads", **how)) <= 64 + 1024
    daemon = result(task_of("leaves_a_daemon", **how))
    until = time.monotonic() + 60
    while walls == "none" and runs(daemon) and time.monotonic() < until:  # in a namespace, its number says nothing here
        time.sleep(0.05)
    assert walls == "sandbox" or not runs(daemon)
    for worker in process._workers.values():  # one for each function; each of them keeps a process for its next run
        worker.close()
    assert groups(place) == before, "a group can be removed only if it has no process"


def runs(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
