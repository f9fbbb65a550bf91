"""The processes of one sharded model, as the driver of a run sees them: it starts them, calls them and ends them.

Every call goes to all ranks, because each of them takes part in gathering weights and adding up gradients. Every call
has a time limit. If a rank ends or does not answer, all of them are killed: none of them can go on alone.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from interplay.errors import LearnerLost
from interplay.training.rank_process import RankSetup

# Not `python -m`: there the module would be __main__, and its classes could not be pickled for the driver.
_START = "from interplay.training.rank_process import main; main()"
_AFTER_FAILURE = 10.0  # seconds in which the other ranks must answer when one has failed


class RankGroup:
    """`setup` is that of the first rank; the others differ in their number. `scratch` is a folder that all ranks and
    the driver can read and write."""

    def __init__(self, setup: RankSetup) -> None:
        self._lock = threading.Lock()  # the trainer's thread saves state while the learner's own thread may be at work
        self._timeout = setup.timeout
        self._folder = tempfile.TemporaryDirectory(prefix="interplay-ranks-")
        self.scratch = Path(self._folder.name)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        meeting = setup.meeting or f"file://{self.scratch / 'meeting'}"
        for rank in range(setup.size):
            ours, theirs = Pipe()
            command = [sys.executable, "-c", _START, str(theirs.fileno())]
            self._processes.append(subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL))
            theirs.close()
            self._connections.append(ours)
            self._send(rank, "begin", (replace(setup, rank=rank, meeting=meeting),))
        self._answers()

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of every rank's `RankWorker`; return the first rank's result."""
        with self._lock:
            if not self._connections:
                raise LearnerLost("the learner's processes have ended; resume the run from its newest checkpoint.")
            for rank in range(len(self._connections)):
                self._send(rank, method, arguments)
            return self._answers()

    def _send(self, rank: int, method: str, arguments: tuple[Any, ...]) -> None:
        # Plain pickle copies tensors. With multiprocessing's own, driver and rank would write to the same memory.
        try:
            self._connections[rank].send_bytes(pickle.dumps((method, arguments)))
        except OSError:
            self._give_up(f"rank {rank} of the learner has ended{self._cause(rank)}")

    def _answers(self) -> Any:
        """Wait for all ranks. The exception of a rank is raised here, once every rank has answered."""
        found: dict[int, tuple[bool, Any]] = {}
        until = time.monotonic() + self._timeout
        waiting = dict(enumerate(self._connections))
        while waiting:
            ready = wait(list(waiting.values()), max(0.0, until - time.monotonic()))
            if not ready and any(not fine for fine, _ in found.values()):
                break  # one rank has failed, and the others wait for it in vain
            if not ready:
                self._give_up(f"rank {min(waiting)} of the learner gave no answer within {self._timeout:g} s")
            for rank in [r for r, connection in waiting.items() if connection in ready]:
                try:
                    found[rank] = pickle.loads(waiting.pop(rank).recv_bytes())
                except (EOFError, OSError):
                    self._give_up(f"rank {rank} of the learner has ended{self._cause(rank)}")
                if not found[rank][0]:  # if it was a guard, the others raise the same
                    until = min(until, time.monotonic() + _AFTER_FAILURE)
        if waiting:
            self.close()
        for _, (fine, answer) in sorted(found.items()):
            if not fine:
                raise answer
        return found[0][1]

    def _cause(self, rank: int) -> str:
        with suppress(subprocess.TimeoutExpired):
            code = self._processes[rank].wait(5.0)
            return f" (killed by signal {-code})" if code < 0 else f" (exit code {code})"
        return ""

    def _give_up(self, what: str) -> None:
        size = len(self._processes)
        self.close()
        raise LearnerLost(
            f"{what}, and the other {size - 1} ranks cannot continue without it; resume the run from its newest "
            "checkpoint."
        )

    def close(self) -> None:
        """End all ranks. One that is at work is killed."""
        for connection in self._connections:
            connection.close()
        self._connections = []
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes = []
        self._folder.cleanup()
