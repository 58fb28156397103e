"""qccl-perf and its demonstration with data from NumPy's files: which they take, what they say of the others.

usage: perf_input_test.py QCCL_PERF
"""
import os
import re
import sys
import tempfile
import unittest

import numpy

import tool

PERF = sys.argv.pop(1)
QUICK = ["-n", "3", "-w", "1"]


def perf(collective, *options, **more):
    return tool.rows_of([PERF, collective, *QUICK, *options], **more)


class Input(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.pattern = os.path.join(self.folder.name, "rank%r.npy")

    def tearDown(self):
        self.folder.cleanup()

    def save(self, arrays):
        for rank, array in enumerate(arrays):
            numpy.save(self.pattern.replace("%r", str(rank)), array)

    def refused(self, because, *options):
        for command in (["all_reduce", *QUICK, "--ranks", "2"], ["demo", "--ranks", "2"]):
            done = tool.run([PERF, *command, "--input", self.pattern, *options], expect=2)
            self.assertIn(because, done.stderr)

    def test_files_of_every_type_are_summed(self):
        generator = numpy.random.default_rng(3)
        for kind in "f4 f8 f2 i1 u1 i4 u4 i8 u8".split():
            self.save([(generator.standard_normal((50, 7)) * 10).astype("<" + kind) for _ in range(2)])
            for row in perf("all_reduce", "--input", self.pattern):
                self.assertEqual(row["count"], 350)
                self.assertTrue(row["ranks_agree"])

    def test_the_error_is_numpys(self):
        generator = numpy.random.default_rng(4)
        arrays = [generator.standard_normal(5000).astype("<f4") for _ in range(3)]
        self.save(arrays)
        # bf16 through direct: inputs and the sum are rounded, each rank's own input is not.
        def bf16(x):
            bits = x.astype("<f4").view("<u4")
            return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view("<f4")
        counts = tool.chunk_counts(5000, 3, "bf16")
        result, begin = numpy.empty(5000, "<f4"), 0
        for owner, count in enumerate(counts):
            part = slice(begin, begin + count)
            total = numpy.zeros(count, "<f4")
            for rank in range(3):
                total = total + (arrays[rank][part] if rank == owner else bf16(arrays[rank][part]))
            result[part] = bf16(total)
            begin += count
        exact = sum(array.astype("<f8") for array in arrays)
        for row in perf("all_reduce", "--ranks", "3", "--input", self.pattern, "--codec", "bf16", "--algo", "direct"):
            error = result.astype("<f8") - exact
            self.assertAlmostEqual(row["nmse"] / ((error ** 2).sum() / (exact ** 2).sum()), 1, places=9)
            self.assertAlmostEqual(row["max_abs_err"], abs(error).max(), places=12)

    def test_a_nan_travels(self):
        array = numpy.ones(1000, "<f4")
        array[500] = numpy.nan
        self.save([array, numpy.ones(1000, "<f4")])
        for row in perf("all_reduce", "--input", self.pattern, "--codec", "none,int4"):
            self.assertIsNone(row["nmse"])
        for command in (["all_reduce", *QUICK], ["demo", "--iters", "2", "--ranks", "2"]):
            said = tool.run([PERF, *command, "--input", self.pattern]).stdout
            self.assertEqual(said.count("1 of the 2000 input values is NaN or infinite"), 1, said)
        self.save([numpy.ones(1000, "<f4")] * 2)
        self.assertNotIn("NaN", tool.run([PERF, "all_reduce", *QUICK, "--input", self.pattern]).stdout)

    def test_saturation_is_no_wrong_result(self):
        self.save([numpy.full(1000, 1e6, "<f4")] * 2)
        for collective in ("all_reduce", "all_gather"):
            for row in perf(collective, "--input", self.pattern, "--codec", "fp16"):
                self.assertGreater(row["nmse"], 0.1)

    def test_an_overflow_is_no_error_and_is_told(self):
        for kind, value in (("<f2", 60000), ("<f4", 3e38)):
            array = numpy.ones(1000, kind)
            array[7] = value
            self.save([array, array])
            for row in perf("all_reduce", "--input", self.pattern, "--codec", "none,int8"):
                self.assertIsNone(row["nmse"])
            for command in (["all_reduce", *QUICK], ["demo", "--iters", "2", "--ranks", "2"]):
                said = tool.run([PERF, *command, "--input", self.pattern, "--codec", "none,int8"]).stdout
                self.assertEqual(len(re.findall("1 result of .*may overflow what (half|float) holds", said)), 1, said)

    def test_parts_of_the_files(self):
        self.save([numpy.arange(1000, dtype="<f4")] * 2)
        rows = perf("all_reduce", "--input", self.pattern, "-b", "400", "-e", "4000", "-f", "10")
        self.assertEqual([row["count"] for row in rows], [100, 100, 1000, 1000])

    def test_other_files_are_refused_by_name(self):
        good = numpy.ones((4, 6), "<f4")
        self.refused("rank0.npy")  # none there
        self.save([good])
        self.refused("rank1.npy")
        for bad, because in ((good.astype(">f4"), "big-endian"), (numpy.asfortranarray(good), "Fortran"),
                             (good.astype("<c8"), "complex64"), (good[:3], "holds 18 values"),
                             (good.astype("<f8"), "holds double")):
            self.save([good, bad])
            self.refused(because)
            self.refused("rank1.npy")
        self.save([good, good])
        path = self.pattern.replace("%r", "1")
        with open(path, "rb") as file:
            whole = file.read()
        for damaged, because in ((whole[:-1], "has 95 bytes"), (whole + b"x", "has 97 bytes"), (b"", "is empty"),
                                 (whole[:50], "ends inside"), (b"text" + whole, "no .npy file")):
            with open(path, "wb") as file:
                file.write(damaged)
            self.refused(because)

    def test_no_file_and_a_folder_are_refused(self):
        for command in (["all_reduce", *QUICK], ["demo"]):
            for path, because in (("", "is empty"), (self.folder.name, f"cannot read {self.folder.name}: Is a directory"),
                                  ("/dev/null", "cannot read /dev/null: it is no plain file")):
                self.assertIn(because, tool.run([PERF, *command, "--input", path], expect=2).stderr)
            for path in (self.folder.name, os.path.join(self.folder.name, "rank%d.npy")):
                said = tool.run([PERF, *command, "--input", path], expect=2).stderr
                self.assertIn(f"cannot read {path}: ", said)
                self.assertIn("; %r stands for the rank, as in DIR/rank%r.npy\n", said)
            missing = tool.run([PERF, *command, "--input", self.pattern], expect=2).stderr
            self.assertNotIn("stands for the rank", missing)

    def test_files_and_options_that_disagree(self):
        self.save([numpy.ones(10, "<f4")] * 2)
        for options, because in ((["-d", "double"], "float"), (["-e", "64"], "10 values")):
            done = tool.run([PERF, "all_reduce", "--input", self.pattern, "-b", "4", *options], expect=2)
            self.assertIn(because, done.stderr)


if __name__ == "__main__":
    unittest.main()
