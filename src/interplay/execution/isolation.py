"""Which walls this machine offers, found by trying to break out of them, and the choice of one."""

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

# Tries what a program must not be able to do; prints what it could.
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
    """Empty if this machine offers `level`, else the reason; found by trying to break out of it, once."""
    try:
        worker = SandboxWorker(level)
    except (SandboxError, OSError) as error:
        return str(error)
    with tempfile.NamedTemporaryFile("w", suffix=".canary") as canary, contextlib.closing(worker):
        canary.write("free")
        canary.flush()
        os.chmod(canary.name, 0o644)
        try:
            forks = 24 if level == "namespaces" else 0  # elsewhere the limit has slack
            result = worker.run(Job(_ESCAPE, stdin=f"{canary.name}\0{forks}"))
        except (SandboxError, OSError) as error:
            return str(error)
        changed = os.stat(canary.name).st_mode & 0o777 != 0o644
    if not result.ok:
        return f"a first program ended with {result.status}: {result.stderr.strip()[-200:]}"
    could = result.stdout.strip() + (", change the mode of a file outside" if changed else "")
    return "" if could == "nothing" or level == "rlimits" else f"a first program could {could}"


def choose(isolation: Isolation) -> IsolationLevel:
    """The level behind the name, or a refusal; never a weaker one. The variable INTERPLAY_ISOLATION names the level of
    everything that names none itself: databases and formulas have no setting of their own."""
    named: str = os.environ.get(VARIABLE) or isolation if isolation == "strongest" else isolation
    if named == "strongest":
        for level in LEVELS[:2]:
            if not offered(level):
                return level
        raise SandboxError(
            f"this machine isolates programs neither by namespaces ({offered('namespaces')}) nor by Landlock "
            f"({offered('landlock')}); isolation = 'rlimits' (for databases and formulas: {VARIABLE}=rlimits) runs "
            "them with limits only, able to read your files."
        )
    for level in LEVELS:
        if level == named:
            if reason := offered(level):
                raise SandboxError(f"isolation = '{level}' is more than this machine offers: {reason}")
            return level
    raise SandboxError(f"isolation is '{named}'; {did_you_mean(named, ('strongest', *LEVELS))}")
