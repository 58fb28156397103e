"""The base of the package's objects that stand for a handle of the C library.

Communicators, codecs, operations, streams, prepared calls and registrations inherit it. Any thread may end a handle; whether that
blocks is up to the C function that ends it.
"""
from __future__ import annotations

import contextlib
import multiprocessing.util
import os
import threading
from typing import TYPE_CHECKING, Any, Callable, ClassVar

from . import _declarations as c
from . import _errors
from ._library import SUCCESS, check

if TYPE_CHECKING:
    from typing_extensions import Self

# Results of a function that has done nothing.
REFUSALS = (c.qcclInvalidArgument, c.qcclInvalidUsage)


_workers: dict[Callable[..., Any], int] = {}  # functions, and the process that calls them at its end


def at_the_end_of_workers(function: Callable[..., Any], *arguments: Any) -> None:
    """Lets the children of multiprocessing call a function of atexit: they end without what atexit has, or without what it had
    before the fork. Each process registers for itself, and may do so again.
    """
    if _workers.get(function) != os.getpid():
        _workers[function] = os.getpid()
        multiprocessing.util.Finalize(None, function, args=arguments, exitpriority=10)


class Handle:
    """A handle that the process which made it ends, once. C functions take the object in the handle's place."""

    _kind: ClassVar[str]  # in errors
    _handle: int | None = None  # None: not made yet, or ended
    _owner = 0

    def _made(self, handle: int | None) -> None:
        self._handle, self._owner = handle, os.getpid()
        self._ending: set[int] = set()  # threads in the function that ends it

    def _open_handle(self) -> int:
        if self._handle is None:
            raise _errors.InvalidUsage(f"the {self._kind} has been closed")
        return self._handle

    @property
    def _as_parameter_(self) -> int:  # ctypes asks for it
        return self._open_handle()

    def _destroy(self, handle: int) -> int:
        """Calls the C function that ends the handle, and returns its result."""
        raise NotImplementedError

    def _ended(self) -> None:
        """Lets go what the library has used as long as there was the handle."""

    def _end(self, destroy: Callable[[int], int]) -> None:
        """Ends the handle, unless the library refuses that: then the handle stays, and the refusal is raised."""
        if (handle := self._handle) is None:
            return
        thread, result = threading.get_ident(), SUCCESS  # also if a signal's handler raises when the function has returned
        self._ending.add(thread)
        try:
            if self._owner == os.getpid():
                result = destroy(handle)
                check(result)
        except _errors.Error:
            # Two threads may end it at the same time. One of them does.
            if result not in REFUSALS or not (self._ending - {thread} or self._handle is None):
                raise
        finally:
            if result not in REFUSALS:
                self._handle = None
                self._ended()
            self._ending.discard(thread)

    def close(self) -> None:
        """Ends it. Raises InvalidUsage, and leaves it as it is, while another thread uses what must not end under it."""
        self._end(self._destroy)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()
