"""The memory of an engine's cache."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch

from interplay.engines.local.room import zeros

STATE = Path("/proc/self/statm")


@pytest.mark.skipif(not STATE.exists(), reason="it reads the memory of this process in /proc")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cache_on_a_cpu_takes_memory_only_where_it_is_used(dtype: torch.dtype) -> None:
    def taken() -> int:
        return int(STATE.read_text().split()[1]) * resource.getpagesize()

    before = taken()
    cache = zeros((1 << 20, 2, 32), dtype, torch.device("cpu"))  # at least 128 MiB
    cache[5] = 1
    assert taken() - before < 1 << 24
    assert cache.dtype is dtype and cache.data_ptr() % 64 == 0
    assert cache[:100].sum() == 64 == cache[5].sum()
