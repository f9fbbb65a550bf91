"""How many short Python programs the sandbox runs in a second, with warm workers, at each level this machine offers.

    python benchmarks/sandbox.py [--programs 400] [--workers 2]

Rate by the clock, which falls with whatever else the machine is doing; CPU time of one program (ours and its own, all
processes), which hardly does; the rate that `workers` idle cores would give at that CPU time; and how many times
cheaper that is than starting an interpreter for each program.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time

from interplay.execution.sandbox import LEVELS, IsolationLevel, Job, Sandbox, offered

PROGRAM = "n = int(input())\nprint(sum(i * i for i in range(n)))"


def cpu() -> float:
    """Of this process and of every child that has ended and been waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in used)


def measure(level: IsolationLevel, programs: int, workers: int) -> tuple[float, float]:
    """Seconds and CPU seconds of one program. Starting the workers is measured alone and taken off."""
    before = cpu()
    Sandbox(workers, level).warm().close()
    starting, before = cpu() - before, cpu()
    with Sandbox(workers, level).warm() as box:
        began = time.perf_counter()
        results = box.map(Job(PROGRAM, stdin=str(100 + i)) for i in range(programs))
        seconds = time.perf_counter() - began
    assert [int(r.stdout) for r in results] == [sum(i * i for i in range(100 + n)) for n in range(programs)]
    return seconds / programs, (cpu() - before - starting) / programs


def plain(programs: int) -> tuple[float, float]:
    """The same without a sandbox: an interpreter started for each program, one after the other."""
    before, began = cpu(), time.perf_counter()
    for i in range(programs):
        command = [sys.executable, "-I", "-S", "-c", PROGRAM]
        subprocess.run(command, input=str(100 + i), capture_output=True, text=True, check=True)
    return (time.perf_counter() - began) / programs, (cpu() - before) / programs


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--programs", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    print(f"{args.programs} programs, {args.workers} workers, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    _, start = plain(max(10, args.programs // 20))
    print("| level | programs/s | CPU ms a program | programs/s on idle cores | CPU against `python -c` |")
    print("|---|---|---|---|---|")
    for level in LEVELS:
        if reason := offered(level):
            print(f"| {level} | not offered: {reason} | | | |")
            continue
        wall, used = measure(level, args.programs, args.workers)
        idle = args.workers / used
        print(
            f"| {level} | {1 / wall:.0f} | {used * 1e3:.1f} | {idle:.0f} | {start * 1e3:.1f} ms, ×{start / used:.2f} |"
        )


if __name__ == "__main__":
    main()
