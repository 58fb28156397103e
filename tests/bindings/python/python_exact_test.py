"""Tests exact sums against Python's own: the codec `exact` and sum_exact give the exact sum, rounded once, whatever the order of the
values, the algorithm and the number of ranks.
"""
import fractions
import math
import unittest

import numpy as np

import qccl

COUNTS = (1, 3, 64, 1000, 70000)  # the last one does not fit an eager slot
ALGORITHMS = ("direct", "oneshot")


def hard_values(seed, ranks, count, dtype):
    """Values of all ranks whose exponents differ, and of which many nearly cancel."""
    random = np.random.default_rng(seed)
    span = {"float64": 280, "float32": 30, "float16": 4}[np.dtype(dtype).name]
    values = random.standard_normal((ranks, count)) * 2.0 ** random.integers(-span, span, (ranks, count))
    cancels = random.random(count) < 0.4
    values[-1, cancels] = -values[:-1, cancels].sum(axis=0)
    return values.astype(dtype)


def rounded(column):
    """The exact sum of the values, rounded to their type."""
    total = sum(fractions.Fraction(float(value)) for value in column)
    if column.dtype == np.float64:
        return np.float64(math.fsum(column))
    # One rounding: the nearest of the neighbours of an approximation.
    near = np.asarray(float(total)).astype(column.dtype)[()]
    candidates = [near, np.nextafter(near, column.dtype.type(np.inf)), np.nextafter(near, column.dtype.type(-np.inf))]
    distance = {float(value): abs(fractions.Fraction(float(value)) - total) for value in candidates if np.isfinite(value)}
    least = min(distance.values())
    best = [column.dtype.type(value) for value, far in distance.items() if far == least]
    even = [value for value in best if not value.tobytes()[0] & 1]
    return best[0] if len(best) == 1 else even[0]


def exact_sums(values):
    return np.array([rounded(values[:, i]) for i in range(values.shape[1])], values.dtype)


def all_reduced(values, **options):
    """What each rank gets of the sum of the rows."""
    return qccl.run_threads(len(values), lambda comm: comm.all_reduce(values[comm.rank].copy(), codec="exact", **options))


class VectorsTest(unittest.TestCase):
    def test_each_element_is_the_exact_sum(self):
        for dtype in ("float64", "float32", "float16"):
            for ranks in (2, 3, 5):
                for count in COUNTS if dtype == "float32" else COUNTS[:-1]:
                    values = hard_values(count + ranks, ranks, count, dtype)
                    some = slice(None, None, max(1, count // 2000))
                    expected = exact_sums(values[:, some])
                    for algorithm in ALGORITHMS:
                        with self.subTest(dtype=dtype, ranks=ranks, count=count, algorithm=algorithm):
                            for got in all_reduced(values, algorithm=algorithm):
                                self.assertEqual(got[some].tobytes(), expected.tobytes())

    def test_the_order_of_the_ranks_makes_no_difference(self):
        values = hard_values(1, 6, 5000, "float64")
        bits = {all_reduced(order, **options)[0].tobytes()
                for order in (values, values[::-1], np.roll(values, 2, axis=0)) for options in ({}, {"algorithm": "oneshot"})}
        self.assertEqual(len(bits), 1)
        plain = {qccl.run_threads(6, lambda comm: comm.all_reduce(order[comm.rank].copy()))[0].tobytes() for order in (values, values[::-1])}
        self.assertEqual(len(plain), 2, "the values are too easy")

    def test_every_reduction_has_it(self):
        values = hard_values(2, 4, 4 * 777, "float64")
        expected = exact_sums(values)

        def body(comm):
            mine = values[comm.rank]
            prefix = comm.scan(mine.copy(), codec="exact")
            before = comm.exscan(mine.copy(), codec="exact")
            self.assertEqual(prefix.tobytes(), exact_sums(values[:comm.rank + 1]).tobytes() if comm.rank else mine.tobytes())
            if comm.rank > 1:
                self.assertEqual(before.tobytes(), exact_sums(values[:comm.rank]).tobytes())
            part = comm.reduce_scatter(mine, codec="exact")
            whole = comm.reduce(mine.copy(), root=2, codec="exact")
            if comm.rank == 2:
                self.assertEqual(whole.tobytes(), expected.tobytes())
            return part

        self.assertEqual(np.concatenate(qccl.run_threads(4, body)).tobytes(), expected.tobytes())

    def test_an_average_divides_the_rounded_sum(self):
        values = hard_values(3, 3, 500, "float64")
        expected = exact_sums(values) / 3
        for got in qccl.run_threads(3, lambda comm: comm.all_reduce(values[comm.rank].copy(), "avg", codec="exact")):
            self.assertEqual(got.tobytes(), expected.tobytes())
        large = np.full(8, np.finfo(np.float32).max)
        for got in qccl.run_threads(2, lambda comm: comm.all_reduce(large.copy(), "avg", codec="exact")):
            self.assertEqual(got.tobytes(), large.tobytes())

    def test_a_group_makes_the_same_sums(self):
        values = hard_values(4, 3, 900, "float64")

        def body(comm):
            parts = [values[comm.rank, begin:begin + 90].copy() for begin in range(0, 900, 90)]
            with qccl.group():
                for part in parts:
                    comm.all_reduce(part, codec="exact")
            return np.concatenate(parts)

        for got in qccl.run_threads(3, body):
            self.assertEqual(got.tobytes(), exact_sums(values).tobytes())

    def test_what_has_no_exact_sum_is_refused(self):
        def body(comm):
            x = np.ones(1000, np.float32)
            for call, sentence in ((lambda: comm.all_reduce(x, codec="exact", algorithm="ring"), "ring: would round the sum"),
                                   (lambda: comm.all_reduce(x, "max", codec="exact"), "max of float"),
                                   (lambda: comm.all_reduce(np.ones(3, np.int32), codec="exact"), "sum of int32"),
                                   (lambda: comm.all_gather(x, codec="exact"), "all_gather of float"),
                                   (lambda: qccl.Codec("exact:min=0"), "exact takes no keys")):
                with self.assertRaisesRegex(qccl.InvalidArgument, sentence):
                    call()
            comm.all_reduce(x, codec="exact")
            self.assertEqual(x[0], 3)

        qccl.run_threads(3, body)


class NumbersTest(unittest.TestCase):
    def test_the_sum_is_that_of_fsum_for_any_number_of_ranks(self):
        for count in (0, 1, 16, 255, 256, 257, 5000):
            values = hard_values(5, 2, count, "float64")[0]
            values = np.concatenate([values, -values[::2]])
            for ranks in (1, 2, 3, 5):
                with self.subTest(count=count, ranks=ranks):
                    totals = qccl.run_threads(ranks, lambda comm: comm.sum_exact(values[comm.rank::comm.size].copy()))
                    self.assertEqual({float(total).hex() for total in totals}, {math.fsum(values).hex()})

    def test_one_rank_may_have_all_values(self):
        values = hard_values(6, 1, 3000, "float64")[0]
        totals = qccl.run_threads(3, lambda comm: comm.sum_exact(values if comm.rank == 1 else np.empty(0)))
        self.assertEqual(set(totals), {math.fsum(values)})

    def test_values_that_are_no_numbers(self):
        inf, nan, largest = math.inf, math.nan, np.finfo(np.float64).max
        for mine, expected in (([inf, 1], inf), ([-inf, largest], -inf), ([largest, largest, -largest], largest * 1.0),
                               ([-0.0, -0.0], -0.0), ([0.0, -0.0], 0.0), ([largest, largest], inf)):
            totals = qccl.run_threads(1, lambda comm: comm.sum_exact(np.array(mine)))
            self.assertEqual(repr(totals[0]), repr(float(expected)))
        for mine in ([inf, -inf], [nan], [nan] * 300):
            self.assertTrue(math.isnan(qccl.run_threads(2, lambda comm: comm.sum_exact(np.array(mine)))[0]))

    def test_what_it_refuses(self):
        def body(comm):
            with self.assertRaisesRegex(qccl.InvalidArgument, "sum_exact adds float64"):
                comm.sum_exact(np.ones(3, np.float32))
            with self.assertRaisesRegex(qccl.InvalidUsage, "outside of groups"), qccl.group():
                comm.sum_exact(np.ones(3))
            return comm.sum_exact(np.ones(3))

        self.assertEqual(qccl.run_threads(2, body), [6.0, 6.0])


if __name__ == "__main__":
    unittest.main()
