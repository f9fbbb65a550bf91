"""What a recorder of CUDA graphs does if a capture fails. The parts of torch that need a GPU are stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from interplay.engines.local.recorder import Recorder

RESULT = torch.zeros(1)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the recorder did, with the pools that it used."""
    out, pools = list[str](), iter(range(9))

    class Graph:
        def capture_begin(self, pool: int, capture_error_mode: str) -> None:
            out.append(f"begin {pool}")

        def capture_end(self) -> None:
            out.append("end")

    for name, stand_in in {
        "CUDAGraph": Graph,
        "Stream": lambda: SimpleNamespace(wait_stream=lambda other: None),
        "current_stream": lambda: None,
        "stream": nullcontext,
        "graph_pool_handle": lambda: next(pools),
        "empty_cache": lambda: out.append("empty"),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return out


def failing(said: list[str], *errors: Exception | None) -> Callable[[], torch.Tensor]:
    """A step that raises these errors, one at each call."""
    left = iter(errors)

    def step() -> torch.Tensor:
        said.append("step")
        error = next(left, None)
        if error is not None:
            raise error
        return RESULT

    return step


FULL = torch.OutOfMemoryError("full")
CUDA = torch.device("cuda")


def test_a_step_runs_once_before_its_capture(said: list[str]) -> None:
    recorder = Recorder(CUDA)
    assert recorder.record(failing(said))[1] is RESULT
    recorder.record(failing(said))
    recorder.renew()
    recorder.record(failing(said))
    assert said == [*(["step", "begin 0", "step", "end"] * 2), "empty", "step", "begin 1", "step", "end"]


def test_a_capture_without_memory_is_tried_again_with_what_torch_kept(said: list[str]) -> None:
    recorder = Recorder(CUDA)
    assert recorder.record(failing(said, None, FULL))[1] is RESULT
    tried = ["step", "begin 0", "step", "end"]
    assert said == [*tried, "empty", "begin 1", "step", "end"]  # the first pool lost its only graph
    said.clear()
    recorder.record(failing(said, None, FULL))  # now the pool has another graph
    assert said == ["step", "begin 1", "step", "end", "empty", "begin 1", "step", "end"]
    with pytest.raises(torch.OutOfMemoryError, match="full"):
        recorder.record(failing(said, None, FULL, FULL))


def test_another_error_of_a_step_is_raised_and_ends_the_capture(said: list[str]) -> None:
    recorder = Recorder(CUDA)
    with pytest.raises(ValueError, match="of the step"):
        recorder.record(failing(said, None, ValueError("of the step")))
    assert said == ["step", "begin 0", "step", "end"]
    recorder.record(failing(said))
    assert said[4:] == ["step", "begin 1", "step", "end"]
