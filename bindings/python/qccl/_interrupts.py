"""Lets signals of Python (Ctrl-C above all) end a call that waits for other ranks.

A communicator's idle function looks for signals while a call waits. If a signal's handler raises, the communicator is revoked, so
that the call returns on every rank, and the exception goes on in the caller. Waits that have no idle function (for a stream, for
the creation of a communicator) are polled instead.
"""
import threading
import time

from . import _declarations as c
from ._library import lib

SPIN_SECONDS = 50e-6
SHORTEST_SLEEP, LONGEST_SLEEP = 20e-6, 2e-3


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
        if self.raised is not None:
            raised, self.raised = self.raised, None
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
