"""Programs that run in separate, sandboxed processes, with the gateway as their only network.

A worker (`worker.py`) is started once for each program and forks the processes of its runs: one for each run, or for
`env.program.keep` runs, one after another. They do not inherit the trainer's environment variables, and telemetry of
frameworks is switched off in them.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interplay.envs.programs.effects import EffectLog
from interplay.envs.programs.gateway import THIS_PROCESS, HttpRun, gateway, new_key
from interplay.envs.programs.options import OutsideOptions
from interplay.envs.programs.run import ProgramCrash
from interplay.errors import ConfigError, EnvError
from interplay.execution.worker import PREFIX, sweep

SILENT = {
    "ANONYMIZED_TELEMETRY": "false", "DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "LANGCHAIN_TRACING_V2":
    "false", "LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1", "OTEL_SDK_DISABLED": "true",
    "CREWAI_DISABLE_TELEMETRY": "true", "PYDANTIC_DISABLE_PLUGINS": "1",
}  # fmt: skip


IMPORT = 60.0  # seconds in which a program may always be imported; more if env.program.seconds is more
SPARES = 64  # the most processes that wait for a run, in all workers of a program together
LENT = Path(__file__).with_name("lent")  # modules that every program can import
# A sandboxed program can reach no TLS server. Clients that read all certificates of the machine spend 40 ms on it.
NO_CERTIFICATES = {"SSL_CERT_DIR": str(LENT)}


# The gateway's loop goes round this often before a process that is kept gets its next run. The first bytes of a request
# on a new connection are read after at most five rounds. So the gateway then knows of all requests that a run sent
# before it ended, also of large ones that have not arrived completely.
ROUNDS = 6


@dataclass(eq=False)
class ProcessPlace:
    """A process that runs programs, as the trainer knows it: its key, and how many runs may still begin in it."""

    number: int
    key: str
    left: int
    over: bool = False  # no more runs begin in it


class ProcessRun(HttpRun):
    """One run of a command or a function in a separate process. With `alone`, this process has had no other run."""

    def __init__(
        self, options: OutsideOptions, row: Mapping[str, Any], seed: int, effects: EffectLog, alone: bool = False
    ) -> None:
        self._worker = _worker_of(options)
        self._place = self._worker.take(1 if alone else options.program.keep)
        super().__init__(options, effects, self._place.key)
        told = json.dumps(row, ensure_ascii=False)
        environment = {
            "OPENAI_BASE_URL": self.url, "OPENAI_API_BASE": self.url, "OPENAI_API_KEY": self.key,
            "INTERPLAY_EFFECTS": f"{self.url}/effects", "INTERPLAY_TASK": told, "INTERPLAY_SEED": str(seed),
            "PYTHONHASHSEED": "0",
        }  # fmt: skip
        self._reported = False
        self._number = self._worker.begin(self, self._place, environment, row)

    def told(self, how: Mapping[str, Any], kept: bool) -> None:
        """Finish the run with the worker's report of how it ended, and of whether its process is `kept`."""
        self._reported = True
        if kept and "result" in how:
            self.gateway.call(self._give_back, ROUNDS, how["result"])
            return
        self._place.over = True
        if kept:  # its result cannot be read
            self.gateway.call(self._worker.drop, self._place)
        if "crash" in how:
            self.finish(None, ProgramCrash(**how["crash"]))
        elif "result" in how:
            self.finish(how["result"])
        else:
            self.finish(_value(str(how["out"])))

    def _give_back(self, rounds: int, result: Any) -> None:
        """Finish the run after some rounds of the gateway's loop. Then its process can get another run, unless one of
        its requests is still arriving or was not answered."""
        if rounds:
            asyncio.get_running_loop().call_soon(self._give_back, rounds - 1, result)
            return
        if self._place.over or not self.gateway.is_idle(self.key):
            self._worker.drop(self._place)
        else:
            self._worker.give_back(self._place)
        self._end(result, None)

    def asked_late(self) -> None:
        """End the process if it waits for its next run: something in it still runs."""
        if self._reported and not self._place.over:
            self._worker.drop(self._place)

    def close(self) -> None:
        if not self._reported:
            self._place.over = True
            self._worker.end(self._number)
        super().close()

    def leave(self) -> None:
        """While the process waits for its next run, the key stays, so that a late request is noticed."""
        if self._place.over:
            super().leave()


def _value(out: str) -> Any:
    """The result of a command: the value of its last printed line if that line is JSON, otherwise all of its output."""
    last = out.strip().rpartition("\n")[2]
    try:
        return json.loads(last)
    except (ValueError, RecursionError):  # RecursionError: thousands of nested brackets
        return out.strip()


def _how(text: str) -> Mapping[str, Any]:
    """How a run ended. Its result may be nested too deeply to be read."""
    try:
        return dict(json.loads(text))
    except (ValueError, RecursionError):
        words = "its result is nested too deeply to be read"
        return {"crash": {"kind": "UnreadableResult", "words": words, "place": "an unknown place"}}


class ProgramWorker:
    """The worker process that forks the processes of runs. A thread reads its reports."""

    def __init__(self, options: OutsideOptions) -> None:
        how = options.program
        python = how.python or sys.executable
        found = shutil.which(python)
        if found is None:
            raise ConfigError(f"env.program.python is '{python}', which is no program; expected a Python interpreter.")
        sweep(tempfile.gettempdir())
        here, lender = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        walled = how.walls == "sandbox" and not how.network
        own = walled and how.keep > 1  # a network for each process, so that it is known whose request a request is
        paths = [*_program_paths(own=not how.python), str(LENT)]
        made = {
            "walls": how.walls == "sandbox", "network": how.network, "port": gateway().port,
            "lender": lender.fileno(), "function": options.function, "command": options.command,
            "path": [os.getcwd(), *paths], "cwd": os.getcwd(),
            "readable": [os.getcwd(), *map(os.path.abspath, how.readable), *paths],
            "memory_mb": how.memory_mb, "processes": how.processes, "cpu_seconds": how.cpu_seconds,
            "disk_mb": how.disk_mb, "prefix": f"{PREFIX}programs-", "under": tempfile.gettempdir(),
            "spares": SPARES // how.workers, "keep": how.keep, "own_network": own,
            "environment": {**SILENT, "PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8",
                            "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": f"{os.getcwd()}{os.pathsep}{LENT}",
                            **(NO_CERTIFICATES if walled else {}), **(_import_address() if own else {}),
                            **how.environment},
        }  # fmt: skip
        self._process = subprocess.Popen(
            [found, "-u", str(Path(__file__).with_name("worker.py")), json.dumps(made)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(lender.fileno(),),
            env={**SILENT, "PATH": os.environ.get("PATH", os.defpath), "PYTHONHASHSEED": "0"},  # the same in a replay
        )  # fmt: skip
        lender.close()
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._runs: weakref.WeakValueDictionary[int, ProcessRun] = weakref.WeakValueDictionary()
        self._waiting: list[ProcessPlace] = []  # their processes wait for their next run
        first = self._first_heard(max(how.seconds, IMPORT))
        if "trouble" in first:
            raise ConfigError(_why(options, first))
        if own:
            gateway().adopt_from(here)
        else:
            with here:
                if walled:
                    lent = socket.recv_fds(here, 64, 1)[1][0]
                    gateway().adopt(socket.socket(fileno=lent), f"worker {self._process.pid}")
        threading.Thread(target=self._listen, name="programs", daemon=True).start()

    def take(self, runs: int) -> ProcessPlace:
        """The place of a run: that of a process that waits for its next run, or a new one for this many runs."""
        with self._lock:
            waits = runs > 1 and self._waiting
            place = self._waiting.pop() if waits else ProcessPlace(next(self._numbers), new_key(), runs)
            place.left -= 1
            return place

    def give_back(self, place: ProcessPlace) -> None:
        with self._lock:
            self._waiting.append(place)

    def drop(self, place: ProcessPlace) -> None:
        """End a process that waits for its next run."""
        place.over = True
        with self._lock:
            self._waiting = [one for one in self._waiting if one is not place]
        gateway().forget(place.key)
        self._drop(place.number)

    def _drop(self, number: int) -> None:
        with suppress(EnvError):
            self._tell({"drop": number})

    def begin(
        self, run: ProcessRun, place: ProcessPlace, environment: Mapping[str, str], row: Mapping[str, Any]
    ) -> int:
        number = next(self._numbers)
        self._runs[number] = run
        order = {"id": number, "environment": dict(environment), "task": dict(row)}
        self._tell({**order, "place": place.number, "last": not place.left})
        return number

    def end(self, number: int) -> None:
        if self._runs.pop(number, None) is not None or self._process.poll() is None:
            try:
                self._tell({"end": number})
            except EnvError:
                return

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def _tell(self, what: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            with self._lock:
                self._process.stdin.write(json.dumps(what).encode() + b"\n")
                self._process.stdin.flush()
        except (OSError, ValueError):
            raise EnvError("the process that programs are forked from has ended.") from None

    def _first_heard(self, seconds: float) -> Mapping[str, Any]:
        """The first report of the worker, which comes after it has imported the program."""
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        if not poll.poll(1000 * seconds):
            self._process.kill()
            words = f"it was not imported within {seconds:g} seconds (the larger of env.program.seconds and {IMPORT:g})"
            return {"trouble": words, "place": "its import"}
        line = self._process.stdout.readline()
        found = json.loads(line) if line else {"trouble": "the worker ended without a message", "place": "its start"}
        return found if isinstance(found, dict) else {}

    def _listen(self) -> None:
        """Read the reports. This thread never takes the lock: a thread that has it may wait until the worker has read
        an order, and the worker may wait until this thread has read a report."""
        assert self._process.stdout is not None and self._process.stdin is not None
        for line in self._process.stdout:
            told = json.loads(line)
            run = self._runs.pop(told["id"], None)
            if run is not None:
                run.told(_how(told["how"]), told["kept"] is not None)
            elif told["kept"] is not None:  # nobody needs the run any more
                gateway().call(self._drop, told["kept"])
        self._process.stdout.close()
        with suppress(OSError):
            self._process.stdin.close()
        for place in self._waiting:
            gateway().forget(place.key)
        for run in list(self._runs.values()):
            run.finish(
                None, ProgramCrash("lost worker", "the process that runs are forked from has ended", "no place", True)
            )

    def close(self) -> None:
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()


def _import_address() -> dict[str, str]:
    """The variables for clients that the program makes when it is imported."""
    url = f"http://127.0.0.1:{gateway().port}/s/{THIS_PROCESS}/v1"
    return {"OPENAI_BASE_URL": url, "OPENAI_API_BASE": url, "OPENAI_API_KEY": THIS_PROCESS}


def _program_paths(own: bool) -> list[str]:
    """The folders of `sys.path` that the program may import from. If it runs with its own interpreter (not `own`), the
    libraries of this one are left out."""
    return [p for p in sys.path if p and (own or ("site-packages" not in p and "/lib/python" not in p))]


def _why(options: OutsideOptions, first: Mapping[str, Any]) -> str:
    what = f"env.function '{options.function}'" if options.function else "the program's worker"
    advice = "expected a module that can be imported by env.program.python"
    if options.program.walls == "sandbox":
        advice += ", and a kernel with user namespaces and Landlock (or env.program.walls = 'none', which is recorded)"
    return f"{what} cannot be started: {first['trouble']} at {first['place']}; {advice}."


_workers: dict[tuple[int, str, int], ProgramWorker] = {}
_lock = threading.Lock()
_turn = itertools.count()


def _worker_of(options: OutsideOptions) -> ProgramWorker:
    """Return one of this program's workers, in rotation. Start it if it does not run."""
    with _lock:
        key = (os.getpid(), options.model_dump_json(), next(_turn) % options.program.workers)
        if key not in _workers or not _workers[key].alive:
            _workers[key] = ProgramWorker(options)
            atexit.register(_workers[key].close)
        return _workers[key]
