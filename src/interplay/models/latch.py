"""A read-write lock for the weights, which engine and learner share across threads: many may read, or one may write.

On a GPU, kernels still run after the call that started them has returned. So a writer's stream waits for the streams
that readers used, and the writer records an event for which each reader's stream waits once. A reader without a new
event costs the GPU nothing; an event for every step made the engine 5% slower.
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
        self._writer: int | None = None  # the writing thread; it may enter `reading` and `writing` again
        self._depth = 0
        self._read: dict[int, torch.cuda.Stream] = {}  # streams that readers used since the last write, by handle
        self._written: torch.cuda.Event | None = None
        self._seen: dict[int, torch.cuda.Event] = {}  # the last event that each stream has waited for

    def __deepcopy__(self, memo: object) -> Latch:
        return Latch(self._cuda)  # a copied model has its own weights, so it needs its own latch

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While this context is open, the weights do not change. A waiting writer goes before new readers."""
        me = threading.get_ident()
        if self._writer == me:
            yield
            return
        with self._free:
            while self._writer is not None:
                self._free.wait()
            self._readers += 1
            if self._cuda:
                self._follow(torch.cuda.current_stream())
        try:
            yield
        finally:
            with self._free:
                self._readers -= 1
                self._free.notify_all()

    def _follow(self, stream: torch.cuda.Stream) -> None:
        """Make later work on `stream` wait until the last writer's kernels are done."""
        self._read[stream.cuda_stream] = stream
        if self._written is not None and self._seen.get(stream.cuda_stream) is not self._written:
            stream.wait_event(self._written)
            self._seen[stream.cuda_stream] = self._written

    @contextmanager
    def writing(self) -> Iterator[None]:
        """While this context is open, no other thread reads or writes."""
        me = threading.get_ident()
        with self._free:
            while self._writer not in (None, me):
                self._free.wait()
            self._writer = me
            self._depth += 1
            while self._readers:
                self._free.wait()
            read, self._read = self._read, {}
        for stream in read.values():
            torch.cuda.current_stream().wait_stream(stream)
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
    """The latch of a model's weights; every call returns the same one."""
    found: Any = getattr(module, "_interplay_latch", None)
    if found is None:
        found = Latch(next(module.parameters()).is_cuda)
        object.__setattr__(module, "_interplay_latch", found)
    latch: Latch = found
    return latch
