"""Memory that other ranks can map, for Comm.register."""
from __future__ import annotations

import ctypes
import math
import weakref
from typing import Any

import numpy as np

from ._library import check, lib


def empty(shape: int | tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    """Returns a NumPy array in memory that other ranks can map. Its values are not set. Freed when the last array on it is gone."""
    shape, dtype = (shape,) if isinstance(shape, int) else tuple(shape), np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    pointer = ctypes.c_void_p()
    check(lib.qcclMemAlloc(ctypes.byref(pointer), max(size, 1)))
    memory = (ctypes.c_char * max(size, 1)).from_address(pointer.value)
    weakref.finalize(memory, lib.qcclMemFree, pointer.value).atexit = False
    return np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape)
