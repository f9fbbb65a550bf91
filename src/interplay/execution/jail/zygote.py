"""The zygote: imports once, isolates itself, then forks a supervisor for each job (for a service: each session)."""

from __future__ import annotations

import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

from interplay.execution.jail.cgroup import Cgroup
from interplay.execution.jail.job import send
from interplay.execution.jail.landlock import fence, landlock_version
from interplay.execution.jail.namespaces import shut_in
from interplay.execution.jail.paths import system_paths
from interplay.execution.jail.privileges import DAC_READ_SEARCH, NOBODY, become_nobody, is_root
from interplay.execution.jail.program import PYTHONS
from interplay.execution.jail.run import Run
from interplay.execution.jail.seccomp import base_filter
from interplay.execution.jail.session import ServiceSession
from interplay.execution.jail.site import Site
from interplay.execution.jail.syscall import LIBC, SET_PDEATHSIG, JailError, fork

# Modules that most programs import. They are imported once here, so that programs start faster.
WARM = """
    abc array ast bisect builtins cmath collections copy dataclasses datetime decimal enum fractions functools heapq
    inspect itertools linecache math numbers operator queue random re statistics string threading time traceback
    types typing
"""


def make_site(level: str, folder: str, cgroup: Cgroup | None, service: str, packages: Sequence[str]) -> Site:
    """Everything that is done once: the imports, and the isolation that all jobs of this worker share."""
    for name in WARM.split():
        importlib.import_module(name)
    sys.path += packages
    for number in signal.valid_signals() - {*PYTHONS, signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # undo whatever was inherited
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        raise JailError("this kernel does not list the children of a process (it needs CONFIG_PROC_CHILDREN)")
    readable = [*system_paths(), *packages]
    if level != "rlimits":
        base_filter(level == "namespaces", landlock_version())  # made once; it raises on an unknown architecture
    if level == "namespaces":
        shut_in(folder, readable, proc)
        end_with_keeper()
    _prepare(service)  # libraries may start threads, and a process with threads cannot enter namespaces
    if level != "namespaces" and is_root():
        own = 1_900_000_000 + os.getpid()  # an unused user id: limits per user count only this worker's programs
        uid = own if is_root(own) else NOBODY
        os.chown(folder, uid, NOBODY)
        become_nobody(uid, keep=DAC_READ_SEARCH)
    if level == "landlock":
        if not landlock_version():
            raise JailError("this kernel has no Landlock, or Landlock is not enabled")
        fence(landlock_version(), readable, folder)
    return Site(level, folder, tuple(readable), proc, cgroup, service)


def end_with_keeper() -> None:
    """Ask the kernel to end this process when its keeper ends. The kernel forgets this when the process changes its
    user or its namespace, so it is called again after that."""
    LIBC.prctl(SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _prepare(service: str) -> None:
    if service:
        try:
            importlib.import_module(service).prepare()
        except Exception as error:
            raise JailError(f"{service} cannot be started: {type(error).__name__}: {error}") from None


def run_zygote(channel: socket.socket, options: dict[str, str], packages: Sequence[str], cgroup: Cgroup | None) -> None:
    """Serve until the other end of the channel is closed."""
    end_with_keeper()
    try:
        site = make_site(options["level"], options["folder"], cgroup, options["service"], packages)
    except (JailError, OSError) as error:
        send(channel, {"trouble": str(error)})
        return
    end_with_keeper()
    gc.collect()
    gc.freeze()
    gc.disable()
    send(channel, {"accounting": "cgroup" if cgroup is not None else "looks"})
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while True:
        poll.poll()
        if not channel.recv(1, socket.MSG_PEEK):
            return
        child = fork()
        if child == 0:
            supervise(channel, site)
        if os.waitpid(child, 0)[1] != 0:
            return


def supervise(channel: socket.socket, site: Site) -> NoReturn:
    """Run one job or one session. The exit code is 0 if this worker can continue."""
    code, task = 1, None
    try:
        task = ServiceSession(channel, site) if site.service else Run(channel, site)
        send(channel, task.answer())
        while site.service and not task.supervisor.over:
            send(channel, task.answer())
        code = 0
    except EOFError:
        if isinstance(task, ServiceSession):
            task.leave()
    except BaseException as error:
        send(channel, {"trouble": str(error) or type(error).__name__})
    finally:
        try:
            if task is not None and not task.supervisor.clean():
                code = 1
        finally:
            os._exit(code)
