"""Process 1 of a job: its folder, its program, and how that ended."""

from __future__ import annotations

import json
import os
import signal

from interplay.execution.jail.job import ReceivedJob
from interplay.execution.jail.namespaces import MS_NODEV, MS_NOSUID, mount
from interplay.execution.jail.program import become_program
from interplay.execution.jail.syscall import LIBC, SET_PDEATHSIG, JailError

PRIVATE = "/tmp"  # of the private root: where a job's folder is mounted


def fill(folder: str, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


def run_init(
    job: ReceivedJob, level: str, folder: str, readable: list[str], pipes: tuple[int, int, int], report: int
) -> None:
    """Never returns; the report is how the program ended, or what went wrong before it began."""
    answer: dict[str, object]
    try:
        LIBC.prctl(SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if level == "namespaces":
            size = int(job.limits["files_mb"] * 1024)
            mount(
                "tmpfs", PRIVATE, "tmpfs", MS_NOSUID | MS_NODEV, f"size={size}k,nr_inodes={1024 + size // 4},mode=700"
            )
            folder = f"{PRIVATE}/job"
            os.mkdir(folder)
        try:
            fill(folder, job.files)
        except OSError as error:
            raise JailError(
                f"the job's files cannot be written: {error.strerror}; set limits.files_mb higher"
            ) from None
        heard, told = os.pipe()
        child = os.fork()
        if child == 0:
            become_program(job, level, folder, readable, pipes, told)
        os.close(told)
        for pipe in pipes:
            os.close(pipe)
        trouble = os.read(heard, 4096)
        while True:
            pid, status, usage = os.wait3(0)
            if pid == child:
                break
        if trouble:
            raise JailError(trouble.decode(errors="replace"))
        full = level == "namespaces" and os.statvfs(folder).f_bavail * 4 < 64
        answer = {"status": status, "full": full, "cpu": usage.ru_utime + usage.ru_stime}
    except (JailError, OSError) as error:
        answer = {"trouble": str(error)}
    os.write(report, json.dumps(answer).encode())
    os._exit(0)
