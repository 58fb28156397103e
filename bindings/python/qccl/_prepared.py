"""Prepared calls: a collective whose arguments are checked and whose plan is made once, and which starts any number of times.

Comm.prepare makes them.
"""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from . import _declarations as c
from ._calls import Call, make
from ._handles import Handle
from ._library import check, lib

if TYPE_CHECKING:
    from ._comm import Comm

# The arguments of each v-form's function by the names that qcclCollCreateV has for them.
V_FORMS: dict[str, dict[str, str]] = {
    "qcclAllGatherV": {"counts": "recv_counts", "displs": "recv_displs"},
    "qcclReduceScatterV": {"counts": "send_counts", "displs": "send_displs"},
    "qcclGatherV": {"send_count": "send_counts", "counts": "recv_counts", "displs": "recv_displs"},
    "qcclScatterV": {"counts": "send_counts", "displs": "send_displs", "recv_count": "recv_counts"},
    "qcclAllToAllV": {},
}


class Prepared(Handle):
    """A call that can be started again and again on the same arrays.

        call = comm.prepare("all_reduce", x, codec="int8")
        for _ in range(steps):
            ...                       # writes x
            result = call.start()     # x has the sum

    close() frees it, also after the end of its communicator.
    """

    _kind = "prepared call"
    _comm: Comm
    _call: Call
    result: Any  # what the method of the same name would return

    def _prepare(self, comm: Comm, call: Call) -> None:
        given = dict(zip(c.FUNCTIONS[call.name][1], call.arguments))
        collective = getattr(c, call.name.replace("qccl", "qcclColl", 1))
        config = None if call.config is None else ctypes.byref(call.config)
        common = (given.get("op", 0), given.get("root", 0), comm._open_handle(), call.stream, config)
        handle = ctypes.c_void_p()
        if call.name in V_FORMS:
            made = self._make_v(handle, collective, {V_FORMS[call.name].get(key, key): value for key, value in given.items()}, common)
        else:
            count = next((given[key] for key in ("count", "send_count", "recv_count") if key in given), 0)
            made = lib.qcclCollCreate(ctypes.byref(handle), collective, given.get("send"), given.get("recv"), count, given.get("type", 0),
                                      *common)
        check(made, comm._handle)
        self._comm, self._call, self._has_function = comm, call, call.has_function()
        self._made(handle.value)

    @staticmethod
    def _make_v(handle: ctypes.c_void_p, collective: int, given: dict[str, Any], common: tuple[Any, ...]) -> int:
        for name in ("send_counts", "recv_counts"):
            if isinstance(given.get(name), int):
                given[name] = (ctypes.c_size_t * 1)(given[name])
        return lib.qcclCollCreateV(ctypes.byref(handle), collective, given["send"], given.get("send_counts"), given.get("send_displs"),
                                   given["recv"], given.get("recv_counts"), given.get("recv_displs"), given["type"], *common)

    def start(self) -> Any:
        """Makes the call, and returns what the method would."""
        result = make(self._has_function, lib.qcclCollStart, self._open_handle())
        self._call.hold_on_stream()
        self._comm._watch.raise_if_interrupted()
        check(result, self._comm._handle)
        return self.result

    def _destroy(self, handle: int) -> int:
        return lib.qcclCollFree(handle)
