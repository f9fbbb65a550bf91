"""Makes Triton's interpreter faster. A script that runs under TRITON_INTERPRET=1 imports this file for its effect.

The interpreter prepares `triton.language` again at every launch and at every call of a function inside a kernel, and it
builds the table of NumPy's types at every operation. Both are the same every time, so here they are made only once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter


class Kept:
    """Replaces what would undo the preparation after a launch: the next launch needs the same one."""

    def restore(self) -> None:
        pass


_prepare, _prepared = interpreter._patch_lang, set[int]()


def _prepare_once(function: Callable[..., Any]) -> Kept:
    module = function.__globals__  # it says which parts of triton.language the function uses, and lives as long as it
    if id(module) not in _prepared:
        _prepared.add(id(module))
        _prepare(function)
    return Kept()


def _numpy_type(kind: Any) -> np.dtype:
    scalar = kind.scalar  # of a block, the type of its elements; a block or a pointer cannot be the key of a cache
    return _numpy_pointer if isinstance(scalar, tl.pointer_type) else _numpy_type_of(scalar)


_numpy_type_of = cache(interpreter._get_np_dtype)
_numpy_pointer = interpreter._get_np_dtype(tl.pointer_type(tl.float32))
interpreter._patch_lang = _prepare_once
interpreter._get_np_dtype = _numpy_type
