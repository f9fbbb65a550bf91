"""Services: questions to libraries, each answered by its own isolated process."""

from __future__ import annotations

import resource
import socket
import sys
import time
from pathlib import Path

import pytest

from interplay.execution import database
from interplay.execution.job import Limits, RunResult
from interplay.execution.services import LibraryQuestion, LibraryService, packages


def test_the_cpu_time_of_questions_is_counted_when_a_service_has_ended() -> None:
    """Otherwise no benchmark would see their cost."""
    data = database.build("CREATE TABLE t (a INTEGER)", {})

    def used(query: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        service = LibraryService("interplay.execution.sqlite")
        asked = {"file": "d", "query": query, "rows": 1, "steps": database.STEPS}
        service.ask(LibraryQuestion(asked, {"d": data}, Limits(seconds=50, cpu_seconds=2, memory_mb=1024)))
        service.pool.close()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    text = "replace(hex(zeroblob(15000)), '0', '{}')"
    long = f"SELECT length(trim({text.format('a')}, {text.format('b')} || 'a'))"  # half a minute, in one step
    assert used(long) - used("SELECT 1") > 1, "it has used the two seconds that it may"


LENT = """
import json

def prepare():
    import lent

def probe():
    return 1, 2

def answer(text):
    import lent
    return json.dumps(lent.next_one(json.loads(text))).encode()
"""


def test_packages_in_a_folder_of_pythonpath_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install --target` makes such a folder. A folder that is in sys.path but not in PYTHONPATH cannot be read."""
    (tmp_path / "lent.py").write_text("def next_one(n):\n    return n + 1\n")
    (tmp_path / "adds_one.py").write_text(LENT)
    (tmp_path / "other").mkdir()
    tmp_path.chmod(0o755)  # as pip makes them
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "other"), *sys.path])
    assert str(tmp_path) in packages() and str(tmp_path / "other") not in packages()
    service = LibraryService("adds_one")
    assert service.ask(LibraryQuestion(41)).output == b"42"
    service.pool.close()


PRIES = """
import json, os, socket, time

def prepare():
    pass

def probe():
    return ["nothing", ""], "done"

def answer(text):
    what, where = json.loads(text)
    if what == "variables":
        return json.dumps(dict(os.environ)).encode()
    if what == "read":
        open(where).read()
    elif what == "write":
        open(where, "w").write("x")
    elif what == "connect":
        socket.create_connection(("127.0.0.1", int(where)), 5)
    elif what == "wait":
        time.sleep(600)
    return b'"done"'
"""


def test_a_library_that_is_taken_over_reaches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query or a formula may use a hole of its library, and then do whatever the process may do."""
    library, host = tmp_path / "library", tmp_path / "host"
    library.mkdir()
    host.mkdir()
    (library / "pries.py").write_text(PRIES)
    (host / "file").write_text("ours")
    for folder in (tmp_path, library, host):
        folder.chmod(0o777)
    monkeypatch.setenv("PYTHONPATH", str(library))
    monkeypatch.setenv("INTERPLAY_PLANTED", "sk-planted")
    monkeypatch.setattr(sys, "path", [str(library), *sys.path])
    service = LibraryService("pries")

    def asked(what: str, where: object = "", seconds: float = 50) -> RunResult:
        return service.ask(LibraryQuestion([what, str(where)], limits=Limits(seconds=seconds)))

    assert asked("nothing").output == b'"done"'
    assert "planted" not in asked("variables").output.decode().lower()
    with socket.create_server(("127.0.0.1", 0)) as server:
        for what, where in (("read", host / "file"), ("write", host / "new"), ("connect", server.getsockname()[1])):
            assert asked(what, where).status == "error", what
    assert not (host / "new").exists()
    began = time.monotonic()
    assert asked("wait", seconds=1).status == "timeout" and time.monotonic() - began < 10
    assert asked("nothing").output == b'"done"', "the slot has come back"
    service.pool.close()
