"""The lock of a run folder. A process that trains in the folder holds it. The lock is released when the process ends,
even if it is killed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from interplay.errors import ConfigError

_TRIES, _PAUSE = 50, 0.02  # `is_training` holds the lock for a moment, on a busy machine for a tenth of a second


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Locks the run folder, because two trainers in one folder would overwrite each other's files. A second trainer
    gets a ConfigError."""
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder, os.O_RDONLY)
    try:
        with suppress(ImportError, OSError):  # some systems have no such locks
            if not _locked(held):
                raise ConfigError(
                    f"another process is training in run folder '{folder}'; wait for it, end it, or choose another "
                    "--run."
                )
        yield
    finally:
        os.close(held)
        with suppress(OSError):  # removes the folder only if nothing was written into it
            folder.rmdir()


def _locked(held: int) -> bool:
    import fcntl

    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if left:
                time.sleep(_PAUSE)
    return False


def is_training(folder: Path) -> bool | None:
    """Whether a process trains in the run folder now; None if this system cannot tell."""
    try:
        import fcntl

        held = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
        finally:
            os.close(held)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return None
    return False
