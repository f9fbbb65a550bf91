"""Finds which isolation levels this machine offers, by trying to break out of each, and chooses one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from functools import cache
from typing import Literal, get_args

from interplay.errors import SandboxError, did_you_mean
from interplay.execution.job import Job
from interplay.execution.worker import IsolationLevel, SandboxWorker

Isolation = Literal["strongest", "namespaces", "landlock", "rlimits"]
VARIABLE = "INTERPLAY_ISOLATION"
LEVELS: tuple[IsolationLevel, ...] = get_args(IsolationLevel)

# This program tries everything that a program must not be able to do, and prints what succeeded.
_ESCAPE = """
import os, resource, socket, sys
could = []
canary, forks = sys.stdin.read().split("\\0")
try:
    open(canary).read(); could.append("read a file outside its folder")
except OSError: pass
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("127.0.0.1", 9)); could.append("use the network")
except OSError: pass
try:
    os.kill(os.getppid(), 0)
    if os.getppid() != 1: could.append("signal its parent")
except OSError: pass
try:
    resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE); could.append("reach its parent")
except OSError: pass
try: os.chmod(canary, 0o600)
except OSError: pass
if set(os.environ) - {"PATH", "LANG", "PYTHONHASHSEED", "PYTHONDONTWRITEBYTECODE", "HOME", "TMPDIR", "LC_CTYPE"}:
    could.append("read an inherited environment")
try:
    for _ in range(int(forks)):
        if os.fork() == 0: os._exit(0)
    if int(forks): could.append("start more processes than it may")
except OSError: pass
print(", ".join(could) or "nothing")
"""


@cache
def offered(level: IsolationLevel) -> str:
    """Empty if this machine offers `level`, else the reason why not. It is found once, by trying to break out."""
    try:
        worker = SandboxWorker(level)
    except (SandboxError, OSError) as error:
        return str(error)
    with tempfile.NamedTemporaryFile("w", suffix=".canary") as canary, contextlib.closing(worker):
        canary.write("free")
        canary.flush()
        os.chmod(canary.name, 0o644)
        try:
            forks = 24 if level == "namespaces" else 0  # at other levels the limit is not exact
            result = worker.run(Job(_ESCAPE, stdin=f"{canary.name}\0{forks}"))
        except (SandboxError, OSError) as error:
            return str(error)
        changed = os.stat(canary.name).st_mode & 0o777 != 0o644
    if not result.ok:
        return f"a first program ended with {result.status}: {result.stderr.strip()[-200:]}"
    could = result.stdout.strip() + (", change the mode of a file outside" if changed else "")
    return "" if could == "nothing" or level == "rlimits" else f"a first program could {could}"


def choose(isolation: Isolation) -> IsolationLevel:
    """The level that `isolation` names. If this machine does not offer it, this raises and takes no weaker level. The
    variable INTERPLAY_ISOLATION sets the level for everything that does not name one itself: databases and formulas
    have no setting of their own."""
    named: str = os.environ.get(VARIABLE) or isolation if isolation == "strongest" else isolation
    if named == "strongest":
        for level in LEVELS[:2]:
            if not offered(level):
                return level
        raise SandboxError(
            f"this machine can isolate programs neither with namespaces ({offered('namespaces')}) nor with Landlock "
            f"({offered('landlock')}); set isolation = 'rlimits' (for databases and formulas: {VARIABLE}=rlimits) to "
            "run them with limits only, although they can then read your files."
        )
    for level in LEVELS:
        if level == named:
            if reason := offered(level):
                why = reason.removesuffix(".")
                raise SandboxError(
                    f"isolation is '{level}', but this machine does not offer it: {why}; expected another level."
                )
            return level
    raise SandboxError(f"isolation is '{named}'; {did_you_mean(named, ('strongest', *LEVELS))}")
