"""The program: a forked process that gives up its privileges and then runs the job."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from typing import NoReturn

from interplay.execution.jail import checker, referee, service
from interplay.execution.jail.job import ReceivedJob
from interplay.execution.jail.script import run_source
from interplay.execution.jail.site import Site
from interplay.execution.jail.syscall import JailError
from interplay.execution.jail.walls import restrict

PYTHONS = (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)  # signals whose handling a Python interpreter changes
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
HARNESSES = {"referee": referee.main, "checker": checker.main}  # our own code, run in the place of a program


def become_program(job: ReceivedJob, site: Site, folder: str, pipes: tuple[int, int, int], told: int) -> NoReturn:
    """Errors before the program starts are written to `told`. When `told` is closed, the program has started."""
    code = 1
    try:
        for fd, pipe in enumerate(pipes):
            os.dup2(pipe, fd)
        os.dup2(told, 3)
        os.closerange(4, 1 << 16)
        os.set_inheritable(3, False)
        os.setsid()
        for number in PYTHONS:
            signal.signal(number, signal.SIG_DFL)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(ENVIRONMENT, HOME=folder, TMPDIR=folder)
        os.umask(0o022)
        gc.enable()
        restrict(job, site, folder)
        if job.argv:
            try:
                os.execvpe(job.argv[0], job.argv, os.environ)
            except OSError as error:
                raise JailError(f"the program '{job.argv[0]}' cannot be started: {error.strerror}") from None
        os.close(3)
        if site.service:
            service.serve(site.service, walls=site.level != "rlimits")
        code = HARNESSES[job.harness]() if job.harness else run_source(job.source)
    except JailError as error:
        os.write(3, str(error).encode())
    except BaseException as error:
        with contextlib.suppress(BaseException):
            os.write(3, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(code)
