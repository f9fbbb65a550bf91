"""Programs that run in separate, sandboxed processes, with the gateway as their only network.

A worker (`worker.py`) is started once for each program and forks a process for each run. That process does not inherit
the trainer's environment variables, and telemetry of frameworks is switched off in it.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from interplay.envs.programs.effects import EffectLog
from interplay.envs.programs.gateway import HttpRun, gateway
from interplay.envs.programs.options import OutsideOptions
from interplay.envs.programs.run import ProgramCrash
from interplay.errors import ConfigError, EnvError
from interplay.execution.worker import PREFIX, sweep

SILENT = {
    "ANONYMIZED_TELEMETRY": "false", "DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "LANGCHAIN_TRACING_V2":
    "false", "LANGSMITH_TRACING": "false", "OPENAI_AGENTS_DISABLE_TRACING": "1", "OTEL_SDK_DISABLED": "true",
    "CREWAI_DISABLE_TELEMETRY": "true", "PYDANTIC_DISABLE_PLUGINS": "1",
}  # fmt: skip


SPARES = 64  # the most processes that wait for a run, in all workers of a program together
LENT = Path(__file__).with_name("lent")  # modules that every program can import
# A sandboxed program can reach no TLS server. Clients that read all certificates of the machine spend 40 ms on it.
NO_CERTIFICATES = {"SSL_CERT_DIR": str(LENT)}


class ProcessRun(HttpRun):
    """One run of a command or a function in a separate process."""

    def __init__(self, options: OutsideOptions, row: Mapping[str, Any], seed: int, effects: EffectLog) -> None:
        super().__init__(options, effects)
        told = json.dumps(row, ensure_ascii=False)
        environment = {
            "OPENAI_BASE_URL": self.url, "OPENAI_API_BASE": self.url, "OPENAI_API_KEY": self.key,
            "INTERPLAY_EFFECTS": f"{self.url}/effects", "INTERPLAY_TASK": told, "INTERPLAY_SEED": str(seed),
            "PYTHONHASHSEED": "0",
        }  # fmt: skip
        self._reported = False
        self._worker = _worker_of(options)
        self._number = self._worker.begin(self, environment, row)

    def told(self, how: Mapping[str, Any]) -> None:
        """Finish the run with the worker's report of how it ended."""
        self._reported = True
        if "crash" in how:
            self.finish(None, ProgramCrash(**how["crash"]))
        elif "result" in how:
            self.finish(how["result"])
        else:
            self.finish(_value(str(how["out"])))

    def close(self) -> None:
        super().close()
        if not self._reported:
            self._worker.end(self._number)


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
    """The worker process that forks a process for each run. A thread reads its reports."""

    def __init__(self, options: OutsideOptions) -> None:
        how = options.program
        python = how.python or sys.executable
        found = shutil.which(python)
        if found is None:
            raise ConfigError(f"env.program.python is '{python}', which is no program; expected a Python interpreter.")
        sweep(tempfile.gettempdir())
        here, lender = socket.socketpair()
        paths = [*_program_paths(own=not how.python), str(LENT)]
        made = {
            "walls": how.walls == "sandbox", "network": how.network, "port": gateway().port,
            "lender": lender.fileno(), "function": options.function, "command": options.command,
            "path": [os.getcwd(), *paths], "cwd": os.getcwd(),
            "readable": [os.getcwd(), *map(os.path.abspath, how.readable), *paths],
            "memory_mb": how.memory_mb, "processes": how.processes, "cpu_seconds": how.cpu_seconds,
            "disk_mb": how.disk_mb, "prefix": f"{PREFIX}programs-", "under": tempfile.gettempdir(),
            "spares": SPARES // how.workers,
            "environment": {**SILENT, "PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8",
                            "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": f"{os.getcwd()}{os.pathsep}{LENT}",
                            **(NO_CERTIFICATES if how.walls == "sandbox" and not how.network else {}),
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
        first = self._heard()
        if "trouble" in first:
            raise ConfigError(_why(options, first))
        with here:
            if made["walls"] and not how.network:
                gateway().adopt(socket.socket(fileno=socket.recv_fds(here, 1, 1)[1][0]))
        threading.Thread(target=self._listen, name="programs", daemon=True).start()

    def begin(self, run: ProcessRun, environment: Mapping[str, str], row: Mapping[str, Any]) -> int:
        number = next(self._numbers)
        self._runs[number] = run
        self._tell({"id": number, "environment": dict(environment), "task": dict(row)})
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

    def _heard(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = json.loads(line) if line else {"trouble": "the worker ended without a message", "place": "its start"}
        return found if isinstance(found, dict) else {}

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            run = self._runs.pop(told["id"], None)
            if run is not None:
                run.told(_how(told["how"]))
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
