"""Control groups: what is written to them, what is read from them, and that the kernel counts if they are available.

The last tests need a real control group. `in_vm.sh` runs them on a machine that has none for us.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from interplay.execution import worker
from interplay.execution.jail import cgroup
from interplay.execution.jail.cgroup import OVERHEAD, Cgroup, find_place, sweep
from interplay.execution.job import RunStatus
from interplay.execution.sandbox import Job, Limits, Sandbox, offered
from interplay.execution.worker import IsolationLevel, SandboxWorker

FILES = {
    "cgroup.procs": "", "memory.max": "", "memory.oom.group": "", "pids.max": "", "memory.swap.max": "",
    "memory.events": "low 0\nmax 0\noom 0\noom_kill 3\n", "pids.events": "max 1\n", "cgroup.events": "populated 0\n",
    "pids.current": "3\n",
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
    assert made.excess() == "" and made.tasks() == 3
    (folder / "pids.events").write_text("max 2\n")
    assert made.excess() == "processes"
    (folder / "memory.events").write_text("low 0\nmax 9\noom 1\noom_kill 4\n")
    assert made.excess() == "memory"
    made.limit(memory_mb=128, processes=5)
    assert made.excess() == ""


def test_a_group_without_kill_says_so(folder: Path) -> None:
    """Before Linux 5.14 the supervisor ends the processes one by one."""
    assert Cgroup(str(folder)).kill(0.1) is False


def test_a_group_is_swept_only_if_all_who_opened_it_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed keeper leaves its group behind; its lock ends with it."""
    for name in ("interplay-used", "interplay-left", "interplay-new", "other"):
        (tmp_path / name).mkdir()
        for file, text in FILES.items():
            (tmp_path / name / file).write_text(text)
        if name != "interplay-new":
            os.utime(tmp_path / name, (0, 0))
    rmdir = os.rmdir

    def remove(path: str) -> None:
        """Plain files must be removed first; those of a control group go with it."""
        for file in FILES:
            os.unlink(f"{path}/{file}")
        rmdir(path)

    monkeypatch.setattr(cgroup.os, "rmdir", remove)
    used = Cgroup(str(tmp_path / "interplay-used"))
    sweep(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["interplay-new", "interplay-used", "other"]
    used.remove()
    assert not used.files and sorted(os.listdir(tmp_path)) == ["interplay-new", "other"]


def test_a_group_without_the_controllers_keeps_no_file_open(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("")
    with pytest.raises(FileNotFoundError):
        Cgroup(str(tmp_path))
    opened = []
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # other threads of this process close files too
            opened.append(os.readlink(file))
    assert not [name for name in opened if name.startswith(str(tmp_path))]


def test_a_limit_that_somebody_set_for_us_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups above a limited one are not tried, even if this user could divide them."""
    here = tmp_path / "a" / "b"
    here.mkdir(parents=True)
    (here / "memory.max").write_text("1000000\n")
    tried: list[str] = []
    monkeypatch.setattr(cgroup, "_own", lambda: (str(tmp_path), str(here)))
    monkeypatch.setattr(cgroup, "_divides", lambda path, top: tried.append(path))
    assert find_place()[0] == "" and tried == [str(here)]
    (here / "memory.max").write_text("max\n")
    tried.clear()
    assert find_place()[0] == "" and tried == [str(here), str(here.parent), str(tmp_path)]


def test_where_there_are_none_the_reason_is_said_and_processes_are_looked_at() -> None:
    place, reason = find_place()
    if place:
        pytest.skip("this machine has control groups for us")
    assert "cgroups v2 are not mounted" in reason or "no control group above this process" in reason
    with Sandbox(1).warm() as box:
        assert worker_of(box).accounting == "looks"


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_a_zygote_ends_with_its_keeper(level: IsolationLevel) -> None:
    """Otherwise it keeps the folder and the control group locked. For root, it changes its user on the way."""
    if reason := offered(level):
        pytest.skip(reason)
    box = Sandbox(1, level).warm()
    keeper = worker_of(box).process
    (zygote,) = Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text().split()
    keeper.kill()
    keeper.wait()
    until = time.monotonic() + 60
    while runs(zygote) and time.monotonic() < until:
        time.sleep(0.01)
    assert not runs(zygote)
    box.close()


@pytest.mark.parametrize("level", ["namespaces", "landlock"])
def test_a_zygote_that_starts_too_slowly_ends_with_its_keeper(
    level: IsolationLevel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow machine a service can take longer to import than a worker may take to start. What imports must not go
    on without its keeper, because it would make the next start slower too."""
    if reason := offered(level):
        pytest.skip(reason)
    os.chmod(tmp_path, 0o755)
    (tmp_path / "slow_service.py").write_text("import time\n\ndef prepare():\n    time.sleep(100)\n")
    monkeypatch.setattr(worker, "STARTING", 3.0)
    monkeypatch.setattr(worker, "LEAVING", 0.5)
    with pytest.raises(TimeoutError):
        SandboxWorker(level, "slow_service", [str(tmp_path)])
    until = time.monotonic() + 30
    while (left := commands(str(tmp_path))) and time.monotonic() < until:
        time.sleep(0.01)
    assert left == []


def commands(text: str) -> list[str]:
    """The numbers of the processes whose command contains the text."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and text in (entry / "cmdline").read_text():
                found.append(entry.name)
    return found


def runs(pid: str) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def worker_of(box: Sandbox) -> SandboxWorker:
    (worker,) = box.pool.idle.queue
    assert worker is not None
    return worker


# -- with the kernel's own groups -------------------------------------------------------------------------------------

LIMITS = Limits(seconds=120, cpu_seconds=60, memory_mb=64, files_mb=8, processes=12)
CHILDREN = """
import os, socket, time
def child():
    {child}
for _ in range(8):
    if os.fork() == 0:
        child()
        os._exit(0)
{then}
"""
BUFFERS = """keep = []
    for _ in range(100):
        keep += socket.socketpair()
        keep[-1].setblocking(False)
        try:
            while keep[-1].send(bytes(1 << 15)): pass
        except BlockingIOError: pass
    time.sleep(99)"""
DEAF = """
import signal
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}: signal.signal(number, signal.SIG_IGN)
while True: pass
"""
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(999)
    os._exit(0)
"""
TAKE = "x = bytearray(30 << 20); time.sleep(20)"
HOSTILE: dict[str, tuple[str, RunStatus]] = {
    "memory of one process": ("x = []\nwhile True: x.append(bytes(1 << 20))", "memory"),
    "memory of many processes": (CHILDREN.format(child=TAKE, then="time.sleep(99)"), "memory"),
    "memory of children": (CHILDREN.format(child=TAKE, then="for _ in range(8): os.wait()\nprint(1)"), "memory"),
    "buffers of sockets": (CHILDREN.format(child=BUFFERS, then="time.sleep(99)"), "memory"),
    "processes": ("import os\nwhile True: os.fork()", "processes"),
    "threads": (
        "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()",
        "processes",
    ),
    "files": ("for n in range(99): open(str(n), 'wb').write(bytes(1 << 20))", "disk"),
    "much, but allowed": ("open('f', 'wb').write(bytes(7 << 20))\nx = bytearray(40 << 20)", "ok"),
    "no reaction to signals": (DEAF, "timeout"),
    "a daemon": (DAEMON, "ok"),
}


def groups(place: str) -> set[Path]:
    return set(Path(place).glob("interplay-*"))


@pytest.fixture(scope="module")
def place() -> str:
    found, reason = find_place()
    if not found:
        pytest.skip(f"no control groups for us: {reason}")
    return found


@pytest.fixture(scope="module", params=["namespaces", "landlock"])
def walled(request: pytest.FixtureRequest, place: str) -> Iterator[tuple[Sandbox, Path]]:
    """A sandbox with one worker, and the control group of this worker, which is removed at the end."""
    if reason := offered(request.param):
        pytest.skip(reason)
    before = groups(place)
    with Sandbox(1, request.param).warm() as box:
        assert worker_of(box).accounting == "cgroup"
        (group,) = groups(place) - before
        yield box, group
    assert groups(place) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_the_kernel_enforces_the_limits_and_nothing_is_left(walled: tuple[Sandbox, Path], name: str) -> None:
    box, group = walled
    worker, (source, status) = worker_of(box), HOSTILE[name]
    seconds = 5 if status == "timeout" else LIMITS.seconds
    limits = Limits(seconds, 60, LIMITS.memory_mb, LIMITS.files_mb, LIMITS.processes)
    result = box.run(Job(source, limits=limits))
    assert (result.status, result.lost, result.stdout) == (status, False, "")
    assert (group / "cgroup.procs").read_text() == ""
    in_memory = LIMITS.files_mb if box.level == "namespaces" else 0
    assert int((group / "memory.max").read_text()) == (LIMITS.memory_mb + in_memory + OVERHEAD) * (1 << 20)
    assert int((group / "pids.max").read_text()) == LIMITS.processes + 2
    assert box.run(Job("print(1)")).stdout == "1\n" and worker_of(box) is worker


@pytest.mark.slow
def test_the_group_of_a_killed_keeper_is_removed_by_the_next_one(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = groups(place)
    box = Sandbox(1).warm()
    (left,) = groups(place) - before
    worker = worker_of(box)
    monkeypatch.setattr(cgroup, "OLD", -1.0)
    sweep(place)
    assert left.exists(), "its worker runs"
    worker.process.kill()
    worker.process.wait()
    until = time.monotonic() + 60
    while left.exists() and time.monotonic() < until:  # the zygote ends with its keeper, but not at once
        sweep(place)
    assert groups(place) == before
    box.close()
