"""Functions and commands that are run in processes, each for one promise."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from http_game import Client


def talk(model: str = "planner", text: str = "hi") -> str:
    return Client().ask(model, [{"role": "user", "content": text}])


def one(row: dict[str, Any]) -> str:
    return talk(text=f"task {row['index']}")


def surroundings(row: dict[str, Any]) -> dict[str, Any]:
    """What a program can reach."""
    talk()
    found: dict[str, Any] = {"variables": sorted(os.environ), "processes": os.getpid()}
    for name, path in (("secret", os.environ.get("TRIED_SECRET", "/etc/shadow")), ("own", "own.txt")):
        try:
            Path(path).read_text() if name == "secret" else Path(path).write_text("x")
            found[name] = True
        except OSError:
            found[name] = False
    try:
        Path(__file__).with_name("planted.txt").write_text("x")
        found["beside"] = True
    except OSError:
        found["beside"] = False
    for name, port in (("neighbour", int(os.environ["TRIED_PORT"])),):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=2).close()
            found[name] = True
        except OSError:
            found[name] = False
    return found


def crashes_on_everything(row: dict[str, Any]) -> str:
    said = talk()
    raise ValueError(f"cannot read {said!r}")


def leaves_a_child(row: dict[str, Any]) -> int:
    """A process that would outlive its parent."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
    talk()
    return child.pid


def never_asks(row: dict[str, Any]) -> None:
    return None


def sleeps(row: dict[str, Any]) -> str:
    talk()
    time.sleep(60)
    return "late"


def length(row: Any, result: Any) -> float:
    return float(len(str(result)))


if __name__ == "__main__":
    task = json.loads(os.environ["INTERPLAY_TASK"])
    if sys.argv[1:] == ["crash"]:
        talk()
        raise KeyError("from a command")
    print("some noise")
    print(json.dumps({"said": one(task)}))
