"""perf/hosts/collectives_table.py: one run of a collective on two hosts, a contender that fails, and misuse.

usage: collectives_table_test.py SOURCE_ROOT QCCL_PERF
"""
import pathlib
import shutil
import subprocess
import sys
import unittest

SCRIPT = pathlib.Path(sys.argv[1]) / "perf" / "hosts" / "collectives_table.py"
PERF = sys.argv[2]
sys.dont_write_bytecode = True
from testbed.suite import run_tests  # noqa: E402


class Table(unittest.TestCase):
    def run_table(self, *words, program=PERF, expect=0):
        done = subprocess.run([SCRIPT, "--hosts", "2", "--turns", "1", "--python", "/nowhere/python", "--program", program, *words],
                              capture_output=True, text=True, timeout=200, check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "no Open MPI of Debian's, which starts the ranks")
    def test_a_row_for_each_size(self):
        for figure in ([], ["--sustained"]):
            with self.subTest(figure):
                self.check_rows(*figure)

    def check_rows(self, *figure):
        said = self.run_table("--collectives", "all_gather", "--sizes", "64K,256K", *figure).stdout
        rows = [line.split() for line in said.splitlines() if line.startswith("all_gather")]
        self.assertEqual([row[1] for row in rows], ["65536", "262144"], said)
        for _, _, mpi, gloo, lossless, times, int8, more in rows:
            self.assertEqual(gloo, "-")
            for lower, higher, ratio in ((float(lossless), float(mpi), float(times)), (float(int8), float(mpi), float(more))):
                self.assertGreater(lower, 0)
                self.assertAlmostEqual(higher / lower, ratio, delta=0.1 * ratio + 0.01)
        self.assertIn("# Gloo: no torch.distributed in /nowhere/python", said)

    @unittest.skipUnless(shutil.which("mpirun.openmpi"), "no Open MPI of Debian's, which starts the ranks")
    def test_who_fails_is_named(self):
        said = self.run_table("--collectives", "reduce", "--sizes", "64K", program="/bin/false", expect=1).stdout
        self.assertIn("# reduce of QCCL and Open MPI: exit status", said)

    def test_misuse(self):
        for words, because in ((["--hosts", "1"], "one host has nobody to talk to"), (["--sizes", "1.5M"], "'1.5M' is no size"),
                               (["--collectives", "all_gather,sum"], "'sum' is none of all_reduce"), (["--env", "X"], "X: is no KEY=VALUE")):
            self.assertIn(because, self.run_table(*words, expect=2).stderr)


if __name__ == "__main__":
    run_tests()
