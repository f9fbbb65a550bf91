"""Programs that share memory between processes."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

from commands import talk

SHARED = "/dev/shm"
RUNS = [0]


def square(number: int) -> int:
    return number * number


def computes(row: dict[str, Any]) -> dict[str, Any]:
    """Uses a pool and an executor, and leaves a file. Shared memory starts a process that stays, so such a process of a
    run is not kept."""
    RUNS[0] += 1
    found = os.listdir(SHARED)
    talk(text="?")
    with multiprocessing.Pool(2) as pool:
        squares = pool.map(square, range(4))
        pool.close()
        pool.join()
    with ProcessPoolExecutor(2) as executor:
        again = list(executor.map(square, range(4)))
    same = True
    if "MEMORY" in os.environ:
        memory = SharedMemory("memory", create=True, size=1000)
        same = SharedMemory("memory").size == memory.size
    Path(SHARED, "left").write_text("x")
    return {"run": RUNS[0], "found": found, "squares": squares, "again": again, "same": same, "own": os.listdir()}


def fills(row: dict[str, Any]) -> list[bool]:
    """Whether three quarters of the limit can be written to shared memory, and then again to its folder."""
    talk(text="?")
    done = []
    for path in (f"{SHARED}/large", "large"):
        try:
            Path(path).write_bytes(bytes(3 << 18))
            done.append(True)
        except OSError:
            done.append(False)
    return done
