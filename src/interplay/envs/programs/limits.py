"""What the processes of a run use, and whether a run has left something behind.

It uses the standard library only, because `worker.py` imports it under the program's own Python. `proc` is a descriptor
of /proc that was opened before the worker was isolated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import processes  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from interplay.envs.programs.forked import ForkedRun

PATIENCE = 5  # milliseconds in which the threads of a run that has returned must have ended


def find_numbers(jobs: Sequence[ForkedRun], walled: bool, proc: int) -> None:
    """Find the numbers that /proc shows for processes that have begun their first run. If the worker is in a namespace
    of its own (`walled`), they differ from the numbers that it sees itself."""
    new = {job.pid: job for job in jobs if not job.shown and job.place >= 0}
    found = {pid: pid for pid in new}
    if new and walled:
        found = processes.new_children({job.shown for job in jobs}, proc)
    for pid, job in new.items():
        job.shown = found.get(pid, 0)


def excess_of(job: ForkedRun, made: dict, proc: int) -> str:
    """What the processes of a run use more than they may; empty if there is nothing."""
    members = processes.family(job.shown, proc, itself=True)
    if len(members) > made["processes"]:
        return f"it used more than env.program.processes ({made['processes']})"
    before = {job.shown: job.spent}  # only the first process can have had other runs
    if any(processes.cpu_seconds(pid, proc) - before.get(pid, 0.0) > made["cpu_seconds"] for pid in members):
        return f"it used more than env.program.cpu_seconds ({made['cpu_seconds']:g})"
    if sum(processes.resident(pid, proc) for pid in members) <= made["memory_mb"]:  # quick: shared pages count often
        return ""
    used = sum(processes.memory_of(tasks, proc) for tasks in members.values())
    return f"it used more than env.program.memory_mb ({made['memory_mb']:g})" if used > made["memory_mb"] else ""


def alone(job: ForkedRun, proc: int) -> bool:
    """Whether a run that has returned has left only its first process, with one thread. A thread that the program has
    waited for can still be seen for a moment."""
    job.spent = processes.cpu_seconds(job.shown, proc)
    for _ in range(PATIENCE):
        members = processes.family(job.shown, proc, itself=True)
        tasks = 1 if job.group is None else job.group.tasks()
        if tasks == 1 and [len(threads) for threads in members.values()] == [1]:
            return True
        time.sleep(0.001)
    return False
