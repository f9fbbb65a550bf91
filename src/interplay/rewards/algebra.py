"""Equality of formulas by math-verify and sympy, in processes that can be ended.

Neither library can be interrupted from a thread, and `9**9**9` does not return: so each comparison runs in a worker
process, `python -m interplay.rewards.algebra`, which takes a line of JSON and gives one back. A worker has an alarm for
slow algebra and a memory limit; one that does not heed it is killed and replaced. Too slow counts as not equal; what is
measured is the worker's own processor time, so that a busy machine does not change an answer.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import re
import select
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

from interplay.errors import InterplayError

SECONDS = 3.0  # processor time of one comparison, by the worker's own alarm
GRACE = 2.0  # more before it is killed
PATIENCE = 120.0  # on the wall, for a start or an answer: past it the machine is at fault
MEMORY = 2 << 30
READY = b"ready\n"
WORKERS = 2

_TOWER = re.compile(r"(?:\^|\*\*)\s*[{(]?\s*-?\s*(?:\d+|[a-zA-Z])\s*[)}]?\s*(?:\^|\*\*|!)|!\s*[)}\]]*\s*(?:\^|\*\*|!)")
_POWER = re.compile(r"(?:\^|\*\*)\s*[{(]?\s*-?\s*(\d+)")
_FACTORIAL = re.compile(r"(\d+)\s*[)}]?\s*!")
LARGEST_POWER, LARGEST_FACTORIAL, DEEPEST = 5_000, 1_000, 16


def same(gold: str, answer: str) -> bool:
    """Whether two answers, in LaTeX or plain, are mathematically the same; False also where it takes too long."""
    if monstrous(answer):
        return False
    return bool(_pool().ask(gold, answer))


def monstrous(text: str) -> bool:
    """Whether a formula is built to be endless: powers of powers, enormous powers and factorials, endless nesting."""
    if _TOWER.search(text) or max(accumulate((c in "([{") - (c in ")]}") for c in text), default=0) > DEEPEST:
        return True
    limits = ((_POWER, LARGEST_POWER), (_FACTORIAL, LARGEST_FACTORIAL))
    return any(len(n) > 6 or int(n) > limit for pattern, limit in limits for n in pattern.findall(text))


# -- in this process --------------------------------------------------------------------------------------------------


class _Worker:
    def __init__(self) -> None:
        if find_spec("math_verify") is None:
            raise InterplayError("comparing formulas needs math-verify: pip install 'interplay[math]'.")
        source = str(Path(__file__).parents[2])
        path = os.pathsep.join(p for p in (source, os.environ.get("PYTHONPATH", "")) if p)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "interplay.rewards.algebra"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            env={**os.environ, "PYTHONPATH": path}, start_new_session=True,
        )  # fmt: skip
        with contextlib.ExitStack() as undo:
            undo.callback(self.end)
            if self._line(PATIENCE) != READY:
                raise InterplayError(
                    "the process that compares formulas does not start; try: python -c 'import math_verify'."
                )
            undo.pop_all()

    def ask(self, gold: str, answer: str) -> bool | None:
        """None: the worker died over it."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([gold, answer]).encode() + b"\n")
            line = self._line(SECONDS + GRACE)
        except OSError:
            return None
        if line is None:
            return False
        return bool(json.loads(line)) if line.endswith(b"\n") else None

    def _line(self, seconds: float) -> bytes | None:
        """What it says next: nothing if it died, None if it worked on it for longer than `seconds`."""
        assert self.process.stdout is not None
        began, used = time.monotonic(), self._used()
        while not select.select([self.process.stdout], [], [], 0.2)[0]:
            if self._used() - used > seconds:
                return None
            if time.monotonic() - began > PATIENCE:
                raise InterplayError(f"comparing two formulas got no processor time for {PATIENCE:g} seconds.")
        return self.process.stdout.readline()

    def _used(self) -> float:
        """Seconds of processor time; where the system does not tell, seconds on the wall."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return time.monotonic()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                assert stream is not None
                stream.close()


class _Pool:
    """A few workers, started when needed; safe to ask from any thread."""

    def __init__(self) -> None:
        self.idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(WORKERS):
            self.idle.put(None)
        self.live: set[_Worker] = set()

    def ask(self, gold: str, answer: str) -> bool:
        """A worker that dies may have been somebody else's victim: a second one decides."""
        said = self._ask(gold, answer)
        return bool(self._ask(gold, answer) if said is None else said)

    def _ask(self, gold: str, answer: str) -> bool | None:
        worker, spent = self.idle.get(), True
        try:
            if worker is None:
                worker = _Worker()
                self.live.add(worker)
            began = worker._used()
            said = worker.ask(gold, answer)
            spent = said is None or worker._used() - began > SECONDS + GRACE
            return said
        finally:
            if worker is not None and spent:
                self.live.discard(worker)
                worker.end()
                worker = None
            self.idle.put(worker)

    def close(self) -> None:
        for worker in [*self.live]:
            worker.end()
        self.live.clear()


_POOLS: dict[int, _Pool] = {}  # by process: a child of fork must not share its parent's pipes
_LOCK = threading.Lock()


def _pool() -> _Pool:
    with _LOCK:
        if os.getpid() not in _POOLS:
            _POOLS.clear()
            _POOLS[os.getpid()] = pool = _Pool()
            atexit.register(pool.close)
        return _POOLS[os.getpid()]


# -- in the worker ----------------------------------------------------------------------------------------------------


def _compare(gold: str, answer: str) -> bool:
    from math_verify import verify

    ours, theirs = _parse(gold), _parse(answer)
    return bool(ours and theirs) and bool(verify(ours, theirs, strict=True, timeout_seconds=None))


def _parse(text: str) -> list[Any]:
    """What the whole text means; nothing if only a part of it can be read."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    text = text.strip().strip("$").strip()
    found = parse(
        f"\\boxed{{{text}}}", [LatexExtractionConfig(), ExprExtractionConfig()],
        fallback_mode="no_fallback", extraction_mode="first_match", parsing_timeout=None,
    )  # fmt: skip
    return list(found)


def main() -> None:
    """Answer lines until the input ends."""
    import logging
    import resource
    import signal

    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    sys.set_int_max_str_digits(100_000)

    class _Slow(BaseException):
        """Passes every `except Exception` of the libraries."""

    def ring(*_: object) -> None:
        raise _Slow

    _compare("n", "n")  # imports what it needs
    signal.signal(signal.SIGPROF, ring)
    sys.stdout.write(READY.decode())
    sys.stdout.flush()
    for line in sys.stdin:
        try:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            said = _compare(*json.loads(line))
        except (_Slow, Exception):  # whatever hostile text made a parser raise: not equal
            said = False
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
