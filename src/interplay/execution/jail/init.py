"""Process 1 of a job: mounts the job's folder, starts the program and reports how it ended."""

from __future__ import annotations

import json
import os
import signal
from typing import NoReturn

from interplay.execution.jail.job import ReceivedJob
from interplay.execution.jail.namespaces import MS_NODEV, MS_NOSUID, PRIVATE, mount
from interplay.execution.jail.program import become_program
from interplay.execution.jail.site import Site
from interplay.execution.jail.syscall import LIBC, SET_PDEATHSIG, JailError


def run_init(job: ReceivedJob, site: Site, folder: str, pipes: tuple[int, int, int], report: int) -> NoReturn:
    """The report says how the program ended, or what went wrong before it started."""
    answer: dict[str, object]
    try:
        LIBC.prctl(SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # the program then cannot send it to process 1
        if site.cgroup is not None:
            site.cgroup.enter()
        if site.level == "namespaces":
            folder = _private_folder(job.limits["files_mb"])
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # the program may rename or remove it
        _fill(folder, job.files)
        heard, told = os.pipe()
        child = os.fork()
        if child == 0:
            become_program(job, site, folder, pipes, told)
        os.close(told)
        for pipe in {*pipes}:
            os.close(pipe)
        trouble = os.read(heard, 4096)
        while True:
            pid, status, usage = os.wait3(0)
            if pid == child:
                break
        if trouble:
            raise JailError(trouble.decode(errors="replace"))
        full = site.level == "namespaces" and os.fstatvfs(held).f_bavail * 4 < 64
        answer = {"status": status, "full": full, "cpu": usage.ru_utime + usage.ru_stime}
    except (JailError, OSError) as error:
        answer = {"trouble": str(error)}
    os.write(report, json.dumps(answer).encode())
    os._exit(0)


def _private_folder(megabytes: float) -> str:
    size = int(megabytes * 1024)
    options = f"size={size}k,nr_inodes={1024 + size // 4},mode=700"
    mount("tmpfs", PRIVATE, "tmpfs", MS_NOSUID | MS_NODEV, options)
    os.mkdir(f"{PRIVATE}/folder")
    return f"{PRIVATE}/folder"


def _fill(folder: str, files: dict[str, bytes]) -> None:
    try:
        for name, content in files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(content)
    except OSError as error:
        raise JailError(f"the job's files cannot be written: {error.strerror}; raise limits.files_mb") from None
