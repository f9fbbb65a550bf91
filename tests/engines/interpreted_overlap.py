"""Run by test_cuda.py under TRITON_INTERPRET=1: the engine works while the GPU's runner samples."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
import overlapped
from interpreted import Interpreted, few_programs

CHUNK = 3


def runner(model: Any, blocks: int) -> Interpreted:
    return Interpreted(model, blocks, 8, 256, chunk=CHUNK)


def main() -> None:
    few_programs()
    torch.set_num_threads(1)
    overlapped.replies_are_the_same(runner, 24)
    overlapped.replies_are_scored_meanwhile(runner)
    for keep_cache in (False, True):
        overlapped.tokens_have_the_version_they_were_started_with(runner, keep_cache)
    overlapped.replies_that_end_during_an_update_are_delivered(runner)
    overlapped.a_lone_request_waits_for_nothing_else(runner, CHUNK)
    overlapped.failures_and_closing_end_every_request(runner)
    print("equal")


if __name__ == "__main__":
    main()
