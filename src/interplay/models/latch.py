"""Engine and learner use the same weights from two threads: many may read them, and one may write when nobody reads.

On a GPU kernels run after the call that started them has returned. So a reader leaves an event behind its last kernel
that the writer's kernels wait for, and a writer one that the next reader's kernels wait for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


class Latch:
    def __init__(self, cuda: bool = False) -> None:
        self._cuda = cuda
        self._free = threading.Condition()
        self._readers = 0
        self._writer: int | None = None  # the thread that writes; it may read and write again inside
        self._depth = 0
        self._read: dict[int, torch.cuda.Event] = {}  # the last one of each thread
        self._written: torch.cuda.Event | None = None

    def __deepcopy__(self, memo: object) -> Latch:
        return Latch(self._cuda)  # a copied model has weights, and so a latch, of its own

    @contextmanager
    def reading(self) -> Iterator[None]:
        """The weights stay as they are while this lasts. A writer that waits goes first."""
        me = threading.get_ident()
        if self._writer == me:
            yield
            return
        with self._free:
            while self._writer is not None:
                self._free.wait()
            self._readers += 1
            written = self._written
        if written is not None:
            torch.cuda.current_stream().wait_event(written)
        try:
            yield
        finally:
            event = _recorded() if self._cuda else None
            with self._free:
                if event is not None:
                    self._read[me] = event
                self._readers -= 1
                self._free.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Nobody else reads or writes while this lasts."""
        me = threading.get_ident()
        with self._free:
            while self._writer not in (None, me):
                self._free.wait()
            self._writer = me
            self._depth += 1
            while self._readers:
                self._free.wait()
            read, self._read = self._read, {}
        for earlier in read.values():
            torch.cuda.current_stream().wait_event(earlier)
        try:
            yield
        finally:
            event = _recorded() if self._cuda else None
            with self._free:
                self._written = event or self._written
                self._depth -= 1
                if not self._depth:
                    self._writer = None
                self._free.notify_all()


def _recorded() -> torch.cuda.Event:
    event = torch.cuda.Event()
    event.record()
    return event


def latch_of(module: nn.Module) -> Latch:
    """The one latch of a model's weights."""
    found: Any = getattr(module, "_interplay_latch", None)
    if found is None:
        found = Latch(next(module.parameters()).is_cuda)
        object.__setattr__(module, "_interplay_latch", found)
    latch: Latch = found
    return latch
