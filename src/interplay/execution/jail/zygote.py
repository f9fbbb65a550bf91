"""The zygote: imports once, shuts itself in, then forks a supervisor for each job."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket

from interplay.execution.jail.job import send
from interplay.execution.jail.landlock import fence, landlock_version
from interplay.execution.jail.namespaces import shut_in
from interplay.execution.jail.paths import system_paths
from interplay.execution.jail.privileges import DAC_READ_SEARCH, NOBODY, become_nobody, is_root
from interplay.execution.jail.program import PYTHONS
from interplay.execution.jail.seccomp import seccomp
from interplay.execution.jail.supervisor import supervise
from interplay.execution.jail.syscall import JailError, fork

# What most programs import, so that they need not.
WARM = """
    abc array ast bisect builtins cmath collections copy dataclasses datetime decimal enum fractions functools heapq
    inspect itertools linecache math numbers operator queue random re statistics string threading time traceback
    types typing
"""


def main(fd: int, level: str, folder: str) -> None:
    channel = socket.socket(fileno=fd)
    for name in WARM.split():
        __import__(name)
    for number in signal.valid_signals() - {*PYTHONS, signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)  # whatever we inherited
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    readable = system_paths()
    try:
        if level == "namespaces":
            seccomp(True, True)
            shut_in(folder, proc)
        else:
            if is_root():
                own = 1_900_000_000 + os.getpid()  # nobody's, so that limits by user count this worker's programs alone
                uid = own if is_root(own) else NOBODY
                os.chown(folder, uid, NOBODY)
                become_nobody(uid, keep=DAC_READ_SEARCH)
            if level == "landlock":
                if not landlock_version():
                    raise JailError("this kernel has no Landlock, or it is not switched on")
                fence(landlock_version(), readable, folder)
    except (JailError, OSError) as error:
        send(channel, {"trouble": str(error)})
        return
    gc.collect()
    gc.freeze()
    gc.disable()
    send(channel, {})
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    while True:
        poll.poll()
        if not channel.recv(1, socket.MSG_PEEK):
            return
        child = fork()
        if child == 0:
            supervise(channel, level, folder, readable, proc)
        if os.waitpid(child, 0)[1] != 0:
            return
