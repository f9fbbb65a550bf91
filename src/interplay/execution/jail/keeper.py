"""The keeper: the first process of a worker. It is not isolated and sees no job.

It makes the control group and forks the zygote. When the zygote has ended for any reason, the keeper ends every process
that is left and removes the group and the folder. This also works if the process that started the worker was killed.
"""

from __future__ import annotations

import json
import os
import signal
import socket

from interplay.execution.jail.cgroup import find_place, make_cgroup
from interplay.execution.jail.folder import remove
from interplay.execution.jail.processes import end_all
from interplay.execution.jail.syscall import LIBC, SET_SUBREAPER, fork
from interplay.execution.jail.zygote import run_zygote

ENDING = 10.0  # seconds after which processes that cannot be ended are left alone


def main(text: str) -> None:
    options = json.loads(text)
    channel = socket.socket(fileno=options["channel"])
    LIBC.prctl(SET_SUBREAPER, 1, 0, 0, 0)
    place, _ = find_place()
    cgroup = make_cgroup(place) if place else None
    zygote = fork()
    if zygote == 0:
        code = 1
        try:
            os.close(options["lock"])  # the lock says that the folder is in use; inside the jail it would be a way out
            run_zygote(channel, options, options["packages"], cgroup)
            code = 0
        finally:
            os._exit(code)
    channel.close()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.waitpid(zygote, 0)
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    end_all(proc, ENDING)
    if cgroup is not None:
        cgroup.remove()
    remove(options["folder"])
