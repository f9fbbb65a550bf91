"""What the processes of a run use, and whether a run has left something behind.

It uses the standard library only, and no other file of the package, because `worker.py` imports it under the program's
own Python.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interplay.envs.programs.forked import ForkedRun

PATIENCE = 5  # milliseconds in which the threads of a run that has returned must have ended
# On a busy machine a thread that is about to end may wait for a processor. So those that run are given more time.
PATIENCE_IF_IT_RUNS = 50


class RunWatch:
    """`processes` is the module that reads what the kernel knows, and `proc` a descriptor of /proc that was opened
    before the worker was isolated."""

    def __init__(self, made: dict, processes: Any, proc: int) -> None:
        self.made, self.processes, self.proc = made, processes, proc

    def find_numbers(self, jobs: Sequence[ForkedRun]) -> None:
        """Find the numbers that /proc shows for processes that have begun their first run. If the worker is in a
        namespace of its own, they differ from the numbers that it sees itself."""
        new = {job.pid: job for job in jobs if not job.shown and job.place >= 0}
        found = {pid: pid for pid in new}
        if new and self.made["walls"]:
            found = self.processes.new_children({job.shown for job in jobs}, self.proc)
        for pid, job in new.items():
            job.shown = found.get(pid, 0)

    def excess_of(self, job: ForkedRun) -> str:
        """What the processes of a run use more than they may; empty if there is nothing."""
        made, most = self.made, self.made["memory_mb"]
        members = self.processes.family(job.shown, self.proc, itself=True)
        if len(members) > made["processes"]:
            return f"it used more than env.program.processes ({made['processes']})"
        if any(self.cpu_seconds(pid, job) > made["cpu_seconds"] for pid in members):
            return f"it used more than env.program.cpu_seconds ({made['cpu_seconds']:g})"
        if sum(self.processes.resident(pid, self.proc) for pid in members) <= most:  # quick: shared pages count often
            return ""
        used = sum(self.processes.memory_of(tasks, self.proc) for tasks in members.values())
        return f"it used more than env.program.memory_mb ({most:g})" if used > most else ""

    def cpu_seconds(self, pid: int, job: ForkedRun) -> float:
        """The CPU time of a process in this run. Only the first process of a run can have had other runs before."""
        used: float = self.processes.cpu_seconds(pid, self.proc)
        return used - job.spent if pid == job.shown else used

    def is_alone(self, job: ForkedRun) -> bool:
        """Whether a run that has returned has left only its first process, with one thread. A thread that the program
        has waited for can still be seen for a moment."""
        job.spent = self.processes.cpu_seconds(job.shown, self.proc)
        for looked in range(PATIENCE_IF_IT_RUNS):
            members = self.processes.family(job.shown, self.proc, itself=True)
            tasks = 1 if job.group is None else job.group.tasks()
            if tasks == 1 and [len(threads) for threads in members.values()] == [1]:
                return True
            others = [task for task in members.get(job.shown, ()) if task != f"{job.shown}/task/{job.shown}"]
            if looked >= PATIENCE and not any(self.processes.runs(task, self.proc) for task in others):
                return False
            time.sleep(0.001)
        return False
