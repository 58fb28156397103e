"""Codecs in all-reduces of the Python package: equal results on all ranks, and sums near a type's largest number.

usage: python_codecs_test.py (PYTHONPATH names the package)
"""
import os
import tempfile
import unittest
import unittest.mock

import numpy as np
import qccl

RANKS = 3


class Codecs(unittest.TestCase):
    def test_a_codec_gives_all_ranks_the_same_bytes(self):
        x = np.random.default_rng(1).standard_normal((RANKS, 5000)).astype(np.float32)
        lossless, codec = x.sum(0), qccl.Codec("int8")

        def body(comm):
            named = comm.all_reduce(x[comm.rank].copy(), codec="int8", algorithm="ring")
            made = comm.all_reduce(x[comm.rank].copy(), codec=codec, algorithm="ring")
            return named, made, comm.stats()

        for named, made, stats in qccl.run_threads(RANKS, body):
            self.assertTrue(0 < np.square(named - lossless).sum() / np.square(lossless).sum() < 1e-3)
            np.testing.assert_array_equal(named, made)
            self.assertLess(stats["wire_bytes"], 0.4 * stats["raw_bytes"] * 4 / 3)

    def test_the_log_has_codecs_that_are_too_long_for_a_sentence(self):
        specs = [f"minmax:bits=5,bucket=100000,round=stochastic,seed={seed}" for seed in (1, 2)]

        def body(comm):
            with self.assertRaisesRegex(qccl.Error, "codec minmax:bits=5,~"):
                comm.all_reduce(np.ones(100, np.float32), codec=specs[comm.rank], algorithm="direct")

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "log")
            with unittest.mock.patch.dict(os.environ, QCCL_DEBUG_FILE=path):
                qccl.run_threads(2, body)
            with open(path) as log:
                lines = log.read()
        for rank, spec in enumerate(specs):
            self.assertIn(f"rank {rank} calls all_reduce with codec {spec}\n", lines)

    def test_what_codecs_make_of_the_largest_numbers(self):
        """65504 is the largest number of float16; the codecs with scales that are rounded up give an infinity."""
        def of_sums(value, codec, algorithm):
            values = np.full(64, value, np.float16)
            results = qccl.run_threads(2, lambda comm: comm.all_reduce(values.copy(), codec=codec, algorithm=algorithm))
            return float(results[0][0])

        infinity = float("inf")
        for codec in ("none", "fp16", "bound:abs=20", "minmax"):
            self.assertEqual(of_sums(32752, codec, "direct"), 65504, codec)
        for codec in ("int8", "fp8e4m3:block=32", "mxfp8e4m3", "shared:bits=8"):
            self.assertEqual(of_sums(32752, codec, "direct"), infinity, codec)
        # A sum that is too large, which is encoded once more, or stored.
        for codec in ("fp16", "bound:abs=20"):
            self.assertEqual((of_sums(60000, codec, "direct"), of_sums(60000, codec, "oneshot")), (65504, infinity), codec)
        self.assertEqual(of_sums(60000, "none", "direct"), infinity)


if __name__ == "__main__":
    unittest.main(verbosity=1)
