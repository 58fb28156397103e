"""States: what the codecs of calls have lost of one array, which the next call with the state adds to its values.

Any thread may use a state, one at a time. Saving, loading and resetting a state whose call has not ended is refused.
"""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _arguments, _buffers
from . import _declarations as c
from . import _errors
from ._handles import Handle
from ._library import check, lib

if TYPE_CHECKING:
    from ._comm import Comm

FEEDBACK = {"all": c.qcclFeedbackAll, "first": c.qcclFeedbackFirst}


class State(Handle):
    """Error feedback for all_reduce, reduce and reduce_scatter with sum or avg: each call makes good what the codecs of the calls
    before it have lost of this rank's values and sums.

        state = qccl.State(comm, gradient)
        for step in range(steps):
            comm.all_reduce(gradient, "avg", codec="topk:ratio=0.01", state=state)

    like: an array with the type and the number of values that the calls give; for reduce_scatter with the blocks of all ranks.
    momentum: that of the calls' codec: 0.9 for "dgc" unless its key says otherwise, and 0 for all other codecs.
    seed: of stochastic rounding, the same on all ranks. feedback: "all", or "first": without the errors of complete sums, which
        one rank encodes for all.
    All ranks pass a state, or none does; with the codec "shared" each rank may. The state may outlive the
    communicator, and is of use on others with as many ranks where this rank has the same number. End it with close(), or let it
    go; calls that have been made keep it.
    """

    _kind = "state"

    def __init__(self, comm: Comm, like: Any, *, seed: int = 0, feedback: str = "all", momentum: float = 0.0) -> None:
        config, handle = c.qcclStateConfig_t(), ctypes.c_void_p()
        check(lib.qcclConfigInit(ctypes.byref(config), ctypes.sizeof(config)))
        config.seed = _arguments.whole(seed, "seed", "seed", 0, _arguments.UINT64_MAX)
        if feedback not in FEEDBACK:
            raise _errors.InvalidArgument(f"feedback: {feedback!r}; possible are {', '.join(map(repr, FEEDBACK))}")
        config.feedback = FEEDBACK[feedback]
        if not isinstance(momentum, (int, float)):
            raise _errors.InvalidArgument(f"momentum: {momentum!r} is no number")
        config.momentum = momentum
        buffer = _buffers.describe(like, "like", writable=False)
        check(lib.qcclStateCreate(ctypes.byref(handle), comm._open_handle(), buffer.count, buffer.type, ctypes.byref(config)), comm._handle)
        self._made(handle.value)

    def _destroy(self, handle: int) -> int:
        return lib.qcclStateDestroy(handle)

    def save(self) -> np.ndarray:
        """Returns the state as bytes with a checksum, for a checkpoint: an array of uint8. Each rank saves its own."""
        size = ctypes.c_size_t()
        check(lib.qcclStateBytes(self._open_handle(), ctypes.byref(size)))
        saved = np.empty(size.value, np.uint8)
        check(lib.qcclStateSave(self._open_handle(), saved.ctypes.data, saved.size))
        return saved

    def load(self, saved: Any) -> None:
        """Goes on from what `save` gave to this rank, or to a rank of a communicator of another size.

        saved: an array, bytes, or another object with the buffer protocol. Raises DamagedData if the bytes are not whole, and
        InvalidArgument if they are of another array or rank; the state then stays as it is.
        """
        data = np.frombuffer(saved, np.uint8)
        check(lib.qcclStateLoad(self._open_handle(), data.ctypes.data, data.size))

    def reset(self) -> None:
        """Forgets what is owed, and begins to count calls anew."""
        check(lib.qcclStateReset(self._open_handle()))
