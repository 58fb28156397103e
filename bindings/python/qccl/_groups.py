"""Groups: calls that are made together.

`group` is for programs. The communicators ask `open_group` for the group of this thread, in which a call only registers its
arguments.
"""
from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Iterator

from ._calls import Call, make
from ._library import SUCCESS, lib, check, make_error

if TYPE_CHECKING:
    from ._comm import Comm


class Group:
    """The calls of a group: what they use has to live until its end, and a signal may come in their communicators."""

    def __init__(self) -> None:
        self.depth = 0
        self.comms: set[Comm] = set()
        self.calls: list[Call] = []

    def add(self, comm: Comm, call: Call) -> None:
        self.comms.add(comm)
        self.calls.append(call)


class OpenGroup(threading.local):
    group: Group | None = None


_open = OpenGroup()


def open_group() -> Group | None:
    return _open.group


@contextlib.contextmanager
def group() -> Iterator[None]:
    """Makes the calls in the block together, at its end: sends and receives in any order, and small calls in few transfers.

        with qccl.group():
            for gradient in gradients:
                comm.all_reduce(gradient)

    Arrays of the calls have their results when the block has been left. If the block raises, no call is made. Groups may be
    nested; the outermost one makes the calls.
    """
    check(lib.qcclGroupStart())
    mine = _open.group = _open.group or Group()
    mine.depth += 1
    try:
        yield
    except BaseException:
        # The library makes no call of a group in which one was refused.
        lib.qcclBarrier(None, None)
        _end(mine)
        raise
    result = _end(mine)
    for comm in mine.comms if mine.depth == 0 else ():
        comm._watch.raise_if_interrupted()
    if result != SUCCESS:
        raise make_error(result)
    for call in mine.calls if mine.depth == 0 else ():
        if call.done:
            call.done()


def _end(group: Group) -> int:
    group.depth -= 1
    if group.depth == 0:
        _open.group = None
    calls = group.calls if group.depth == 0 else []
    result = make(any(call.has_function() for call in calls), lib.qcclGroupEnd)
    for call in calls:
        call.hold_on_stream()  # also after a failure, of which only some calls may know
    return result
