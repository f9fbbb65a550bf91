"""Runs hostile programs and answers at one level, as the current user, and reports whether each was contained.

    python tests/execution/hostile.py LEVEL [--quick | --long] [--kind KIND]... [--slow TIMES]

It prints one line of JSON: for each its kind, its name, how it ended, and what went wrong if it was not contained. A
program is contained if it ended as it must, in time, and did not report that it got what it must not get. An answer is
contained if it earned nothing. For all of them, the host must be unchanged. `--quick` leaves out those that run until a
time limit, and `--long` runs these alone; `--kind` selects some kinds; `--slow` multiplies the time limits, for a
machine that is that much slower. Standard library and `interplay` only, because `as_ordinary` starts it with the
system's interpreter.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hostile_answers import (
    BENCH,
    BENCHES,
    CIRCUITS,
    DUCKDB,
    FORMULAS,
    FUNCTIONS,
    REFERENCE,
    SQLITE,
    TESTS,
    HostileAnswer,
)
from hostile_escapes import ESCAPES
from hostile_programs import PROGRAMS, HostileProgram

if TYPE_CHECKING:
    from interplay.execution.sandbox import Limits

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
ALL_PROGRAMS = [*PROGRAMS, *ESCAPES]
LIMITS = {"seconds": 4, "cpu_seconds": 1, "memory_mb": 128, "files_mb": 8, "processes": 12, "output_kb": 64}
WAITS = 2  # seconds for a program that only waits for its time limit
LATE = 10  # how many times its time limit a program may take: the machine may be busy
ANYBODY = "/usr/bin/python3"  # an interpreter that every user may start; this one may lie in a folder of root's


class Host:
    """What could be attacked outside the jail: a file, a process, a secret in the environment, servers."""

    def __init__(self, folder: Path) -> None:
        os.environ["INTERPLAY_CANARY"] = "secret"
        self.folder, self.canary = folder, folder / "canary.txt"
        self.canary.write_text("alive")
        self.victim = subprocess.Popen(["sleep", "10000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.visits = 0
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.unix, self.abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self.path, self.name = str(folder / "socket"), f"canary-{os.getpid()}"
        self.unix.bind(self.path)
        self.abstract.bind("\0" + self.name)
        os.chmod(folder, 0o755)
        os.chmod(self.path, 0o777)
        for server in (self.tcp, self.unix, self.abstract):
            server.listen()
            threading.Thread(target=self._serve, args=(server,), daemon=True).start()
        self.before = self._state()

    def _serve(self, server: socket.socket) -> None:
        while True:
            try:
                server.accept()
            except OSError:
                return
            self.visits += 1

    def _state(self) -> dict[str, Any]:
        file, parent, pid = os.lstat(self.canary), os.lstat(self.folder), self.victim.pid
        limits = [
            resource.prlimit(pid, kind) for kind in (resource.RLIMIT_CPU, resource.RLIMIT_NOFILE, resource.RLIMIT_AS)
        ]
        return {
            "content": self.canary.read_text(), "file": [file.st_mode, file.st_uid, file.st_nlink, file.st_mtime_ns],
            "attributes": os.listxattr(self.canary), "folder": [parent.st_mode, sorted(os.listdir(self.folder))],
            "limits": limits, "priority": os.getpriority(os.PRIO_PROCESS, pid),
            "affinity": sorted(os.sched_getaffinity(pid)),
            "own priority": os.getpriority(os.PRIO_PROCESS, 0), "visits": self.visits, "ended": self.victim.poll(),
        }  # fmt: skip

    def harm(self) -> str:
        now = self._state()
        return ", ".join(f"{k}: {v} became {now[k]}" for k, v in self.before.items() if now[k] != v)

    def fill(self, source: str, **more: str) -> str:
        known: dict[str, Any] = {"canary": str(self.canary), "port": self.tcp.getsockname()[1], "path": self.path}
        for key, value in {**known, "name": self.name, "victim": self.victim.pid, **more}.items():
            source = source.replace(f"{{{key}!r}}", repr(value)).replace(f"{{{key}}}", str(value))
        return source

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for server in (self.tcp, self.unix, self.abstract):
            server.close()


Line = dict[str, str]


def line(one: HostileProgram | HostileAnswer, outcome: str, wrong: str) -> Line:
    return {"kind": one.kind, "name": one.name, "outcome": outcome, "wrong": wrong}


def limits_of(program: HostileProgram, slow: float = 1.0) -> Limits:
    """A program that must end for another reason than time has ten times as long, because other programs may use all
    processors."""
    from interplay.execution.sandbox import Limits

    seconds = LIMITS["seconds"] * (1 if "timeout" in program.ends else LATE)
    seconds = WAITS if program.kind == "waiting" else seconds
    times = {"seconds": slow * seconds, "cpu_seconds": slow * LIMITS["cpu_seconds"]}
    return Limits(**{**LIMITS, **times})  # type: ignore[arg-type]


def run_programs(level: Any, host: Host, programs: Iterable[HostileProgram], slow: float) -> Iterable[Line]:
    """Runs programs in one small pool, which must be unchanged afterwards."""
    from interplay.execution.sandbox import Job, Sandbox

    programs = list(programs)
    with Sandbox(4, level) as box:
        box.warm()
        workers = [worker for worker in list(box.pool.idle.queue) if worker is not None]
        results = box.map(Job(host.fill(p.source), limits=limits_of(p, slow)) for p in programs)
        for program, result in zip(programs, results, strict=True):
            wrong = [
                *(["it got what it must not get"] if "ESCAPED" in result.stdout else []),
                *([f"it ended with {result.status}"] if result.status not in program.ends else []),
                *([f"it did not say {program.says[:20]}"] if program.says not in result.stdout else []),
                *([f"it took {result.seconds:.1f} s"] if result.seconds > LATE * slow * LIMITS["seconds"] else []),
                *(["it said too much"] if len(result.output) + len(result.errors) > LIMITS["output_kb"] * 1024 else []),
            ]
            said = f": {result.stdout[-200:]} {result.stderr[-300:]}" if wrong else ""
            yield line(program, result.status, ", ".join(wrong) + said)
        works = all(r.stdout == "2\n" for r in box.map([Job("print(1 + 1)")] * 8))
        replaced = [w for w in workers if w.process.poll() is not None]
        wrong = _left(workers) or ("" if works else "the pool does not work") or ("a worker died" if replaced else "")
        counted = ", ".join(sorted({w.accounting for w in workers}))
        yield {"kind": "afterwards", "name": "the pool", "outcome": "works", "wrong": wrong, "counted": counted}


def _left(workers: list[Any]) -> str:
    """What programs left behind: processes under a worker besides its own two, files in its folder."""
    until = time.monotonic() + 60
    while True:
        extra = [pid for w in workers for pid in descendants(w.process.pid)[1:]]
        files = [name for w in workers for name in os.listdir(w.folder)]
        if (not extra and not files) or time.monotonic() > until:
            return f"{len(extra)} processes and {files} are left" if extra or files else ""
        time.sleep(0.05)


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = list(parents.get(pid, ()))
    for child in found:
        found += parents.get(child, ())
    return found


def run_answers(level: Any, host: Host, wanted: Callable[[HostileAnswer], bool], slow: float) -> Iterable[Line]:
    """Each must earn nothing, and later questions must be answered as before.

    Those that run until a limit on time come last, with less time, because they would use all of it."""
    from interplay.execution import database, services, verilog
    from interplay.execution.programs import Bench
    from interplay.rewards import algebra
    from interplay.rewards.design import measure

    services.WORKERS = 1  # a process that has loaded sympy takes seconds to start
    bench, hasty = (Bench(level, seconds=seconds, memory_mb=128.0) for seconds in (slow, slow / 2))
    tasks: list[tuple[HostileAnswer, Callable[[], bool]]] = []

    def add(answers: Iterable[HostileAnswer], earned: Callable[[str], bool]) -> None:
        tasks.extend((a, partial(earned, a.text)) for a in answers if wanted(a))

    add((f for f in FUNCTIONS if not f.long), lambda text: bench.calls(text, TESTS, "add").share > 0)
    add((f for f in FUNCTIONS if f.long), lambda text: hasty.calls(text, TESTS, "add").share > 0)
    if any(map(wanted, SQLITE)):
        add(SQLITE, _query_task(host, _shop()))
    if any(map(wanted, DUCKDB)) and importlib.util.find_spec("duckdb") is not None:
        add(DUCKDB, _query_task(host, _duck_shop()))
    if importlib.util.find_spec("math_verify") is not None:
        add(FORMULAS, lambda text: any(algebra.same(gold, host.fill(text)) for gold in ("12", "n+1")))
    if shutil.which("iverilog", path="/usr/bin:/bin"):
        add(CIRCUITS, lambda text: measure(host.fill(text), REFERENCE, BENCH, level).passed)
        add(BENCHES, lambda text: verilog.judged(host.fill(text), REFERENCE, level) is True)
    with ThreadPoolExecutor(4) as pool:
        for some in ([t for t in tasks if not t[0].long], [t for t in tasks if t[0].long]):
            for (one, _), wrong in zip(some, pool.map(lambda one: _earned(one[1]), some), strict=True):
                yield line(one, "nothing earned", wrong)
            database.SECONDS = 2 * slow
            algebra.LIMITS = replace(algebra.LIMITS, cpu_seconds=slow)
            verilog.LIMITS = replace(verilog.LIMITS, cpu_seconds=3 * slow)
    sound = bench.calls("def add(a, b): return a + b", TESTS, "add").solved
    yield {"kind": "afterwards", "name": "a right program", "outcome": "passes", "wrong": "" if sound else "it fails"}


def _earned(task: Callable[[], bool]) -> str:
    began = time.monotonic()
    try:
        earned = task()
    except BaseException as error:
        return f"it broke the machinery: {type(error).__name__}: {error}"
    late = time.monotonic() - began > 120
    return "it earned something" if earned else "it took more than two minutes" if late else ""


def _query_task(host: Host, data: bytes) -> Callable[[str], bool]:
    """Whether a query returned anything, or changed what the next one finds."""
    from interplay.execution import database

    count = "SELECT count(*), sum(age) FROM customer"
    before = database.run(data, count)
    assert before.rows, before

    def earned(text: str) -> bool:
        found = database.run(data, host.fill(text, database=database._name(data)))
        return not found.error or bool(found.rows) or database.run(data, count) != before

    return earned


def _shop() -> bytes:
    from interplay.execution.database import build

    tables = "CREATE TABLE customer (id INTEGER, name TEXT, town TEXT, age INTEGER);"
    tables += "CREATE TABLE purchase (id INTEGER, n INTEGER);"
    return build(
        tables, {"customer": [(i, f"c{i}", "x", 20 + i) for i in range(20)], "purchase": [(i, i) for i in range(40)]}
    )


def _duck_shop() -> bytes:
    import duckdb

    with tempfile.TemporaryDirectory() as folder:
        with duckdb.connect(f"{folder}/shop") as db:
            db.execute("CREATE TABLE customer AS SELECT range AS id, 20 + range AS age FROM range(20)")
            db.execute("CREATE TABLE purchase AS SELECT range AS id FROM range(40)")
        return Path(f"{folder}/shop").read_bytes()


def report(level: Any, long: bool | None, kinds: list[str], slow: float) -> list[Line]:
    def wanted(one: HostileProgram | HostileAnswer) -> bool:
        return long in (None, one.long) and (not kinds or one.kind in kinds)

    os.environ["INTERPLAY_ISOLATION"] = level
    with tempfile.TemporaryDirectory() as folder:
        host = Host(Path(folder))
        try:
            lines = [*run_programs(level, host, filter(wanted, ALL_PROGRAMS), slow)]
            lines += run_answers(level, host, wanted, slow)
            lines.append({"kind": "afterwards", "name": "the host", "outcome": "unharmed", "wrong": host.harm()})
        finally:
            host.close()
    return lines


# -- as another user --------------------------------------------------------------------------------------------------


def as_myself(level: str, *options: str) -> list[Line]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(HERE)])}
    return _report_of([sys.executable, str(HERE / "hostile.py"), level, *options], env)


def as_ordinary(level: str, *options: str) -> list[Line]:
    """Run as the user nobody if we are root, with a copy of the package that nobody may read."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(SOURCE / "interplay", Path(folder) / "interplay", ignore=shutil.ignore_patterns("__pycache__"))
        for file in HERE.glob("hostile*.py"):
            shutil.copy(file, folder)
        packages = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join([folder, *packages])}
        command = [ANYBODY, "-P", f"{folder}/hostile.py", level, *options]
        return _report_of(command, env, user=65534, group=65534, extra_groups=[])


def _report_of(command: list[str], env: dict[str, str], **who: Any) -> list[Line]:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, start_new_session=True, **who)
    if done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr[-2000:]}")
    lines: list[Line] = json.loads(done.stdout.splitlines()[-1])
    return lines


def ordinary_reason() -> str:
    """Empty if this process can become an ordinary user, else the reason."""
    if os.geteuid() != 0:
        return "this process is not root and cannot become somebody else"
    version = "import sys; sys.exit(sys.version_info < (3, 11))"
    if subprocess.run([ANYBODY, "-c", version], check=False, capture_output=True).returncode:
        return f"{ANYBODY} is no Python 3.11 or later"
    return ""


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("level")
    parser.add_argument("--quick", dest="long", action="store_false", default=None)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--kind", action="append", default=[])
    parser.add_argument("--slow", type=float, default=1.0)
    given = parser.parse_args()
    print(json.dumps(report(given.level, given.long, given.kind, given.slow)))
