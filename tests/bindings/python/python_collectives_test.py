"""Every collective of the Python package, over ranks that are threads, beside what NumPy computes.

usage: python_collectives_test.py (PYTHONPATH names the package)
"""
import contextlib
import itertools
import re
import threading
import unittest

import numpy as np
import qccl
from qccl import _declarations as declarations

RANKS = 3
DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64", "complex128"]
# What NumPy calls each operation.
OPS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "bit_and": np.bitwise_and, "bit_or": np.bitwise_or,
       "bit_xor": np.bitwise_xor}


def values(rank, shape, dtype="float32"):
    """Small whole numbers, which every type sums and multiplies exactly."""
    return (np.arange(np.prod(shape)).reshape(shape) * 7 + 3 * rank).astype("int64").__mod__(5).astype(dtype)


def of_all(shape, dtype="float32"):
    return np.stack([values(rank, shape, dtype) for rank in range(RANKS)])


def has(dtype, op):
    kind = np.dtype(dtype).kind
    return op in ("sum", "prod") or kind in "iu" or (kind == "f" and not op.startswith("bit"))


class Collectives(unittest.TestCase):
    def on_ranks(self, body):
        return qccl.run_threads(RANKS, body)

    def test_every_collective_is_a_method(self):
        """A collective is a C function that has another form, which takes a config."""
        stems = [name.removeprefix("qccl") for name in declarations.FUNCTIONS if f"{name}Config" in declarations.FUNCTIONS]
        names = [re.sub(r"(?<!^)(?=[A-Z])", "_", stem).lower() for stem in stems if not stem.startswith("Comm")]
        self.assertIn("reduce_scatter_v", names)
        self.assertEqual([name for name in names if not callable(getattr(qccl.Comm, name, None))], [])

    def test_all_reduce_of_every_type_and_operation(self):
        cases = [(dtype, op) for dtype, op in itertools.product(DTYPES, OPS) if has(dtype, op)]

        def body(comm):
            return [comm.all_reduce(values(comm.rank, (2, 5), dtype), op) for dtype, op in cases]

        for results in self.on_ranks(body):
            for (dtype, op), result in zip(cases, results, strict=True):
                self.assertEqual(result.dtype, dtype)
                np.testing.assert_array_equal(result, OPS[op].reduce(of_all((2, 5), dtype), dtype=dtype), f"{dtype} {op}")

    def test_logical_operations_averages_and_pairs(self):
        def body(comm):
            yes = np.array([True, comm.rank == 1, False])
            pair = np.array([(comm.rank % 2, comm.rank)], qccl.pair_dtype("float64"))
            return (comm.all_reduce(yes.copy(), "logical_and"), comm.all_reduce(yes.copy(), "logical_or"),
                    comm.all_reduce(yes.copy(), "logical_xor"), comm.all_reduce(np.array([3.0 * comm.rank]), "avg"),
                    comm.all_reduce(pair.copy(), "max_loc"), comm.all_reduce(pair.copy(), "min_loc"))

        for both, either, odd, mean, most, least in self.on_ranks(body):
            self.assertEqual([list(both), list(either), list(odd)], [[True, False, False], [True, True, False], [True, True, False]])
            self.assertEqual((mean[0], most[0].item(), least[0].item()), (3.0, (1.0, 1), (0.0, 0)))

    def test_results_go_where_they_are_wanted(self):
        def body(comm):
            x, out = values(comm.rank, (4,)), np.full(4, -1, np.float32)
            self.assertIs(comm.all_reduce(x, out=out), out)
            np.testing.assert_array_equal(x, values(comm.rank, (4,)))
            y = x.copy()
            self.assertIs(comm.all_reduce(y), y)
            np.testing.assert_array_equal(y, out)
            return out

        for out in self.on_ranks(body):
            np.testing.assert_array_equal(out, of_all((4,)).sum(0))

    def test_rooted_collectives(self):
        def body(comm):
            x = values(comm.rank, (2, 3))
            parts = np.arange(RANKS * 2.0) if comm.rank == 1 else None
            return (comm.reduce(x.copy(), root=2), comm.broadcast(x.copy(), root=1), comm.gather(x, root=2),
                    comm.scatter(parts, root=1, out=np.empty(2)))

        results = self.on_ranks(body)
        for rank, (reduced, sent, gathered, part) in enumerate(results):
            np.testing.assert_array_equal(sent, values(1, (2, 3)))
            np.testing.assert_array_equal(part, [2.0 * rank, 2.0 * rank + 1])
            if rank != 2:
                self.assertIsNone(reduced)
                self.assertIsNone(gathered)
        np.testing.assert_array_equal(results[2][0], of_all((2, 3)).sum(0))
        np.testing.assert_array_equal(results[2][2], of_all((2, 3)).reshape(6, 3))

    def test_collectives_of_blocks(self):
        def body(comm):
            x = values(comm.rank, (2 * RANKS, 3))
            mine = np.zeros((RANKS, 4), np.float32)
            mine[comm.rank] = comm.rank + 1
            comm.all_gather(mine[comm.rank], out=mine)  # in place
            return comm.all_gather(x), comm.reduce_scatter(x), comm.all_to_all(x.copy()), comm.all_to_all(x, out=np.empty_like(x)), mine

        sums, stacked = of_all((2 * RANKS, 3)).sum(0), of_all((2 * RANKS, 3))
        for rank, (gathered, block, swapped, beside, mine) in enumerate(self.on_ranks(body)):
            np.testing.assert_array_equal(gathered, stacked.reshape(-1, 3))
            np.testing.assert_array_equal(block, sums[2 * rank:2 * rank + 2])
            np.testing.assert_array_equal(swapped, stacked[:, 2 * rank:2 * rank + 2].reshape(-1, 3))
            np.testing.assert_array_equal(beside, swapped)
            np.testing.assert_array_equal(mine, np.repeat([[1], [2], [3]], 4, 1))

    def test_scans(self):
        def body(comm):
            x = values(comm.rank, (5,), "int32")
            return comm.scan(x.copy()), comm.exscan(x.copy(), "max")

        for rank, (scanned, before) in enumerate(self.on_ranks(body)):
            np.testing.assert_array_equal(scanned, of_all((5,), "int32")[:rank + 1].sum(0))
            if rank == 0:
                self.assertIsNone(before)
            else:
                np.testing.assert_array_equal(before, of_all((5,), "int32")[:rank].max(0))

    def test_parts_of_different_lengths(self):
        counts, displs = [2, 0, 3], [4, 0, 0]

        def body(comm):
            rank = comm.rank
            mine = np.full(counts[rank], rank, np.int64)
            everything = np.arange(5) + 10 * rank
            rows = [[i + j for j in range(RANKS)] for i in range(RANKS)]
            spread = comm.all_gather_v(mine, counts, displs=displs, out=np.full(6, -1))
            return (comm.all_gather_v(mine, counts), spread, comm.reduce_scatter_v(everything, counts),
                    comm.gather_v(mine, counts if rank == 1 else None, root=1),
                    comm.scatter_v(np.arange(5) if rank == 0 else None, counts if rank == 0 else None, out=np.empty(counts[rank], int)),
                    comm.all_to_all_v(np.full(sum(rows[rank]), rank), rows[rank], rows[rank]))

        sums = sum(np.arange(5) + 10 * rank for rank in range(RANKS))
        for rank, (gathered, spread, part, rooted, scattered, swapped) in enumerate(self.on_ranks(body)):
            first = sum(counts[:rank])
            np.testing.assert_array_equal(gathered, [0, 0, 2, 2, 2])
            np.testing.assert_array_equal(spread, [2, 2, 2, -1, 0, 0])
            np.testing.assert_array_equal(part, sums[first:first + counts[rank]])
            np.testing.assert_array_equal(scattered, np.arange(5)[first:first + counts[rank]])
            np.testing.assert_array_equal(swapped, np.repeat(range(RANKS), [rank + other for other in range(RANKS)]))
            if rank == 1:
                np.testing.assert_array_equal(rooted, [0, 0, 2, 2, 2])
            else:
                self.assertIsNone(rooted)

    def test_parts_beyond_an_array_are_refused(self):
        def body(comm):
            few, many = np.ones(2), [2] * RANKS
            wrapping = np.full(RANKS, 20000, np.int16)  # their sum is no int16
            for refused in (lambda: comm.all_gather_v(np.ones(20000), wrapping, out=np.empty(10)),
                            lambda: comm.all_gather_v(few, many, displs=np.full(RANKS, 32767, np.int16), out=np.empty(10)),
                            lambda: comm.reduce_scatter_v(few, many, out=few.copy()),
                            lambda: comm.all_to_all_v(few, many, many, out=np.empty(2 * RANKS)),
                            lambda: comm.all_to_all_v(np.ones(2 * RANKS), many, many, out=few),
                            lambda: comm.scatter_v(few, many, root=comm.rank, out=np.empty(2)),
                            lambda: comm.all_gather(few, out=np.empty(3 * RANKS), stride=4)):
                with self.assertRaises(qccl.InvalidArgument):
                    refused()
            return float(comm.all_reduce(np.ones(1))[0])

        self.assertEqual(self.on_ranks(body), [RANKS] * RANKS)

    def test_messages(self):
        def body(comm):
            left, right = (comm.rank - 1) % RANKS, (comm.rank + 1) % RANKS
            got = comm.send_recv(values(comm.rank, (9,)), right, np.empty(9, np.float32), left)
            if comm.rank == 0:
                comm.send(np.arange(3), 2)
            return got, comm.recv(np.empty(3, int), 0) if comm.rank == 2 else None

        results = self.on_ranks(body)
        for rank, (got, _) in enumerate(results):
            np.testing.assert_array_equal(got, values((rank - 1) % RANKS, (9,)))
        np.testing.assert_array_equal(results[2][1], [0, 1, 2])

    def test_strides(self):
        def body(comm):
            out = np.zeros(3 * RANKS - 1, np.float32)
            comm.all_gather(np.full(2, comm.rank + 1, np.float32), out=out, stride=3)
            return out

        for out in self.on_ranks(body):
            np.testing.assert_array_equal(out, [1, 1, 0, 2, 2, 0, 3, 3])

    def test_residuals_bring_sums_back(self):
        """Sums of 100 equal vectors: what int2 loses of one comes with the next."""
        x = np.random.default_rng(2).standard_normal((RANKS, 640)).astype(np.float32)

        def body(comm):
            with_residual, without, residual = np.zeros(640), np.zeros(640), np.zeros(640, np.float32)
            for _ in range(100):
                before = residual.copy()
                with_residual += comm.all_reduce(x[comm.rank].copy(), codec="int2", residual=residual, algorithm="direct")
                without += comm.all_reduce(x[comm.rank].copy(), codec="int2", algorithm="direct")
                self.assertFalse(np.array_equal(before, residual))
            return with_residual, without

        exact = 100 * x.sum(0)
        for with_residual, without in self.on_ranks(body):
            error = [np.square(result - exact).sum() for result in (with_residual, without)]
            self.assertLess(error[0], error[1] / 2)

    def test_states_bring_sums_back(self):
        """Of 100 sums of equal vectors nothing is lost but what the ranks owe in the end, whatever the noise."""
        x = np.random.default_rng(2).standard_normal((RANKS, 640)).astype(np.float32)

        def body(comm, codec):
            state, total = qccl.State(comm, x[comm.rank], seed=3), np.zeros(640)
            for _ in range(100):
                total += comm.all_reduce(x[comm.rank].copy(), "avg", codec=codec, state=state, algorithm="direct")
            owed = comm.all_reduce(state.save()[64:].view(np.float32).astype(np.float64), "avg")
            return np.abs(total + owed - 100 * x.mean(0)).max(), np.abs(owed).max()

        for codec in ("int2", "onebit", "terngrad:clip=1.5", "topk:ratio=0.05"):
            for wrong, owed in self.on_ranks(lambda comm: body(comm, codec)):
                self.assertLess(wrong, 1e-2)
                self.assertGreater(owed, 1e-2)

    def test_states_of_complex_numbers(self):
        def body(comm):
            values = np.random.default_rng(comm.rank).standard_normal((2, 700))
            x, total = (values[0] + 1j * values[1]).astype(np.complex64), np.zeros(700, complex)
            state = qccl.State(comm, x)
            for _ in range(20):
                total += comm.all_reduce(x.copy(), codec="int2", state=state)
            owed = comm.all_reduce(state.save()[64:].view(np.complex64).astype(complex))
            return np.abs(total + owed - 20 * comm.all_reduce(x.astype(complex))).max(), np.abs(owed).max()

        for wrong, owed in self.on_ranks(body):
            self.assertLess(wrong, 1e-3)
            self.assertGreater(owed, 0.1)

    def test_a_state_keeps_the_momentum_of_its_codec(self):
        """Sums of a constant vector grow as those of an optimiser with momentum; a saved state goes on with the velocity."""
        def body(comm):
            x, codec, grown = np.ones(640, np.float32), "dgc:ratio=1,momentum=0.5,warmup=9", []
            state = qccl.State(comm, x, momentum=0.5)
            for _ in range(3):
                grown.append(comm.all_reduce(x.copy(), "avg", codec="none", state=state)[0])
            saved = state.save()
            first = comm.all_reduce(x.copy(), "avg", codec=codec, state=state).copy()
            state.load(saved)
            self.assertEqual(saved.size, 64 + 2 * 4 * 640)
            np.testing.assert_array_equal(comm.all_reduce(x.copy(), "avg", codec=codec, state=state), first)
            for text, call in (("momentum 0.9, but that of state is 0.5", lambda: comm.all_reduce(x, "avg", codec="dgc", state=state)),
                               ("momentum is 1;", lambda: qccl.State(comm, x, momentum=1)),
                               ("momentum: '0.5'", lambda: qccl.State(comm, x, momentum="0.5"))):
                with self.assertRaisesRegex(qccl.InvalidArgument, text):
                    call()
            return grown, first[0]

        for grown, first in self.on_ranks(body):
            self.assertEqual((grown, first), ([1, 1.5, 1.75], 1.875))
        for spec, momentum in (("dgc", 0.9), ("dgc:ratio=0.5,momentum=0.25", 0.25), ("topk", 0)):
            self.assertEqual(qccl.Codec(spec)._momentum(), momentum)

    def test_a_saved_state_repeats_the_bits(self):
        x = np.random.default_rng(4).standard_normal((RANKS, 1200)).astype(np.float32)

        def sums(comm, state, times):
            return [comm.reduce_scatter(x[comm.rank], codec="int3:round=stochastic", state=state).copy() for _ in range(times)]

        def body(comm):
            state = qccl.State(comm, x[comm.rank], seed=8, feedback="first")
            first, saved = sums(comm, state, 2), state.save()
            later = sums(comm, state, 2)
            with qccl.State(comm, x[comm.rank], feedback="first") as again:
                again.load(saved.tobytes())
                repeated = sums(comm, again, 2)
                again.reset()
                anew = sums(comm, again, 2)
            saved[80] ^= 1
            self.assertRaises(qccl.DamagedData, state.load, saved)
            return np.array_equal(later, repeated), np.array_equal(first, later), np.array_equal(first, anew)

        self.assertEqual(self.on_ranks(body), [(True, False, True)] * RANKS)

    def test_states_are_refused_by_name(self):
        def body(comm):
            x = np.ones(100, np.float32)
            state = qccl.State(comm, x)
            for wrong, make in (("state: a dict is no state", lambda: comm.all_reduce(x, state={})),
                                ("state has 100 elements", lambda: comm.all_reduce(x[:50].copy(), state=state)),
                                ("broadcast takes none", lambda: comm.broadcast(x, state=state)),
                                ("op is neither", lambda: comm.all_reduce(x, "max", state=state)),
                                ("has a state", lambda: comm.all_reduce(x, codec="int8", state=state, residual=x.copy())),
                                ("feedback: 'none'", lambda: qccl.State(comm, x, feedback="none")),
                                ("type is int64", lambda: qccl.State(comm, np.arange(3)))):
                with self.assertRaisesRegex(qccl.InvalidArgument, wrong):
                    make()
            state.close()
            self.assertRaisesRegex(qccl.InvalidUsage, "the state has been closed", lambda: comm.all_reduce(x, state=state))

        self.on_ranks(body)

    def test_nothing_is_fed_back_where_calls_are_lossless(self):
        def body(comm):
            x, residual = np.linspace(0, 1, 640, dtype=np.float32), np.full(640, 0.5, np.float32)
            totals = [comm.all_reduce(x.copy(), "avg", codec="int2:min=1M", residual=residual) for _ in range(2)]
            return totals, residual

        for totals, residual in self.on_ranks(body):
            for total, before in zip(totals, (0.5, 0), strict=True):
                np.testing.assert_allclose(total, np.linspace(0, 1, 640) + before, atol=1e-6)
            np.testing.assert_array_equal(residual, np.zeros(640))

    def test_a_residual_in_a_group_is_kept_at_its_end(self):
        def body(comm):
            x, residual = np.linspace(0, 1, 64, dtype=np.float32), np.zeros(64, np.float32)
            with qccl.group():
                comm.all_reduce(x, codec="int2", residual=residual)
                inside = residual.any()
            return inside, residual.any()

        self.assertEqual(self.on_ranks(body), [(False, True)] * RANKS)

    def test_what_is_not_finite_is_not_fed_back(self):
        def body(comm):
            x, residual = np.ones(64, np.float32), np.zeros(64, np.float32)
            x[3] = np.inf
            comm.all_reduce(x, codec="int8", residual=residual)
            return comm.all_reduce(np.ones(64, np.float32), codec="int8", residual=residual)

        for result in self.on_ranks(body):
            np.testing.assert_allclose(result, RANKS, rtol=0.02)

    def test_one_rank_has_no_errors_to_feed_back(self):
        def body(comm):
            x, residual = np.linspace(0, 1, 64, dtype=np.float32), np.zeros(64, np.float32)
            return comm.all_reduce(x, codec="int2", residual=residual), residual

        (result, residual), = qccl.run_threads(1, body)
        np.testing.assert_array_equal(result, np.linspace(0, 1, 64, dtype=np.float32))
        self.assertFalse(residual.any())

    def test_a_refused_call_leaves_its_residual(self):
        def body(comm):
            x, residual = np.ones(64, np.float32), np.full(64, 0.1, np.float32)
            with self.assertRaisesRegex(qccl.InvalidArgument, "algorithm"):
                comm.all_reduce(x, codec="int8", residual=residual, algorithm="nonsense")
            with self.assertRaisesRegex(qccl.InvalidArgument, "names no codec"):
                comm.all_reduce(x, residual=residual)
            with self.assertRaisesRegex(qccl.InvalidArgument, "residual: it has the type"):
                comm.all_reduce(x, codec="int8", residual=residual[:63].copy())
            with self.assertRaisesRegex(qccl.InvalidArgument, "residual: with the guard of 'int8:guard=nmse:1e-3'"):
                comm.all_reduce(x, codec="int8:guard=nmse:1e-3", residual=residual)
            for codec in ("terngrad", "int4:round=stochastic", "norm", "norm:bits=4"):
                with self.assertRaisesRegex(qccl.InvalidArgument, f"residual: '{codec}' rounds with noise"):
                    comm.all_reduce(x, codec=codec, residual=residual)
            with self.assertRaises(ZeroDivisionError), qccl.group():
                comm.all_reduce(x, codec="int2", residual=residual)
                raise ZeroDivisionError
            return x, residual

        for x, residual in self.on_ranks(body):
            np.testing.assert_array_equal(x, np.ones(64))
            np.testing.assert_array_equal(residual, np.full(64, 0.1, np.float32))

    def test_streams_and_requests(self):
        def body(comm):
            with qccl.Stream() as stream, qccl.Stream() as other:
                arrays = [values(comm.rank, (1000,)) for _ in range(4)]
                for x in arrays:
                    comm.all_reduce(x, stream=stream)
                self.assertIsNone(stream.record().wait())
                late = [comm.all_reduce(values(comm.rank, (10,)), stream=way) for way in (stream, other)]
                requests = [stream.record(), other.record()]
                done = {qccl.wait_any(requests), qccl.wait_any(requests)}
                self.assertEqual(done, {0, 1})
                self.assertIsNone(qccl.wait_any(requests))
                comm.barrier(stream=stream)
                stream.synchronize()
                self.assertTrue(stream.query())
                return arrays + [array[:10] for array in late]

        for results in self.on_ranks(body):
            for result in results:
                np.testing.assert_array_equal(result, of_all((1000,)).sum(0)[:len(result)])

    def test_groups(self):
        def body(comm):
            with qccl.group():
                sums = [comm.all_reduce(values(comm.rank, (n,))) for n in range(1, 9)]
                got = [comm.recv(np.empty(100), peer) for peer in range(RANKS) if peer != comm.rank]
                for peer in range(RANKS):
                    if peer != comm.rank:
                        comm.send(np.full(100, comm.rank, float), peer)
            with self.assertRaisesRegex(ZeroDivisionError, "division"), qccl.group():
                comm.all_reduce(sums[0])  # is not made
                raise ZeroDivisionError("division")
            with self.assertRaisesRegex(qccl.InvalidArgument, "root"), qccl.group():
                comm.broadcast(np.ones(1), root=9)
            return sums, got

        for rank, (sums, got) in enumerate(self.on_ranks(body)):
            for n, result in enumerate(sums, 1):
                np.testing.assert_array_equal(result, of_all((n,)).sum(0))
            self.assertEqual([x[0] for x in got], [peer for peer in range(RANKS) if peer != rank])

    def test_prepared_calls(self):
        def body(comm):
            x, out = np.ones(3), np.empty(6, int)
            counts = [1, 2, 3]
            with comm.prepare("all_reduce", x, tag=7) as call, comm.prepare("all_gather_v", np.full(counts[comm.rank], comm.rank),
                                                                            counts, out=out) as gather, \
                    comm.prepare("gather_v", np.full(2, comm.rank), [2] * RANKS if comm.rank == 0 else None) as rooted:
                self.assertIs(call.start(), x)
                x += 1
                call.start()
                gather.start()
                collected = rooted.start()
            with self.assertRaises(qccl.InvalidUsage):
                call.start()
            return x, out, collected

        results = self.on_ranks(body)
        for x, out, _ in results:
            np.testing.assert_array_equal(x, [RANKS * (RANKS + 1.0)] * 3)
            np.testing.assert_array_equal(out, [0, 1, 1, 2, 2, 2])
        np.testing.assert_array_equal(results[0][2], np.repeat(range(RANKS), 2))

    def test_operations_of_the_program(self):
        def join(accumulator, more):
            accumulator[:] = 10 * accumulator + more

        def body(comm):
            with qccl.init_all(1)[0] as alone, self.assertRaises(qccl.InvalidArgument):
                alone.all_reduce(np.ones(1, np.float16), "longest")
            scaled = qccl.PreMulSum(comm.rank + 1, np.float32, comm)
            return (comm.all_reduce(np.full(2, comm.rank + 1), op=qccl.RedOp(join, commutes=False)),
                    comm.all_reduce(np.ones(2, np.float32), op=scaled))

        for joined, scaled in self.on_ranks(body):
            np.testing.assert_array_equal(joined, [123, 123])
            np.testing.assert_array_equal(scaled, [6, 6])

    def test_an_operation_that_does_not_commute(self):
        """A ring begins each part of the vector on another rank."""
        def body(comm):
            x = np.full(3000, comm.rank)
            self.assertEqual(set(comm.all_reduce(x.copy(), qccl.RedOp(lambda first, second: None), algorithm="ring")), set(range(RANKS)))
            in_order = qccl.RedOp(lambda first, second: None, commutes=False)
            with self.assertRaisesRegex(qccl.InvalidArgument, "ring: would not keep the order of the ranks"):
                comm.all_reduce(x.copy(), in_order, algorithm="ring")
            return set(comm.all_reduce(x, in_order))

        self.assertEqual(self.on_ranks(body), [{0}] * RANKS)

    def test_a_call_has_a_timeout_of_its_own(self):
        has_waited = threading.Event()

        def body(comm):
            if comm.rank != 0:
                return has_waited.wait(20)
            with self.assertRaises(qccl.Timeout):
                comm.barrier(timeout=0.2)
            has_waited.set()
            return True

        self.assertEqual(self.on_ranks(body), [True] * RANKS)

    def test_ranks_are_left_out(self):
        def body(comm):
            if comm.rank == 1:
                return None
            with comm.shrink([1]) as left:
                return left.rank, left.size

        self.assertEqual(self.on_ranks(body), [(0, 2), None, (1, 2)])

    def test_a_shrink_may_end_the_communicator(self):
        """Without `abort` the ranks that are left may go on with the old one."""
        for abort in (False, True):
            has_ended = threading.Barrier(RANKS)

            def body(comm, abort=abort, has_ended=has_ended):
                if comm.rank != 1:
                    comm.shrink([1], abort=abort).close()
                    other = 2 - comm.rank
                    with self.assertRaises(qccl.Revoked) if abort else contextlib.nullcontext():
                        comm.send_recv(np.ones(1), other, np.ones(1), other)
                has_ended.wait(20)

            self.on_ranks(body)

    def test_an_operation_that_has_been_closed(self):
        def body(comm):
            op = qccl.RedOp(lambda first, second: None)
            op.close()
            with self.assertRaisesRegex(qccl.InvalidUsage, "the operation has been closed"):
                comm.all_reduce(np.ones(2), op)
            with self.assertRaisesRegex(qccl.InvalidArgument, "out: its type is float64, and that of x is float32"):
                comm.send_recv(np.ones(2, np.float32), comm.rank, np.ones(2), comm.rank)

        self.on_ranks(body)

    def test_an_operation_that_raises_fails_the_communicator(self):
        def wrong(accumulator, more):
            raise KeyError("wrong")

        def body(comm):
            op = qccl.RedOp(wrong)
            with self.assertRaises(qccl.Error) as caught:
                comm.all_reduce(np.ones(4), op=op)
            return type(caught.exception)

        self.assertLessEqual(set(self.on_ranks(body)), {qccl.SystemFailure, qccl.RemoteError})

    def test_communicators_of_these_ranks(self):
        def body(comm):
            other = comm.split(comm.rank % 2, key=-comm.rank, name="odd")
            nobody = comm.split(None if comm.rank else 1)
            twin, node = comm.dup(), comm.split_node()
            numbers = other.size, other.rank, nobody is None, twin.size, node.size
            total = other.all_reduce(np.array([comm.rank]))
            for made in filter(None, (other, nobody, twin, node)):
                made.close()
                made.close()  # does nothing
            return numbers, total[0]

        self.assertEqual(self.on_ranks(body), [((2, 1, False, 3, 3), 2), ((1, 0, True, 3, 3), 1), ((2, 0, True, 3, 3), 2)])

    def test_explanations_and_registered_memory(self):
        def body(comm):
            text = comm.explain("all_reduce bytes=1M type=float")
            parts = comm.explain("all_reduce bytes=1M type=float", format="json")
            x = qccl.empty((1024, 256))
            x[:] = comm.rank
            with comm.register(x):
                comm.all_reduce(x)
            return text, parts, x.sum()

        for text, parts, total in self.on_ranks(body):
            self.assertIn("the fastest", text)
            self.assertIsInstance(parts, dict)
            self.assertEqual(total, 3 * 1024 * 256)

    def test_error_parts(self):
        def body(comm):
            with self.assertRaises(qccl.Mismatch) as caught:
                comm.all_reduce(np.ones(4 + comm.rank // 2), tag=5)
            return caught.exception

        for rank, error in enumerate(self.on_ranks(body)):
            self.assertEqual((error.rank, error.collective, error.call, error.tag), (rank, "all_reduce", 1, 5))
            self.assertEqual({error.expected, error.got}, {4, 5})
            self.assertIn("count", str(error))


class Codecs(unittest.TestCase):
    def test_round_trips(self):
        x = np.random.default_rng(3).standard_normal((10, 100)).astype(np.float32)
        with qccl.Codec("int8") as codec:
            data = codec.encode(x)
            self.assertLessEqual(len(data), codec.max_encoded_bytes(x))
            y = codec.decode(data, like=x)
            self.assertEqual(y.shape, x.shape)
            self.assertTrue(0 < np.abs(y - x).max() < 0.05)
            out = np.empty_like(x)
            self.assertIs(codec.decode(bytes(data), out=out), out)
            np.testing.assert_array_equal(out, y)
            data[40] ^= 1
            with self.assertRaises(qccl.DamagedData):
                codec.decode(data, like=x)

    def test_wrong_specs_are_refused(self):
        with self.assertRaisesRegex(qccl.InvalidArgument, "int9"):
            qccl.Codec("int9")
        with qccl.init_all(1)[0] as comm, self.assertRaisesRegex(qccl.InvalidArgument, "int9"):
            comm.all_reduce(np.ones(3, np.float32), codec="int9")


if __name__ == "__main__":
    unittest.main(verbosity=1)
