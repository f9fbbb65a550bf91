"""Hostile programs are contained: the host unharmed, the right typed status, and a sandbox that works afterwards."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile import HOSTILE, Hostile

from interplay.execution.sandbox import IsolationLevel, Job, Limits, RunResult, Sandbox, offered

LIMITS = Limits(seconds=4, cpu_seconds=1, memory_mb=128, files_mb=8, processes=12, output_kb=64)


class Host:
    """What there is outside to be hurt: a file, a secret in the environment, servers."""

    def __init__(self, folder: Path) -> None:
        self.canary = folder / "canary.txt"
        self.canary.write_text("alive")
        self.visits = 0
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.unix, self.abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self.path, self.name = str(folder / "socket"), f"canary-{os.getpid()}"
        self.unix.bind(self.path)
        self.abstract.bind("\0" + self.name)
        for server in (self.unix, self.abstract):
            server.listen()
        os.chmod(folder, 0o755)
        os.chmod(self.path, 0o777)
        for server in (self.tcp, self.unix, self.abstract):
            threading.Thread(target=self._serve, args=(server,), daemon=True).start()

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                server.accept()
            except OSError:
                return
            self.visits += 1

    def fill(self, source: str) -> str:
        known = {"canary": str(self.canary), "port": self.tcp.getsockname()[1], "path": self.path, "name": self.name}
        for key, value in known.items():
            source = source.replace(f"{{{key}!r}}", repr(value)).replace(f"{{{key}}}", str(value))
        return source


def family_of(folder: str) -> list[int]:
    """Every process that came from the worker of this folder: forks keep its command line."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and folder in (entry / "cmdline").read_text():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    os.environ["INTERPLAY_CANARY"] = "secret"
    host = Host(tmp_path_factory.mktemp("outside"))
    yield host
    for server in (host.tcp, host.unix, host.abstract):
        server.close()


@pytest.fixture(scope="module", params=["namespaces", pytest.param("landlock", marks=pytest.mark.slow)])
def ended(request: pytest.FixtureRequest, host: Host) -> dict[str, RunResult]:
    """Every hostile program, run through one small pool."""
    level: IsolationLevel = request.param
    if reason := offered(level):
        pytest.skip(f"this machine does not offer {level}: {reason}")
    with Sandbox(4, level) as box:
        box.warm()
        workers = [box._idle.get() for _ in range(4)]
        for worker in workers:
            box._idle.put(worker)
        results = box.map(Job(host.fill(h.source), limits=LIMITS) for h in HOSTILE)
        # The pool is as it was: the same workers, none of their children left, and they run programs.
        assert all(r.stdout == "2\n" for r in box.map([Job("print(1 + 1)")] * 8))
        assert [worker for worker in workers if worker is None or worker.process.poll() is not None] == []
        until = time.monotonic() + 5
        while (left := {w.process.pid: family_of(w.folder) for w in workers if w}) and time.monotonic() < until:
            if all(pids == [pid] for pid, pids in left.items()):
                break
            time.sleep(0.05)
        assert all(pids == [pid] for pid, pids in left.items()), left
        assert [os.listdir(worker.folder) for worker in workers if worker] == [[]] * 4
    return dict(zip((h.name for h in HOSTILE), results, strict=True))


@pytest.mark.parametrize("program", HOSTILE, ids=lambda h: h.name)
def test_hostile(program: Hostile, ended: dict[str, RunResult], host: Host) -> None:
    result = ended[program.name]
    assert "ESCAPED" not in result.stdout, result
    assert result.status in program.ends, result
    assert program.says in result.stdout, result
    assert host.canary.read_text() == "alive" and host.canary.stat().st_nlink == 1
    assert result.seconds < LIMITS.seconds + 3
    assert len(result.stdout) + len(result.stderr) <= LIMITS.output_kb * 1024
    assert host.visits == 0


def test_there_are_many_of_them() -> None:
    assert len({h.name for h in HOSTILE}) == len({h.source for h in HOSTILE}) == len(HOSTILE) >= 60
