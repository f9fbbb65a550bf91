"""The ranks of one sharded model, as the driver of a run sees them: it starts them, calls them and ends them.

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
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Protocol

from interplay.errors import LearnerLost
from interplay.training.rank_process import RankAnswer, RankSetup

# Not `python -m`: there the module would be __main__, and its classes could not be pickled for the driver. Signals are
# ignored first, because the other imports take seconds.
_START = """
from interplay.training.interrupt import ignore_signals
ignore_signals()
from interplay.rollout.garbage import load_libraries
load_libraries()
from interplay.training.rank_process import main
main()
"""
_AFTER_FAILURE = 10.0  # seconds in which the other ranks must answer when one has failed


class RankEnded(Exception):
    """The process of a rank has ended."""

    def __init__(self, rank: int, cause: str) -> None:
        super().__init__(f"rank {rank} of the learner has ended{cause}")


class RankProcesses(Protocol):
    """The processes of a group. When it is made, they start."""

    pids: list[int]

    def begin(self) -> None:
        """Send every rank its setup."""
        ...

    def send(self, rank: int, method: str, arguments: tuple[Any, ...]) -> None: ...

    def receive(self, ranks: Collection[int], seconds: float) -> dict[int, RankAnswer]:
        """Wait until at least one of these ranks has answered; empty if none has after `seconds`."""
        ...

    def close(self) -> None:
        """End all ranks. One that is at work is killed."""
        ...


StartRanks = Callable[[RankSetup, Path], RankProcesses]  # the setup of the first rank, and the folder that all share


class RankGroup:
    """`setup` is that of the first rank; the others differ in their number. `scratch` is a folder that all ranks and
    the driver can read and write. A new group is used after `begin` and `wait`, between which others can begin too."""

    def __init__(self, setup: RankSetup, start: StartRanks | None = None) -> None:
        self._lock = threading.Lock()  # the trainer's thread saves state while the learner's own thread may be at work
        self._timeout, self._size = setup.timeout, setup.size
        self._folder = tempfile.TemporaryDirectory(prefix="interplay-ranks-")
        self.scratch = Path(self._folder.name)
        self._processes: RankProcesses | None = (start or ChildRanks)(setup, self.scratch)

    def begin(self) -> None:
        """Let every rank load its part of the model."""
        self._running().begin()

    def wait(self) -> None:
        """Wait until every rank has done so."""
        self._answers(self._running())

    @property
    def pids(self) -> list[int]:
        return [] if self._processes is None else self._processes.pids

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of every rank's `RankWorker`; return the first rank's result."""
        with self._lock:
            processes = self._running()
            try:
                for rank in range(self._size):
                    processes.send(rank, method, arguments)
            except RankEnded as ended:
                self._give_up(str(ended))
            return self._answers(processes)

    def _running(self) -> RankProcesses:
        if self._processes is None:
            raise LearnerLost("the learner's processes have ended; resume the run from its newest checkpoint.")
        return self._processes

    def _answers(self, processes: RankProcesses) -> Any:
        """Wait for all ranks. The exception of a rank is raised here, once every rank has answered."""
        found: dict[int, RankAnswer] = {}
        until = time.monotonic() + self._timeout
        waiting = set(range(self._size))
        while waiting:
            try:
                ready = processes.receive(waiting, max(0.0, until - time.monotonic()))
            except RankEnded as ended:
                self._give_up(str(ended))
            if not ready and any(not fine for fine, _ in found.values()):
                break  # one rank has failed, and the others wait for it
            if not ready:
                who = ", ".join(map(str, sorted(waiting)))  # these ranks hang, or wait for each other
                self._give_up(
                    f"rank {who} of the learner gave no answer within {self._timeout:g} s (cluster.learner_timeout)"
                )
            found |= ready
            waiting -= set(ready)
            if any(not fine for fine, _ in ready.values()):  # if it was a guard, the others raise the same
                until = min(until, time.monotonic() + _AFTER_FAILURE)
        if waiting:
            self.close()
        failures = [answer for _, (fine, answer) in sorted(found.items()) if not fine]
        for cause in failures:
            if not isinstance(cause, LearnerLost):  # ranks lose contact with one that failed, so this is the cause
                raise cause
        if failures:
            self._give_up(str(failures[0]))
        return found[0][1]

    def _give_up(self, what: str) -> None:
        self.close()
        raise LearnerLost(
            f"{what}. All {self._size} ranks of its model were ended, because none can go on alone; resume the run "
            "from its newest checkpoint."
        )

    def close(self) -> None:
        """End all ranks."""
        if self._processes is not None:
            self._processes.close()
            self._processes = None
        self._folder.cleanup()


class ChildRanks:
    """Ranks that are child processes of the driver, which calls them over pipes."""

    def __init__(self, setup: RankSetup, scratch: Path) -> None:
        self._children: list[subprocess.Popen[bytes]] = []
        self._connections: list[Connection] = []
        self._setup = replace(setup, meeting=f"file://{scratch / 'meeting'}")
        for _ in range(setup.size):
            ours, theirs = Pipe()
            command = [sys.executable, "-c", _START, str(theirs.fileno())]
            self._children.append(subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL))
            theirs.close()
            self._connections.append(ours)
        self.pids = [child.pid for child in self._children]

    def begin(self) -> None:
        for rank in range(self._setup.size):
            with suppress(RankEnded):  # waiting for its answer raises the same error
                self.send(rank, "begin", (replace(self._setup, rank=rank),))

    def send(self, rank: int, method: str, arguments: tuple[Any, ...]) -> None:
        # Plain pickle copies tensors. With multiprocessing's own, driver and rank would write to the same memory.
        try:
            self._connections[rank].send_bytes(pickle.dumps((method, arguments)))
        except OSError:
            raise RankEnded(rank, self._cause(rank)) from None

    def receive(self, ranks: Collection[int], seconds: float) -> dict[int, RankAnswer]:
        waiting = {rank: self._connections[rank] for rank in ranks}
        ready = wait(list(waiting.values()), seconds)
        out: dict[int, RankAnswer] = {}
        for rank in sorted(r for r, connection in waiting.items() if connection in ready):
            try:
                out[rank] = pickle.loads(waiting[rank].recv_bytes())
            except (EOFError, OSError):
                raise RankEnded(rank, self._cause(rank)) from None
        return out

    def _cause(self, rank: int) -> str:
        with suppress(subprocess.TimeoutExpired):
            code = self._children[rank].wait(5.0)
            return f" (killed by signal {-code})" if code < 0 else f" (exit code {code})"
        return ""

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        for child in self._children:
            child.kill()
            child.wait()
