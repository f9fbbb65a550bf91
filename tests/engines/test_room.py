"""The memory of an engine's cache."""

from __future__ import annotations

import ctypes
import resource
import sys

import pytest
import torch
from torch import Tensor

from interplay.engines.local.room import zeros


def resident(memory: Tensor) -> int:
    """How many bytes of this tensor are in memory. (What other threads of this process take does not count.)"""
    page = resource.getpagesize()
    begin = -(-memory.data_ptr() // page) * page
    pages = (memory.data_ptr() + memory.nbytes - begin) // page
    found = (ctypes.c_ubyte * pages)()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mincore(ctypes.c_void_p(begin), ctypes.c_size_t(pages * page), found) == 0, ctypes.get_errno()
    return page * sum(one & 1 for one in found)


@pytest.mark.skipif(sys.platform != "linux", reason="it asks Linux which pages of memory are there")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cache_on_a_cpu_takes_memory_only_where_it_is_used(dtype: torch.dtype) -> None:
    # Memory that the process has used and freed, and that the C library keeps, must not be taken for the cache.
    bytearray(31 << 20)  # from now on the C library takes smaller pieces from its heap
    pieces = [bytearray(16 << 20) for _ in range(20)]
    del pieces[:-1]
    cache = zeros((1 << 20, 2, 32), dtype, torch.device("cpu"))
    cache[5] = 1
    assert cache.nbytes >= 1 << 27 and resident(cache) < 1 << 24
    assert cache.dtype is dtype and cache.data_ptr() % 64 == 0
    assert cache[:100].sum() == 64 == cache[5].sum()
    assert resident(cache.clone()) > 1 << 26
