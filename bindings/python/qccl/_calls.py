"""One call of a collective or of a message, with everything that the library may use until it is done.

The communicators, groups and prepared calls make calls with `make`, which blocks as the C function does; groups, prepared calls and
streams keep them. Any thread may use a call.
"""
from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Callable

from . import _buffers
from . import _declarations as c
from ._codecs import Codec
from ._interrupts import callbacks_without_signals, is_main_thread
from ._ops import RedOp
from ._streams import Stream


@dataclasses.dataclass(slots=True)
class Call:
    """The name of the C function, its arguments up to the communicator, and the rest of what the call uses."""
    name: str
    arguments: tuple[Any, ...]  # an operation of the program among them
    buffers: tuple[_buffers.Buffer, ...]
    codec: Codec | None
    config: c.qcclCollConfig_t | None  # names the codec
    stream: Stream | int | None
    done: Callable[[], None] | None = None  # called when the call has been made

    def has_function(self) -> bool:
        """Whether a function of the program is among the arguments."""
        return True in map(isinstance, self.arguments, itertools.repeat(RedOp))

    def hold_on_stream(self) -> None:
        """Called when the call is in its stream: what it uses lives until the stream is done."""
        if isinstance(self.stream, Stream):
            # Not the call itself: a stream that holds itself would not end when the program lets it go.
            self.stream._hold(self.arguments, self.buffers, self.codec)


def make(has_function: bool, function: Callable[..., int], *arguments: Any) -> int:
    """Makes calls by calling a C function, and returns its result. Blocks as it does. has_function: one of the calls has one."""
    if has_function and is_main_thread():
        with callbacks_without_signals():
            return function(*arguments)
    return function(*arguments)
