"""Control groups: what is written to them, what is read from them, and that the kernel counts if they are available."""

from __future__ import annotations

from pathlib import Path

import pytest

from interplay.execution.jail import cgroup
from interplay.execution.jail.cgroup import Cgroup, make_cgroup
from interplay.execution.sandbox import Job, Limits, Sandbox

FILES = {
    "cgroup.procs": "", "memory.max": "", "memory.oom.group": "", "pids.max": "", "memory.swap.max": "",
    "memory.events": "low 0\nmax 0\noom 0\noom_kill 3\n", "pids.events": "max 1\n", "cgroup.events": "populated 0\n",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Plain files with the names of a control group's files."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_limits_are_those_of_the_job_and_earlier_jobs_are_forgotten(folder: Path) -> None:
    made = Cgroup(str(folder))
    made.limit(memory_mb=128, processes=5)
    assert (folder / "memory.max").read_text() == str((128 + 32) << 20), "process 1 and the kernel's share besides"
    assert (folder / "pids.max").read_text() == "7" and (folder / "memory.swap.max").read_text() == "0"
    assert made.excess() == ""
    (folder / "pids.events").write_text("max 2\n")
    assert made.excess() == "processes"
    (folder / "memory.events").write_text("low 0\nmax 9\noom 1\noom_kill 4\n")
    assert made.excess() == "memory"
    made.limit(memory_mb=128, processes=5)
    assert made.excess() == ""


def test_a_group_without_kill_says_so(folder: Path) -> None:
    """Before Linux 5.14 the supervisor ends the processes one by one."""
    assert Cgroup(str(folder)).kill(0.1) is False


def test_a_limit_that_somebody_set_for_us_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups above a limited one are not tried, even if this user could divide them."""
    here = tmp_path / "a" / "b"
    here.mkdir(parents=True)
    (here / "memory.max").write_text("1000000\n")
    tried: list[str] = []
    monkeypatch.setattr(cgroup, "_own", lambda: (str(tmp_path), str(here)))
    monkeypatch.setattr(cgroup, "_divided", lambda path, top: tried.append(path))
    assert make_cgroup()[0] is None and tried == [str(here)]
    (here / "memory.max").write_text("max\n")
    tried.clear()
    assert make_cgroup()[0] is None and tried == [str(here), str(here.parent), str(tmp_path)]


def test_where_there_are_none_the_reason_is_said_and_processes_are_looked_at() -> None:
    made, reason = make_cgroup()
    if made is not None:
        made.remove()
        pytest.skip("this machine has control groups for us")
    assert "cgroups v2 are not mounted" in reason or "no control group above this process" in reason
    with Sandbox(1).warm() as box:
        assert [w.accounting for w in box.pool.idle.queue if w] == ["looks"]


def test_the_kernel_counts_the_memory_of_sockets_where_there_are_control_groups() -> None:
    made, reason = make_cgroup()
    if made is None:
        pytest.skip(f"no control groups for us: {reason}")
    made.remove()
    hog = (
        "import socket\nkeep = []\nwhile True:\n    keep += socket.socketpair()\n    keep[-1].setblocking(False)\n"
        "    try:\n        while True: keep[-1].send(bytes(1 << 15))\n    except BlockingIOError: pass"
    )
    with Sandbox(1).warm() as box:
        assert [w.accounting for w in box.pool.idle.queue if w] == ["cgroup"]
        assert box.run(Job(hog, limits=Limits(seconds=60, memory_mb=16))).status == "memory"
