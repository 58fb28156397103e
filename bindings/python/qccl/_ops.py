"""Operations of reductions: the predefined ones by name, and those that a program makes.

The communicators look operations up here. Any thread may call every function; nothing blocks.
"""
from __future__ import annotations

import ctypes
import traceback
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from . import _buffers
from . import _declarations as c
from . import _errors, _interrupts
from ._handles import Handle
from ._library import check, lib

if TYPE_CHECKING:
    from ._comm import Comm

OPS = {"sum": c.qcclSum, "prod": c.qcclProd, "max": c.qcclMax, "min": c.qcclMin, "avg": c.qcclAvg, "bit_and": c.qcclBitAnd,
       "bit_or": c.qcclBitOr, "bit_xor": c.qcclBitXor, "logical_and": c.qcclLogicalAnd, "logical_or": c.qcclLogicalOr,
       "logical_xor": c.qcclLogicalXor, "min_loc": c.qcclMinLoc, "max_loc": c.qcclMaxLoc}
# What a function of the program sees of each type.
NUMPY_TYPES = {number: np.dtype(name) for name, number in _buffers.TYPES.items() if name in np.sctypeDict}
NUMPY_TYPES |= {number: _buffers.pair_dtype(name) for name, (number, _) in _buffers.PAIRS.items()}


class Op(Handle):
    """An operation that the program makes. End it with close(), or let it go; calls that have been made keep it."""

    _kind = "operation"

    def _destroy(self, handle: int) -> int:
        return lib.qcclRedOpDestroy(handle)


class RedOp(Op):
    """An operation that a function computes.

        def keep_longer(accumulator, values):
            accumulator[:] = numpy.where(numpy.abs(values) > numpy.abs(accumulator), values, accumulator)

        comm.all_reduce(x, op=qccl.RedOp(keep_longer))

    function: called as function(accumulator, values) with two one-dimensional NumPy arrays of equal length. It replaces
        accumulator[i] by accumulator[i] op values[i], for every i by itself, and changes nothing else. `accumulator` is what lower
        ranks have contributed. It may run on any thread. If it raises, its traceback is printed, and the
        communicator fails (SystemFailure). Ctrl-C in it fails the communicator, too, and goes on in the caller.
    commutes: False if operands may not be swapped; then ranks are combined in their order.
    It works on communicators of the host, and without a codec.
    """

    def __init__(self, function: Callable[[np.ndarray, np.ndarray], None], commutes: bool = True) -> None:
        def combine(accumulator: int, values: int, count: int, number: int, _: Any) -> int:
            try:
                if _interrupts.has_raised_in_call():
                    return 1
                dtype = NUMPY_TYPES[number]
                views = [np.frombuffer(memoryview((ctypes.c_char * (count * dtype.itemsize)).from_address(address)), dtype)
                         for address in (accumulator, values)]
                function(*views)
                return int(_interrupts.has_raised_in_call())
            except Exception:
                traceback.print_exc()
                return 1
            except BaseException as error:
                _interrupts.raise_in_call(error)
                return 1

        _interrupts.CALLBACKS.add(combine.__code__)
        # The library may call the function as long as a call has the operation, also when the operation has ended.
        self._function, number = c.qcclRedOpFunction_t(combine), c.c_int32()
        check(lib.qcclRedOpCreate(ctypes.byref(number), self._function, int(commutes), None))
        self._made(number.value)


class PreMulSum(Op):
    """Sums the products of each rank's values and of that rank's scalar. Ranks may have different scalars.

    scalar: a number. dtype: that of the arrays, "float32" for example; comm: a communicator that uses it.
    """

    def __init__(self, scalar: complex, dtype: Any, comm: Comm) -> None:
        dtype = np.dtype(dtype)
        _, number, _ = _buffers.type_of_numpy(dtype, "dtype")
        value, made = np.array(scalar, dtype), c.c_int32()
        check(lib.qcclRedOpCreatePreMulSum(ctypes.byref(made), value.ctypes.data, number, c.qcclScalarHostImmediate,
                                         comm._open_handle()))
        self._made(made.value)


def argument(op: str | Op, values: _buffers.Buffer) -> int | Op:
    """What the C functions take for an operation on these values. It keeps the operation, as far as the program has made it."""
    if isinstance(op, Op):
        op._open_handle()
        if isinstance(op, RedOp) and values.type not in NUMPY_TYPES:
            raise _errors.InvalidArgument(f"op: the function gets NumPy arrays, and NumPy has no {values.dtype}")
        return op
    try:
        return OPS[op]
    except (KeyError, TypeError):
        raise _errors.InvalidArgument(f"op: {op!r} is none of {', '.join(OPS)}, and no qccl.RedOp") from None
