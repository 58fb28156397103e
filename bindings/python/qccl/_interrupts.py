"""Lets signals of Python (Ctrl-C above all) end a call that waits for other ranks.

A communicator's idle function looks for signals while a call waits. If a signal's handler raises, the communicator is revoked, so
that the call returns on every rank, and the exception goes on in the caller. Waits that have no idle function (for a stream, for
the creation of a communicator) are polled instead.
"""
import contextlib
import signal
import threading
import time
import types

from . import _declarations as c
from ._library import lib

SPIN_SECONDS = 50e-6
SHORTEST_SLEEP, LONGEST_SLEEP = 20e-6, 2e-3


class ThreadState(threading.local):
    raised = None  # by a function of the program inside a call of this thread


_thread = ThreadState()


def raise_in_call(error):
    """Lets an exception, which C cannot carry, go on in the call that this thread is inside. A stream's thread has no such call."""
    _thread.raised = error


def has_raised_in_call():
    return _thread.raised is not None


# The code of functions that C calls, and which let all that they catch go on in the call.
CALLBACKS: set[types.CodeType] = set()


def handler_outside_of_callbacks(handler):
    def handle(number, frame):
        if frame is None or frame.f_code not in CALLBACKS:
            return handler(number, frame)
        try:
            return handler(number, frame)
        except BaseException as error:
            raise_in_call(error)

    return handle


@contextlib.contextmanager
def callbacks_without_signals():
    """Lets no handler of a signal raise in a function of CALLBACKS, because the interpreter runs handlers also where a function
    begins, before its `try`. Functions that these call are interrupted as always. For the main thread.
    """
    handlers = {number: handler for number in signal.valid_signals() if callable(handler := signal.getsignal(number))}
    for number, handler in handlers.items():
        signal.signal(number, handler_outside_of_callbacks(handler))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class SignalWatch:
    """The idle function of one communicator, and what a signal's handler has raised in it."""

    def __init__(self):
        self.comm = None  # the handle, as soon as there is one
        self.raised = None
        # The interpreter runs the handlers of signals where a function begins, or a generator goes on. A function would not have
        # entered its `try` by then, and ctypes would drop the exception.
        looking = self._look()
        next(looking)
        self.function = c.qcclIdle_t_function(looking.send)

    def _look(self):
        while True:
            try:
                yield
            except GeneratorExit:
                return
            except BaseException as error:
                self.raised = error
                if self.comm is not None:
                    lib.qcclCommRevoke(self.comm)

    def raise_if_interrupted(self):
        for keeper in (self, _thread):
            if keeper.raised is not None:
                raised, keeper.raised = keeper.raised, None
                raise raised


def is_main_thread():
    return threading.current_thread() is threading.main_thread()


def poll_until(is_done):
    """Calls `is_done` until it returns something true, which is returned; signals are handled meanwhile."""
    begin, sleep = time.perf_counter(), SHORTEST_SLEEP
    while not (answer := is_done()):
        if time.perf_counter() - begin > SPIN_SECONDS:
            time.sleep(sleep)
            sleep = min(2 * sleep, LONGEST_SLEEP)
    return answer
