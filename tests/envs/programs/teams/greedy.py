"""Programs that use more than they may, in ways that only a control group sees, and one that leaves a process."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from typing import Any


def fills_sockets(task: dict[str, Any]) -> str:
    """The kernel's buffers belong to no process."""
    for _ in range(6):
        if os.fork() == 0:
            keep: list[socket.socket] = []
            while len(keep) < 800:
                keep += socket.socketpair()
                keep[-1].setblocking(False)
                try:
                    while keep[-1].send(bytes(1 << 15)):
                        pass
                except BlockingIOError:
                    pass
            time.sleep(600)
    time.sleep(600)
    return "not ended"


def starts_threads(task: dict[str, Any]) -> int:
    """Returns how many could be started."""
    count, limit = 0, 20_000
    threading.stack_size(1 << 16)
    try:
        while count < limit:
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
            count += 1
    except RuntimeError:
        pass
    return count


def leaves_a_daemon(task: dict[str, Any]) -> int:
    """Starts a process in a new session. It closes all pipes to this process, so that only a group can find it."""
    null = subprocess.DEVNULL
    return subprocess.Popen(["sleep", "600"], stdin=null, stdout=null, stderr=null, start_new_session=True).pid
