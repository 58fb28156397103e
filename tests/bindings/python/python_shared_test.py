"""Tests the codec `shared` against WIRE.md, written once more with NumPy: the same bits for every algorithm, order of the ranks, cut and
rank, for all types of floats; blocks that are not finite; and what the codec refuses.
"""
import os
import unittest

import numpy as np

import qccl

ALGORITHMS = ("ring", "tree", "tree:shape=double", "direct", "halving", "doubling", "oneshot", "hierarchy", "hierarchy:inner_codec=int4")
COUNTS = (0, 1, 31, 64, 4099, 70001)  # the last ones do not fit an eager slot
LARGEST_BFLOAT = 0x7F7F
NAN = 0x7FC0


def scales_of(magnitudes, bits):
    """The least bfloat16 of which 2^(bits - 1) - 1 are no less than the magnitude, as patterns."""
    limit = 2 ** (bits - 1) - 1
    bfloats = (np.arange(LARGEST_BFLOAT + 1, dtype=np.uint32) << 16).view(np.float32).astype(np.float64)
    patterns = np.searchsorted(bfloats * limit, magnitudes.astype(np.float64), side="left")
    return np.where(np.isfinite(magnitudes), np.minimum(patterns, LARGEST_BFLOAT), NAN).astype(np.uint32)


def expected_sums(values, bits=4, block=32, op="sum"):
    """What every rank gets of the sum of the rows."""
    ranks, count = values.shape
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        x = np.zeros((ranks, -(-count // block) * block), np.float32)
        x[:, :count] = values.astype(np.float32)
        x = x.reshape(ranks, -1, block)
        magnitudes = np.max(np.where(np.isfinite(x), np.abs(x), np.inf), axis=(0, 2), initial=0)
        scales = (scales_of(magnitudes, bits) << 16).view(np.float32)[:, None]
        integers = np.where(np.isfinite(scales) & (scales > 0), np.rint(x / scales), 0).astype(np.int64)
        total = integers.sum(axis=0).astype(np.float32)
        if op == "avg":
            total = total / np.float32(ranks)
        y = np.where(np.isnan(scales), np.float32("nan"), total * scales)
        return y.reshape(-1)[:count].astype(values.dtype)


def decoded_alone(values, rank, bits):
    """What the integers of one rank stand for, under the scales of all: those of the rows and of their negatives cancel."""
    return expected_sums(np.concatenate([values, -values, values[rank:rank + 1]]), bits)


def hard_values(seed, ranks, count, dtype=np.float32):
    """Values of all ranks whose magnitudes differ from block to block and from rank to rank, with zeros of both signs."""
    random = np.random.default_rng(seed)
    span = {"float64": 110, "float32": 110, "float16": 6}[np.dtype(dtype).name]
    scales = np.repeat(2.0 ** random.integers(-span, span, -(-count // 8)), 8)[:count] * 2.0 ** random.integers(-2, 2, (ranks, 1))
    values = random.standard_normal((ranks, count)) * scales
    values[random.random((ranks, count)) < 0.1] = -0.0
    values[:, 40:80] = 0
    return values.astype(dtype)


def codec_of(bits=4, block=32):
    return f"shared:bits={bits},block={block}"


def all_reduced(values, op="sum", codec="shared", **options):
    return qccl.run_threads(len(values), lambda comm: comm.all_reduce(values[comm.rank].copy(), op, codec=codec, **options))


def residual_of(state, dtype):
    """What the state owes, as its saved form has it behind a header of 64 bytes."""
    return state.save()[64:].view(dtype)


class SharedTest(unittest.TestCase):
    def assert_same(self, got, expected):
        self.assertEqual(got.dtype, expected.dtype)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        numbers = ~np.isnan(expected)
        self.assertEqual(got[numbers].tobytes(), expected[numbers].tobytes())

    def test_every_algorithm_gives_the_bits_of_the_definition(self):
        for ranks in range(2, 7):
            for count in COUNTS:
                values = hard_values(count + ranks, ranks, count)
                expected = expected_sums(values)
                for algorithm in ALGORITHMS:
                    with self.subTest(ranks=ranks, count=count, algorithm=algorithm):
                        for got in all_reduced(values, algorithm=algorithm):
                            self.assert_same(got, expected)

    def test_bits_blocks_and_averages(self):
        for bits in range(2, 9):
            for block in (1, 7, 32, 1000, 5000):
                values = hard_values(bits * block, 3, 9001)
                for op in ("sum", "avg"):
                    with self.subTest(bits=bits, block=block, op=op):
                        expected = expected_sums(values, bits, block, op)
                        for got in all_reduced(values, op, codec_of(bits, block)):
                            self.assert_same(got, expected)

    def test_every_type(self):
        for dtype in (np.float16, np.float64):
            for block in (5, 32, 3000):
                values = hard_values(block, 3, 10007, dtype)
                for op in ("sum", "avg"):
                    with self.subTest(dtype=dtype, block=block, op=op):
                        for got in all_reduced(values, op, codec_of(6, block)):
                            self.assert_same(got, expected_sums(values, 6, block, op))

    def test_neither_the_order_of_the_ranks_nor_the_cut_changes_bits(self):
        values = hard_values(1, 5, 300000)
        expected = expected_sums(values, 8)
        self.addCleanup(os.environ.pop, "QCCL_SEGMENT", None)
        for segment in ("4K", "20K", "1M"):
            os.environ["QCCL_SEGMENT"] = segment
            for algorithm in ("ring", "direct", "tree"):
                for order in (values, np.roll(values, 2, axis=0)):
                    self.assert_same(all_reduced(order, codec=codec_of(8), algorithm=algorithm)[0], expected)
        lossless = {qccl.run_threads(5, lambda comm: comm.all_reduce(order[comm.rank].copy(), algorithm="ring"))[0].tobytes()
                    for order in (values, np.roll(values, 2, axis=0))}
        self.assertEqual(len(lossless), 2, "the values are too easy")

    def test_complex_numbers_are_pairs_of_reals(self):
        reals = hard_values(2, 3, 2000)
        for got in qccl.run_threads(3, lambda comm: comm.all_reduce(reals[comm.rank].view(np.complex64).copy(), codec="shared")):
            self.assert_same(got.view(np.float32), expected_sums(reals))

    def test_blocks_that_are_not_finite_become_nan_on_all_ranks(self):
        for dtype in (np.float32, np.float16, np.float64):
            values = hard_values(3, 4, 1000, dtype)
            values[1, 5], values[2, 100], values[3, 999] = np.nan, np.inf, -np.inf
            if dtype == np.float64:
                values[0, 200] = 1e300  # no float32
            expected = expected_sums(values)
            self.assertEqual(np.isnan(expected).sum(), 32 * (4 if dtype == np.float64 else 3) - 24)
            for got in all_reduced(values, algorithm="ring"):
                self.assert_same(got, expected)

    def test_extreme_values(self):
        largest, smallest = np.finfo(np.float32).max, np.float32(1e-45)
        for bits in (2, 3, 8):
            for value in (largest, smallest, 3 * smallest, np.float32(2.0 ** -126), np.float32(1.1e-38)):
                values = np.zeros((2, 64), np.float32)
                values[0, :40], values[1, 3:50] = value, -value
                values[1, 60] = value / 3
                for op in ("sum", "avg"):
                    for got in all_reduced(values, op, codec_of(bits)):
                        self.assert_same(got, expected_sums(values, bits, 32, op))

    def test_other_reductions(self):
        for dtype in (np.float32, np.float16):
            for ranks, count in ((2, 100), (3, 5003), (4, 64), (3, 0)):
                values = hard_values(count, ranks, count * ranks, dtype)
                parts = np.split(values, ranks, axis=1)

                def body(comm):
                    mine = values[comm.rank]
                    whole = comm.reduce(mine.copy(), root=1, codec="shared")
                    if comm.rank == 1:
                        self.assert_same(whole, expected_sums(values))
                    self.assert_same(comm.reduce_scatter(mine.copy(), "avg", codec="shared"), expected_sums(parts[comm.rank], op="avg"))
                    apart = np.empty_like(mine)
                    comm.all_reduce(mine, out=apart, codec="shared")
                    self.assert_same(apart, expected_sums(values))
                    self.assertEqual(mine.tobytes(), values[comm.rank].tobytes())

                qccl.run_threads(ranks, body)

    def test_parts_of_any_counts_and_places(self):
        ranks = 3
        for dtype in (np.float32, np.float16, np.float64):
            for number, counts in enumerate(((1, 2, 3), (70, 0, 33), (0, 0, 0), (4000, 31, 20000))):
                values = hard_values(number, ranks, sum(counts), dtype)
                parts = np.split(values, np.cumsum(counts)[:-1], axis=1)

                def body(comm):
                    expected = expected_sums(parts[comm.rank], op="avg")
                    self.assert_same(comm.reduce_scatter_v(values[comm.rank].copy(), counts, "avg", codec="shared"), expected)
                    # The places are each rank's own, here in another order and with gaps, which no call touches.
                    gap, displs, end = 5 + comm.rank, [0] * ranks, 0
                    mine = np.full(sum(counts) + ranks * gap, 77, dtype)
                    for rank in np.roll(range(ranks), comm.rank):
                        displs[rank], end = end, end + counts[rank] + gap
                        mine[displs[rank]:][:counts[rank]] = parts[rank][comm.rank]
                    before = mine.tobytes()
                    self.assert_same(comm.reduce_scatter_v(mine, counts, "avg", displs=displs, codec="shared"), expected)
                    self.assertEqual(mine.tobytes(), before)
                    own = mine[displs[comm.rank]:][:counts[comm.rank]]
                    comm.reduce_scatter_v(mine, counts, "avg", displs=displs, out=own, codec="shared")
                    self.assert_same(own, expected)

                qccl.run_threads(ranks, body)

    def test_blocks_with_a_stride(self):
        ranks, count, stride = 3, 1000, 1100
        for dtype in (np.float32, np.float16):
            values = hard_values(11, ranks, ranks * stride, dtype)

            def body(comm):
                out = np.empty(count, dtype)
                comm.reduce_scatter(values[comm.rank].copy(), out=out, codec="shared", stride=stride)
                self.assert_same(out, expected_sums(values[:, comm.rank * stride:][:, :count]))

            qccl.run_threads(ranks, body)

    def test_groups_and_streams_make_the_same_sums(self):
        values = hard_values(4, 3, 9000)

        def body(comm):
            parts = [values[comm.rank, begin:begin + 900].copy() for begin in range(0, 9000, 900)]
            others = [np.full(50, comm.rank, np.float32) for _ in parts]
            with qccl.group():
                for part, other in zip(parts, others):
                    comm.all_reduce(part, codec="shared")
                    comm.all_reduce(other)
            queued = [values[comm.rank, begin:begin + 900].copy() for begin in range(0, 9000, 900)]
            with qccl.Stream() as stream:
                for part in queued:
                    comm.all_reduce(part, codec="shared", stream=stream)
                comm.all_reduce(others[0], stream=stream)
                stream.synchronize()
            self.assertEqual(set(others[0]), {9.0})
            return parts, queued

        expected = [expected_sums(values[:, begin:begin + 900]) for begin in range(0, 9000, 900)]
        for rank in qccl.run_threads(3, body):
            for got in rank:
                for part, sums in zip(got, expected):
                    self.assert_same(part, sums)

    def test_a_state_makes_good_what_rounding_has_lost(self):
        for dtype, wide in ((np.float32, np.float32), (np.float16, np.float32), (np.float64, np.float64)):
            ranks, count = 3, 3001
            values = np.random.default_rng(7).standard_normal((ranks, count)).astype(dtype)
            values[1, 77] = np.inf

            def body(comm):
                state = qccl.State(comm, values[comm.rank])
                return [comm.all_reduce(values[comm.rank].copy(), "avg", codec="shared:bits=3", state=state) for _ in range(4)]

            owed = np.zeros((ranks, count), wide)
            got = qccl.run_threads(ranks, body)
            for call in range(4):
                with np.errstate(invalid="ignore"):
                    inputs = values.astype(wide) + owed
                    expected = expected_sums(inputs, 3, 32, "avg").astype(dtype)
                    kept = np.stack([inputs[rank] - decoded_alone(inputs, rank, 3).astype(wide) for rank in range(ranks)])
                owed = np.where(np.isfinite(kept), kept, 0)
                for rank in range(ranks):
                    self.assert_same(got[rank][call], expected)
            exact = values[:, 96:].astype(np.float64).mean(axis=0)
            error = [np.square(np.mean([got[0][call][96:].astype(np.float64) for call in range(calls)], axis=0) - exact).sum()
                     for calls in (1, 4)]
            self.assertLess(error[1], error[0] / 8)

    def test_residuals_of_other_reductions(self):
        ranks, count = 3, 3003
        whole, parts = [slice(0, count)], [slice(begin, begin + count // ranks) for begin in range(0, count, count // ranks)]
        for dtype, wide in ((np.float32, np.float32), (np.float16, np.float32), (np.float64, np.float64)):
            values = np.random.default_rng(8).standard_normal((ranks, count)).astype(dtype)
            values[2, 1500] = np.nan

            def body(comm):
                mine, got = values[comm.rank], []
                to_root, to_all = qccl.State(comm, mine), qccl.State(comm, mine)
                for _ in range(3):
                    sums = comm.reduce(mine.copy(), "avg", root=1, codec="shared:bits=3", state=to_root)
                    part = comm.reduce_scatter(mine.copy(), "avg", codec="shared:bits=3", state=to_all)
                    got.append(((sums, residual_of(to_root, wide)), (part, residual_of(to_all, wide))))
                return got

            got = qccl.run_threads(ranks, body)
            for which, spans in enumerate((whole, parts)):
                owed = np.zeros((ranks, count), wide)
                for call in range(3):
                    with np.errstate(invalid="ignore"):
                        inputs = values.astype(wide) + owed
                        sums = [expected_sums(inputs[:, span], 3, 32, "avg").astype(dtype) for span in spans]
                        kept = np.stack([np.concatenate([inputs[rank, span] - decoded_alone(inputs[:, span], rank, 3).astype(wide)
                                                         for span in spans]) for rank in range(ranks)])
                    owed = np.where(np.isfinite(kept), kept, 0)
                    self.assertGreater(np.count_nonzero(owed), count)
                    for rank in range(ranks):
                        with self.subTest(dtype=dtype, parts=len(spans), call=call, rank=rank):
                            result, residual = got[rank][call][which]
                            np.testing.assert_array_equal(residual, owed[rank])
                            if len(spans) == ranks:
                                self.assert_same(result, sums[rank])
                            elif rank == 1:
                                self.assert_same(result, sums[0])

    def test_a_failure_between_the_two_collectives_leaves_the_state_as_it_was(self):
        values = np.random.default_rng(9).standard_normal((2, 3000)).astype(np.float32)
        self.addCleanup(os.environ.pop, "QCCL_INJECT", None)

        def reduced(comm, state, stream=None):
            mine = values[comm.rank].copy()
            comm.all_reduce(mine, "avg", codec="shared:bits=3", state=state, stream=stream)
            if stream:
                stream.synchronize()
            return mine

        def undisturbed(comm):
            state = qccl.State(comm, values[comm.rank])
            return [(reduced(comm, state), state.save().tobytes()) for _ in range(3)]

        expected = qccl.run_threads(2, undisturbed)
        for on_stream in (False, True):
            states = [None, None]

            def interrupted(comm):
                stream = qccl.Stream() if on_stream else None
                states[comm.rank] = qccl.State(comm, values[comm.rank])
                self.assert_same(reduced(comm, states[comm.rank], stream), expected[comm.rank][0][0])
                with self.assertRaises(qccl.Revoked):
                    reduced(comm, states[comm.rank], stream)

            def resumed(comm):
                for sums, saved in expected[comm.rank][1:]:
                    self.assert_same(reduced(comm, states[comm.rank]), sums)
                    self.assertEqual(states[comm.rank].save().tobytes(), saved)

            os.environ["QCCL_INJECT"] = "rank=0,call=4,revoke"  # the sums of the second call with the state
            qccl.run_threads(2, interrupted)
            del os.environ["QCCL_INJECT"]
            for rank in range(2):
                self.assertEqual(states[rank].save().tobytes(), expected[rank][0][1])
            qccl.run_threads(2, resumed)

    def test_prepared_and_layered_calls(self):
        values = hard_values(8, 3, 5000)

        def body(comm):
            x = np.empty(5000, np.float32)
            with comm.prepare("all_reduce", x, codec="shared") as call:
                for _ in range(3):
                    x[:] = values[comm.rank]
                    call.start()
                    self.assert_same(x, expected_sums(values))
            # Blocks restart at each layer.
            x[:] = values[comm.rank]
            comm.all_reduce(x, codec="shared", layers=[1500, (50, 70)], layer_min_size=1)
            self.assert_same(x[:1500], expected_sums(values[:, :1500]))
            self.assert_same(x[1500:], expected_sums(values[:, 1500:]))

        qccl.run_threads(3, body)

    def test_communicators_and_the_environment_name_it(self):
        values = hard_values(5, 3, 500)
        self.addCleanup(os.environ.pop, "QCCL_CODEC", None)
        os.environ["QCCL_CODEC"] = "shared:bits=5"

        def body(comm):
            self.assert_same(comm.all_reduce(values[comm.rank].copy()), expected_sums(values, 5))
            # What the codec cannot do goes lossless.
            self.assertEqual(comm.all_reduce(np.full(3, comm.rank + 0.25, np.float32), "max")[0], 2.25)
            self.assertEqual(comm.scan(np.full(3, 0.25, np.float32))[0], 0.25 * (comm.rank + 1))
            self.assertEqual(comm.all_reduce(np.ones(3, np.int32))[0], 3)

        qccl.run_threads(3, body)

    def test_one_rank_keeps_its_values(self):
        values = hard_values(6, 1, 500)
        self.assertEqual(all_reduced(values)[0].tobytes(), values[0].tobytes())

    def test_what_it_refuses(self):
        def body(comm):
            x = np.ones(1000, np.float32)
            for call, sentence in ((lambda: comm.all_reduce(x, "max", codec="shared"), "codec shared: possible with sum and avg"),
                                   (lambda: comm.scan(x, codec="shared"), "not with sum in scan"),
                                   (lambda: comm.all_gather(x, codec="shared"), "not with no operation in all_gather"),
                                   (lambda: comm.all_reduce(np.ones(3, np.int32), codec="shared"), "only floating point"),
                                   (lambda: qccl.Codec("shared").encode(x), "whose scales ranks agree on in a call"),
                                   (lambda: qccl.Codec("shared:bits=1"), 'bits of shared is "1"; possible is 2 to 8'),
                                   (lambda: qccl.Codec("shared:bits=9"), "possible is 2 to 8"),
                                   (lambda: qccl.Codec("shared:entropy=1"), "possible are bits, block, min")):
                with self.assertRaisesRegex(qccl.InvalidArgument, sentence):
                    call()
            with self.assertRaisesRegex(qccl.InvalidArgument, "codec shared has momentum 0, but that of state is 0.5"):
                comm.all_reduce(x, codec="shared", state=qccl.State(comm, x, momentum=0.5))
            comm.all_reduce(x := 7 * x, codec="shared")  # the largest integer
            self.assertEqual(x[0], 21)

        qccl.run_threads(3, body)

    def test_ranks_that_differ_in_its_keys_are_told(self):
        def body(comm):
            with self.assertRaisesRegex(qccl.Mismatch, "codec"):
                comm.all_reduce(np.ones(count, np.float32), codec=codecs[comm.rank])

        # With another min= the integers of one rank have no codec.
        for codecs in (("shared", "shared:bits=5"), ("shared:min=0", "shared:min=1M"), ("shared:min=1M", "shared")):
            for count in (100, 70001):
                with self.subTest(codecs=codecs, count=count):
                    qccl.run_threads(2, body)


if __name__ == "__main__":
    unittest.main()
