"""Prepared calls: a collective whose arguments are checked and whose plan is made once, and which starts any number of times.

Comm.prepare makes them.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
from typing import TYPE_CHECKING, Any

from . import _declarations as c
from . import _errors
from ._library import check, lib

if TYPE_CHECKING:
    from ._comm import Comm

# The arguments of each v-form's function by the names that qcclCollCreateV has for them.
V_FORMS = {"qcclAllGatherV": {"counts": "recv_counts", "displs": "recv_displs"},
           "qcclReduceScatterV": {"counts": "send_counts", "displs": "send_displs"},
           "qcclGatherV": {"send_count": "send_counts", "counts": "recv_counts", "displs": "recv_displs"},
           "qcclScatterV": {"counts": "send_counts", "displs": "send_displs", "recv_count": "recv_counts"},
           "qcclAllToAllV": {}}


class Prepared:
    """A call that can be started again and again on the same arrays.

        call = comm.prepare("all_reduce", x, codec="int8")
        for _ in range(steps):
            ...                       # writes x
            result = call.start()     # x has the sum
    """

    _handle: int | None = None
    _comm: Comm
    result: Any  # what the method of the same name would return

    def _make(self, comm: Comm, name: str, arguments: tuple[Any, ...], stream: int | None, config: Any, held: Any) -> None:
        given = dict(zip(c.FUNCTIONS[name][1], arguments))
        collective = getattr(c, name.replace("qccl", "qcclColl", 1))
        common = (given.get("op", 0), given.get("root", 0), comm._open_handle(), stream, config)
        handle = ctypes.c_void_p()
        if name in V_FORMS:
            made = self._make_v(handle, collective, {V_FORMS[name].get(key, key): value for key, value in given.items()}, common)
        else:
            count = next((given[key] for key in ("count", "send_count", "recv_count") if key in given), 0)
            made = lib.qcclCollCreate(ctypes.byref(handle), collective, given.get("send"), given.get("recv"), count, given.get("type", 0),
                                      *common)
        check(made, comm._handle)
        self._handle, self._comm, self._held, self._owner = handle.value, comm, held, os.getpid()

    @staticmethod
    def _make_v(handle: ctypes.c_void_p, collective: int, given: dict[str, Any], common: tuple[Any, ...]) -> int:
        for name in ("send_counts", "recv_counts"):
            if isinstance(given.get(name), int):
                given[name] = (ctypes.c_size_t * 1)(given[name])
        return lib.qcclCollCreateV(ctypes.byref(handle), collective, given["send"], given.get("send_counts"), given.get("send_displs"),
                                   given["recv"], given.get("recv_counts"), given.get("recv_displs"), given["type"], *common)

    def start(self) -> Any:
        """Makes the call, and returns what the method would."""
        if self._handle is None:
            raise _errors.InvalidUsage("the prepared call has been closed")
        result = lib.qcclCollStart(self._handle)
        self._comm._watch.raise_if_interrupted()
        check(result, self._comm._handle)
        return self.result

    def close(self) -> None:
        """Frees the prepared call, also after the end of its communicator."""
        if self._handle is not None and self._owner == os.getpid():
            handle, self._handle = self._handle, None
            check(lib.qcclCollFree(handle))

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
