"""Captures CUDA graphs that share one pool of memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

_CAPTURE = threading.Lock()  # only one engine of a process captures a graph at a time


class Recorder:
    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._filled = False  # the pool has the memory of a graph
        self._pool = self._new_pool()

    def _new_pool(self) -> Any:
        return torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None

    @cached_property
    def _side(self) -> torch.cuda.Stream:
        """The stream on which graphs are captured. Torch's default capture stream is shared by all threads."""
        return torch.cuda.Stream()

    def record(self, step: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """Capture a graph of `step`. Returns it with the tensor in which it leaves its result; other graphs of this
        recorder may overwrite that tensor. Before the capture, the step runs once, so that its kernels are compiled."""
        step()
        try:
            return self._record(step)
        except torch.OutOfMemoryError:
            pass  # a capture cannot use the memory that torch keeps for later
        torch.cuda.empty_cache()
        return self._record(step)

    def _record(self, step: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        graph = torch.cuda.CUDAGraph()
        self._side.wait_stream(torch.cuda.current_stream())
        with _CAPTURE, torch.cuda.stream(self._side):
            # Not `torch.cuda.graph`: it first gives all memory that torch keeps for later back to the GPU, and every
            # later allocation is slow until torch has it again.
            graph.capture_begin(self._pool, capture_error_mode="thread_local")
            try:
                out = step()
            except BaseException:  # raised again; without an end, the stream would record for ever
                with suppress(Exception):
                    graph.capture_end()
                if not self._filled:  # torch does not use a pool again that has lost its only graph
                    self._pool = self._new_pool()
                raise
            graph.capture_end()
        self._filled = True
        return graph, out

    def renew(self) -> None:
        """Free the memory of all graphs. Nobody may use them any more."""
        self._filled, self._pool = False, self._new_pool()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
