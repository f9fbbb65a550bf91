"""Progress of a long command: a bar on a terminal, or plain lines if the output is a file or a pipe."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    Task,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

log = logging.getLogger(__name__)

EVERY = 10.0  # least seconds between two lines of one stage


class LastingConsole(Console):
    """The console of a command that works for long. It goes on when its output is no longer read, as after
    `| head -1`, because what it does is kept in a folder."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())  # what is still in the file's buffer goes there too
        os.close(nowhere)
        log.warning("the output of this command is no longer read; it goes on without printing.")


class Reporter(Protocol):
    """Shows how far a command has come."""

    def __enter__(self) -> Reporter: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def stage(self, name: str, done: int = 0, of: int | None = None, info: str = "", each: bool = False) -> None:
        """Starts a new stage. `done` parts of it are finished already. With `each`, every part gets a line of its own,
        if lines are printed and not a bar."""

    def advance(self, done: int, of: int, info: str) -> None:
        """Shows that `done` parts of the current stage are finished."""


def reporter(console: Console) -> Reporter:
    return Bar(console) if console.is_terminal else Lines(console)


@contextmanager
def games_played(console: Console, of: int) -> Iterator[Callable[[], None]]:
    """Shows how many games were played. The caller must call the yielded function after each game."""
    done = count(1)
    with reporter(console) as progress:
        progress.stage("play", 0, of)
        yield lambda: progress.advance(next(done), of, "games")


class _Left(TimeRemainingColumn):
    """The remaining time, with the word that says so; nothing for a stage of unknown length."""

    def render(self, task: Task) -> Text:
        found = super().render(task)
        return found + " left" if found.plain else found


class Bar:
    """A progress bar that is redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(), _Left(), TextColumn("{task.fields[info]}"),
            console=console, refresh_per_second=4,
        )  # fmt: skip
        self._job = self._bar.add_task("", total=None, info="", visible=False)

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def stage(self, name: str, done: int = 0, of: int | None = None, info: str = "", each: bool = False) -> None:
        self._bar.reset(self._job, total=of, completed=done, visible=True, description=name, info=info)

    def advance(self, done: int, of: int, info: str) -> None:
        self._bar.update(self._job, completed=done, total=of, info=info)


class Lines:
    """Prints a line when a stage begins, and one after each part (each training step). Of stages with many quick parts,
    such as games, it prints the first and the last, and in between at most one line every `EVERY` seconds. This suits
    the log file of a scheduler."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage = ""
        self._said = -EVERY
        self._each = False

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def stage(self, name: str, done: int = 0, of: int | None = None, info: str = "", each: bool = False) -> None:
        self._stage, self._said, self._each = name, -EVERY, each
        at = f" from {done} of {of}" if of and done else f": {of} in all" if of else ""
        self._say(f"{name}{at}{f' ({info})' if info else ''}")

    def advance(self, done: int, of: int, info: str) -> None:
        now = time.monotonic()
        if self._each or now - self._said >= EVERY or done == of:
            self._said = now
            self._say(f"{self._stage} {done}/{of} {info}")

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)
        self._console.file.flush()
