"""Streams of the host, and requests.

A communicator's methods take a Stream; programs use both. One thread at a time should use a Stream object; the functions
that wait say so, and release the interpreter's lock.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any, Sequence

from . import _errors
from ._handles import REFUSALS, Handle
from ._interrupts import is_main_thread, poll_until
from ._library import IN_PROGRESS, check, lib

SYNC = -1 % 2**(8 * ctypes.sizeof(ctypes.c_void_p))  # QCCL_STREAM_SYNC


class Stream(Handle):
    """A queue of calls with a thread of its own.

        stream = qccl.Stream()
        comm.all_reduce(x, stream=stream)   # returns at once; x is in use
        request = stream.record()
        ...
        request.wait()                      # x has the result

    Calls return at once. Their arrays are in use, and are kept alive, until the stream, or a request behind the call, is done.
    close() waits for the calls, ends the stream, and drops errors that have not been raised.
    """

    _kind = "stream"

    def __init__(self) -> None:
        self._held: list[Any] = []  # what the calls use
        handle = ctypes.c_void_p()
        check(lib.qcclStreamCreate(ctypes.byref(handle)))
        self._made(handle.value)

    def _hold(self, *used: Any) -> None:
        self._held.extend(used)

    def query(self) -> bool:
        """Returns whether all calls are done. Raises the first error of a call since the last one that was raised."""
        result = lib.qcclStreamQuery(self._open_handle())
        if result == IN_PROGRESS:
            return False
        check(result)  # an error may come while other calls are left
        self._held.clear()
        return True

    def synchronize(self) -> None:
        """Waits until all calls are done. Raises the first error of a call since the last one that was raised."""
        if is_main_thread() and self._owner == os.getpid():
            self._synchronize_with_signals()
            return
        result = lib.qcclStreamSynchronize(self._open_handle())
        if result not in REFUSALS:
            self._held.clear()
        check(result)

    def _synchronize_with_signals(self) -> None:
        first = None
        while True:
            try:
                poll_until(self.query)
                break
            except _errors.Error as error:
                first = first or error
                if self._handle is None:  # another thread has closed the stream
                    break
        if first:
            raise first

    def record(self) -> Request:
        """Returns a request that is done when all calls so far are."""
        return Request(self)

    def _destroy(self, handle: int) -> int:
        return lib.qcclStreamDestroy(handle)

    def _ended(self) -> None:
        self._held.clear()

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.synchronize()
        self.close()


class Request:
    """A point in a stream: done when all calls that were put into the stream before it are done."""

    def __init__(self, stream: Stream) -> None:
        self._handle = None
        handle = ctypes.c_void_p()
        check(lib.qcclRequestRecord(stream._open_handle(), ctypes.byref(handle)))
        self._handle, self._stream = handle, stream
        self._held, stream._held = stream._held, []

    def test(self) -> bool:
        """Returns whether the calls are done. Raises their first error."""
        if self._handle is None:
            return True
        is_done = ctypes.c_int()
        result = lib.qcclTest(ctypes.byref(self._handle), ctypes.byref(is_done))
        return self._end(result) if is_done.value else bool(check(result))

    def wait(self) -> None:
        """Waits until the calls are done. Raises their first error."""
        if is_main_thread():
            poll_until(self.test)
        elif self._handle is not None:
            self._end(lib.qcclWait(ctypes.byref(self._handle)))

    def _end(self, result: int) -> bool:
        if not self._handle:  # else it was a refusal
            self._handle, self._held = None, []
        check(result)
        return True

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            with contextlib.suppress(Exception):
                self._stream._hold(*self._held)
                lib.qcclRequestFree(self._handle)


def wait_all(requests: Sequence[Request]) -> None:
    """Waits until all requests are done. Raises the first error in their order."""
    first = None
    for request in requests:
        try:
            request.wait()
        except _errors.Error as error:
            first = first or error
    if first:
        raise first


def wait_any(requests: Sequence[Request]) -> int | None:
    """Waits until one of the requests is done, and returns its index; None if all have been waited for before."""
    left = [index for index, request in enumerate(requests) if request._handle is not None]
    if not left:
        return None
    return poll_until(lambda: next((index + 1 for index in left if requests[index].test()), None)) - 1
