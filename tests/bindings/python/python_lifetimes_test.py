"""What the Python package keeps alive, and for how long: arrays, operations, codecs and streams of calls, and handles of the library.

usage: python_lifetimes_test.py   (PYTHONPATH names the package)
"""
import contextlib
import gc
import os
import signal
import threading
import time
import unittest
import weakref
from unittest import mock

import numpy as np
import qccl
from qccl import _library as library


def add(accumulator, more):
    accumulator += more


class Kept:
    """References that do not keep. alive() says which objects are still there."""

    def __init__(self, *objects):
        self.references = [weakref.ref(each) for each in objects]

    def alive(self):
        gc.collect()
        return [reference() is not None for reference in self.references]


class Lifetimes(unittest.TestCase):
    def setUp(self):
        self.first, self.second = qccl.init_all(2)
        self.addCleanup(self.end)

    def end(self):
        for comm in (self.first, self.second):
            comm.abort()

    def meanwhile(self, function):
        """Runs the function in another thread. The test waits for it at its end, after the calls that it waits for."""
        thread = threading.Thread(target=function)
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def enter(self, comm):
        """Makes a call, also if await_entry is inside the communicator at this moment."""
        for _ in range(1000):
            try:
                return comm.all_reduce(np.ones(4))
            except qccl.InvalidUsage:
                time.sleep(0.001)
        self.fail("the communicator lets nobody in")

    def await_entry(self, comm):
        """Returns when another thread is inside the communicator."""
        for _ in range(1000):
            try:
                comm.prepare("barrier").close()
            except qccl.InvalidUsage:
                return
            time.sleep(0.01)
        self.fail("nobody comes")


class Calls(Lifetimes):
    def test_a_prepared_call_keeps_what_it_uses(self):
        x, op, stream = np.ones(4), qccl.RedOp(add), qccl.Stream()
        kept = Kept(x, op, stream)
        call = self.first.prepare("all_reduce", x, op, stream=stream)
        del x, op, stream
        self.assertEqual(kept.alive(), [True] * 3)
        x = call.start()
        self.second.all_reduce(np.ones(4), qccl.RedOp(add))
        call.close()
        del call
        self.first.finalize()
        self.assertEqual(list(x), [2] * 4)
        del x
        self.assertEqual(kept.alive(), [False] * 3)

    def test_a_stream_keeps_what_a_prepared_call_uses(self):
        x, op = np.ones(4), qccl.RedOp(add)
        kept = Kept(x, op)
        with qccl.Stream() as stream:
            call = self.first.prepare("all_reduce", x, op, stream=stream)
            call.start()
            del call, x, op
            self.assertEqual(kept.alive(), [True] * 2)
            self.second.all_reduce(np.ones(4), qccl.RedOp(add))
            stream.synchronize()
            self.assertEqual(kept.alive(), [False] * 2)

    def test_a_request_takes_what_the_calls_before_it_use(self):
        x, op = np.ones(4), qccl.RedOp(add)
        kept = Kept(x, op)
        with qccl.Stream() as stream:
            self.first.all_reduce(x, op, stream=stream)
            request = stream.record()
            del x, op
            self.assertFalse(request.test())
            self.assertEqual(kept.alive(), [True] * 2)
            self.second.all_reduce(np.ones(4), qccl.RedOp(add))
            request.wait()
            self.assertEqual(kept.alive(), [False] * 2)

    def test_a_group_keeps_what_its_calls_use(self):
        x, op, codec, stream = np.ones(4), qccl.RedOp(add), qccl.Codec("int8"), qccl.Stream()
        y = np.ones(100, np.float32)
        kept = Kept(x, y, op, codec)
        with qccl.group():
            self.first.all_reduce(x, op, stream=stream)
            self.second.all_reduce(np.ones(4), qccl.RedOp(add), stream=stream)
            self.first.send(y, 1, codec=codec)
            received = self.second.recv(np.zeros(100, np.float32), 0, codec=qccl.Codec("int8"))
            self.assertTrue(stream.query())  # the stream has no call yet
            del x, y, op, codec
            self.assertEqual(kept.alive(), [True] * 4)
        np.testing.assert_allclose(received, 1, rtol=0.01)
        # The group is over, and the stream has what runs on it.
        self.assertEqual(kept.alive()[::2], [True, True])
        self.first.abort()
        self.second.abort()
        with self.assertRaises(qccl.Error):
            stream.synchronize()
        self.assertEqual(kept.alive(), [False] * 4)

    def test_a_stream_that_is_let_go_ends(self):
        stream = qccl.Stream()
        kept = Kept(stream)
        self.meanwhile(lambda: self.second.all_reduce(np.ones(4)))
        self.first.all_reduce(np.ones(4), stream=stream)
        gc.disable()
        self.addCleanup(gc.enable)
        del stream
        self.assertIsNone(kept.references[0]())

    def test_handles_that_have_ended_are_refused(self):
        with qccl.Stream() as stream, qccl.Codec("int8") as codec:
            op = qccl.RedOp(add)
            op.close()
        x = np.ones(3, np.float32)
        for pattern, use in (("stream has been closed", lambda: self.first.all_reduce(x, stream=stream)),
                             ("stream has been closed", stream.record), ("stream has been closed", stream.synchronize),
                             ("codec has been closed", lambda: self.first.all_reduce(x, codec=codec)),
                             ("codec has been closed", lambda: codec.encode(x)),
                             ("operation has been closed", lambda: self.first.all_reduce(x, op))):
            with self.assertRaisesRegex(qccl.InvalidUsage, pattern):
                use()
        self.assertEqual(self.first.stats()["calls"], 0)


class Streams(Lifetimes):
    def setUp(self):
        super().setUp()
        self.stream, self.failing = qccl.Stream(), qccl.init_all(2)
        self.addCleanup(self.failing[0].abort)

    def enqueue(self):
        """A call that fails, and behind it one that waits. Returns the array of the second."""
        x = np.ones(4)
        self.failing[0].barrier(stream=self.stream)
        self.first.all_reduce(x, stream=self.stream)
        self.failing[1].abort()
        return x

    def test_an_error_leaves_the_arrays_of_later_calls(self):
        kept = Kept(self.enqueue())
        with self.assertRaises(qccl.Revoked):
            while not self.stream.query():
                time.sleep(0.001)
        self.assertFalse(self.stream.query())
        self.assertEqual(kept.alive(), [True])
        self.second.all_reduce(np.ones(4))
        self.stream.synchronize()
        self.assertEqual(kept.alive(), [False])

    def synchronize_with_an_error(self):
        x = self.enqueue()
        kept = Kept(x)
        timer = threading.Timer(0.2, self.second.all_reduce, (np.ones(4),))
        timer.start()
        with self.assertRaises(qccl.Revoked):
            self.stream.synchronize()
        self.assertEqual(list(x), [2] * 4)
        timer.join()
        del x
        self.assertEqual(kept.alive(), [False])

    def test_synchronize_waits_for_all_calls(self):
        self.synchronize_with_an_error()

    def test_synchronize_waits_in_any_thread(self):
        results = []
        self.meanwhile(lambda: results.append(self.synchronize_with_an_error())).join()
        self.assertEqual(len(results), 1)


class Refusals(Lifetimes):
    def test_a_communicator_stays_while_a_thread_is_inside(self):
        inside = self.meanwhile(lambda: self.enter(self.first))
        self.await_entry(self.first)
        for _ in range(2):
            with self.assertRaises(qccl.InvalidUsage):
                self.first.close()
        self.second.all_reduce(np.ones(4))
        inside.join()
        self.assertEqual(self.first.stats()["calls"], 1)
        self.first.close()
        self.assertEqual(str(self.first), "<qccl.Comm: closed>")

    def test_ranks_that_another_thread_aborts_are_told_so(self):
        """They abort, too, because their `with` raises."""
        for _ in range(20):
            comms = qccl.init_all(2)
            raised = []

            def wait(comms=comms, raised=raised):
                try:
                    with comms[0] as comm:
                        self.enter(comm)
                except qccl.Error as error:
                    raised.append(type(error))

            waiting = threading.Thread(target=wait)
            waiting.start()
            self.await_entry(comms[0])
            comms[0].abort()
            waiting.join()
            comms[1].abort()
            self.assertEqual(raised, [qccl.Revoked])

    def test_a_prepared_call_stays_while_a_thread_is_inside(self):
        call = self.first.prepare("all_reduce", np.ones(4))
        inside = self.meanwhile(lambda: self.enter(self.first))
        self.await_entry(self.first)
        with self.assertRaises(qccl.InvalidUsage):
            call.close()
        self.second.all_reduce(np.ones(4))
        inside.join()
        self.meanwhile(lambda: self.second.all_reduce(np.ones(4)))
        self.assertEqual(list(call.start()), [2] * 4)
        call.close()
        with self.assertRaisesRegex(qccl.InvalidUsage, "the prepared call has been closed"):
            call.start()

    def test_registered_memory_is_freed_at_the_end_of_its_communicator(self):
        results, free = [], library.lib.qcclMemFree
        library.lib.qcclMemFree = lambda pointer: results.append(free(pointer))
        self.addCleanup(setattr, library.lib, "qcclMemFree", free)
        x, y = qccl.empty(1000), qccl.empty(1000)
        self.first.register(x)
        registration = self.first.register(y)
        del x
        gc.collect()
        self.assertEqual(results, [])
        registration.close()
        del y, registration
        gc.collect()
        self.assertEqual(results, [0])
        self.first.close()
        gc.collect()
        self.assertEqual(results, [0, 0])


class Ends(unittest.TestCase):
    """A root does not wait for the other ranks, so the end is the first to find that they did not come to its broadcast."""

    def test_a_mismatch_that_no_call_has_raised(self):
        def body(comm, lead):
            comm.broadcast(np.ones(3), root=comm.rank)
            time.sleep(lead * comm.rank)
            with self.assertRaisesRegex(qccl.Mismatch, "rank 1 calls broadcast with root 1, rank 0 with root 0, in call 1"):
                comm.close()

        for lead in (0, 0.2):  # rank 0 finds the mismatch before rank 1 comes to its end
            qccl.run_threads(2, body, lead)

    def test_a_lost_rank_that_no_call_has_raised(self):
        def body(comm):
            if comm.rank == 0:
                comm.broadcast(np.ones(3))
                with self.assertRaisesRegex(qccl.PeerLost, "rank 1 has left the communicator; broadcast, call 1, waits for it"):
                    comm.close()

        qccl.run_threads(2, body)

    def test_an_error_that_a_call_has_raised(self):
        def body(comm):
            with self.assertRaises(qccl.Mismatch):
                comm.all_reduce(np.ones(3 + comm.rank))
            comm.close()

        qccl.run_threads(2, body)


class Interrupts(unittest.TestCase):
    def test_what_a_function_raises_goes_on_in_the_call(self):
        """Exceptions that are none of Python's `Exception`, such as Ctrl-C."""
        def interrupted(accumulator, more):
            raise KeyboardInterrupt("in the function")

        def in_group(comm, x, op):
            with qccl.group():
                comm.all_reduce(x, op)

        def prepared(comm, x, op):
            with comm.prepare("all_reduce", x, op) as call:
                call.start()

        for form in (lambda comm, x, op: comm.all_reduce(x, op), in_group, prepared):
            def body(comm, form=form):
                with self.assertRaises(BaseException) as caught:
                    form(comm, np.ones(4), qccl.RedOp(interrupted))
                return type(caught.exception)

            kinds = set(qccl.run_threads(2, body))
            self.assertIn(KeyboardInterrupt, kinds)
            self.assertLessEqual(kinds, {KeyboardInterrupt, qccl.RemoteError})

    def test_a_signal_before_the_function_begins(self):
        """Python runs the handler where a function begins: here the one that C calls, outside of every `try`."""
        first, second = qccl.init_all(2)  # without an idle function, which would look for signals
        self.addCleanup(second.abort)
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        entered = []

        def join():
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)
            with contextlib.suppress(qccl.Error):
                second.all_reduce(np.ones(4), qccl.RedOp(add), algorithm="oneshot")

        joining = threading.Thread(target=join)
        joining.start()
        with self.assertRaises(KeyboardInterrupt):
            first.all_reduce(np.ones(4), qccl.RedOp(lambda *arrays: entered.append(arrays)), algorithm="oneshot")
        error = first.async_error()
        first.abort()
        joining.join()
        self.assertEqual(entered, [])
        self.assertIsInstance(error, qccl.SystemFailure)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def check_interrupted_start(self, start, ranks):
        """Ranks 0 and 1 have ended when run_threads raises, whose threads `start` starts."""
        ended = []

        def body(comm):
            try:
                comm.all_reduce(np.ones(4))
            except qccl.Revoked:
                ended.append(comm.rank)

        with mock.patch.object(threading.Thread, "start", start), self.assertRaises(KeyboardInterrupt):
            qccl.run_threads(ranks, body)
        self.assertEqual(sorted(ended), [0, 1])

    def test_threads_end_if_not_all_have_started(self):
        """Ctrl-C comes, or no more threads can be had, before the last rank has its thread, for which the others wait."""
        start = threading.Thread.start

        def start_or_raise(thread):
            if thread.name == "qccl rank 2":
                time.sleep(0.3)
                raise KeyboardInterrupt
            start(thread)

        self.check_interrupted_start(start_or_raise, 3)

    def test_a_thread_that_is_half_started_is_waited_for(self):
        """Ctrl-C comes when the last rank's thread has been asked for but does not run yet."""
        start = threading.Thread.start

        def start_half(thread):
            if thread.name == "qccl rank 1":
                bootstrap = thread._bootstrap
                thread._bootstrap = lambda: (time.sleep(0.3), bootstrap())
                thread._started.wait = mock.Mock(side_effect=KeyboardInterrupt)
            start(thread)

        self.check_interrupted_start(start_half, 2)

    def test_a_signal_that_comes_in_another_thread_ends_the_threads(self):
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        ended, end = [], time.monotonic() + 20

        def body(comm):
            if comm.rank == 1:
                time.sleep(0.3)  # until the main thread waits
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            try:
                while time.monotonic() < end:
                    comm.all_reduce(np.ones(4))
            except qccl.Revoked:
                ended.append(comm.rank)

        with self.assertRaises(KeyboardInterrupt):
            qccl.run_threads(2, body)
        self.assertEqual(sorted(ended), [0, 1])

    def test_a_rank_may_end_while_a_signal_ends_the_others(self):
        revoke, end = qccl.Comm.revoke, time.monotonic() + 20

        def revoke_late(comm):
            revoke(comm)
            time.sleep(0.3)
            revoke(comm)  # which the rank has ended by then

        def body(comm):
            if comm.rank == 1:
                time.sleep(0.3)  # until the main thread waits
                os.kill(os.getpid(), signal.SIGINT)
            while time.monotonic() < end:
                comm.all_reduce(np.ones(4))

        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        with mock.patch.object(qccl.Comm, "revoke", revoke_late), self.assertRaises(KeyboardInterrupt):
            qccl.run_threads(2, body)

    def test_the_first_error_of_threads_is_raised(self):
        """The abort of a rank that raises wakes the others, which raise, too: later."""
        abort = qccl.Comm.abort

        def slow_abort(comm):
            rank = comm.rank
            abort(comm)
            if rank == 1:
                time.sleep(0.3)

        def body(comm):
            if comm.rank == 1:
                raise LookupError("by the program")
            comm.barrier()

        qccl.Comm.abort = slow_abort
        self.addCleanup(setattr, qccl.Comm, "abort", abort)
        with self.assertRaisesRegex(LookupError, "by the program"):
            qccl.run_threads(2, body)


if __name__ == "__main__":
    unittest.main(verbosity=1)
