"""Equality of formulas by math-verify and sympy, in processes that can be ended.

Neither library can be interrupted from a thread, and `9**9**9` does not return: so each comparison runs in a worker
process, `python -m interplay.rewards.algebra`, which takes a line of JSON and gives one back. A worker has an alarm for
slow algebra and a memory limit; one that does not answer in time is killed and replaced. Too slow counts as not equal.
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
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

from interplay.errors import InterplayError

SECONDS = 3.0  # of algebra, by the worker's own alarm
GRACE = 2.0  # more before it is killed
STARTING = 60.0  # sympy takes a while to import
MEMORY = 2 << 30
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
        self.fresh = True

    def ask(self, gold: str, answer: str) -> bool | None:
        """None: no answer in time, or the worker died; it is then of no further use."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([gold, answer]).encode() + b"\n")
            line = self._line(SECONDS + GRACE + (STARTING if self.fresh else 0.0))
        except OSError:
            line = b""
        self.fresh = False
        return bool(json.loads(line)) if line.endswith(b"\n") else None

    def _line(self, seconds: float) -> bytes:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline() if ready else b""

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
        worker = self.idle.get()
        try:
            if worker is None:
                worker = _Worker()
                self.live.add(worker)
            said = worker.ask(gold, answer)
            if said is None:
                self.live.discard(worker)
                worker.end()
                worker = None
            return bool(said)
        finally:
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

    signal.signal(signal.SIGALRM, ring)
    for line in sys.stdin:
        try:
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            said = _compare(*json.loads(line))
        except (_Slow, Exception):  # whatever hostile text made a parser raise: not equal
            said = False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
