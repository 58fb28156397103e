"""qccl-perf under mpirun, with MPI as the baseline.

usage: mpi_test.py QCCL_PERF MPIRUN
"""
import os
import re
import shutil
import sys
import tempfile
import unittest

import tool

PERF, MPIRUN = sys.argv.pop(1), sys.argv.pop(1)


def mpirun(ranks, *words):
    return [MPIRUN, "--allow-run-as-root", "--oversubscribe", "-n", ranks, PERF, *words]


class Baseline(unittest.TestCase):
    def test_every_collective_is_measured_beside_mpi(self):
        for collective in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "scan", "exscan", "send"):
            rows = tool.rows_of(mpirun(2, collective, "-b", "64", "-e", "64K", "-f", "1024", "-n", "11", "--baseline",
                                       "mpi", "--codec", "none,int8" if "reduce" in collective else "none"))
            self.assertEqual(len(rows), 2 * 2 * (2 if "reduce" in collective else 1))
            for row in rows:
                self.assertEqual(row["ranks"], 2)
                self.assertIn("MPI", row["baseline"]["name"])
                self.assertGreater(row["baseline"]["time_us"], 0)
                self.assertGreater(row["baseline"]["time_us_sustained"], 0)
                self.assertIn(row["ranks_agree"], (True, None))

    def test_messages_and_groups_are_measured_beside_mpi(self):
        for kind, options, rows in (("sendrecv", [], 1), ("hypercube", [], 2), ("sendrecv", ["--group", 3], 1), ("all_reduce", ["--group", 3], 2),
                                    ("reduce", ["--group", 3], 2), ("gather", ["--group", 3], 2), ("scatter", ["--group", 3], 2), ("send", ["--group", 3], 2)):
            found = tool.rows_of(mpirun(2, kind, "-b", "4K", "-e", "4K", "-n", "11", "--baseline", "mpi", *options))
            self.assertEqual(len(found), rows)
            for row in found:
                self.assertGreater(row["baseline"]["time_us"], 0)
                self.assertEqual(row["nmse"], 0)

    def test_v_forms_are_measured_beside_mpi(self):
        for kind in ("all_gather_v", "reduce_scatter_v", "gather_v", "scatter_v", "all_to_all_v"):
            for options in (["--skew", "linear", "-d", "float"], ["--skew", "one", "--group", 3], ["--skew", "equal"]):
                rows = tool.rows_of(mpirun(3, kind, "-b", "48K", "-e", "48K", "-n", "11", "--baseline", "mpi", *options))
                self.assertEqual(len(rows), 1 if kind == "all_to_all_v" and "equal" not in options else 2)
                for row in rows:
                    self.assertEqual((row["collective"], row["skew"], row["nmse"]), (kind, options[1], 0))
                    self.assertGreater(row["baseline"]["time_us"], 0)

    def test_what_mpi_lacks_has_no_baseline(self):
        for options, is_there in ((["-d", "half"], False), (["-d", "f8e4m3"], False), (["-o", "avg"], False),
                                  (["-d", "int8", "-o", "max"], True)):
            rows = tool.rows_of(mpirun(2, "all_reduce", "-b", "4K", "-e", "4K", "-n", "11", "--baseline", "mpi", *options))
            self.assertEqual([row["baseline"] is not None for row in rows], [is_there] * 2)
        said = tool.run(mpirun(2, "all_reduce", "-b", "4K", "-e", "8K", "-f", "2", "-n", "11", "--baseline", "mpi", "-d", "half")).stdout
        self.assertEqual(len(re.findall("# Open MPI .* has no all_reduce of half with sum: rows without a baseline", said)), 1)
        self.assertIn("speedup, mpi and over it are of medians", said)

    def test_mpi_may_start_the_ranks_alone(self):
        rows = tool.rows_of(mpirun(3, "all_reduce", "-b", "4K", "-e", "4K", "-n", "3"))
        self.assertEqual([(row["ranks"], row["baseline"]) for row in rows], [(3, None)] * 2)

    @unittest.skipUnless(shutil.which("mpiexec.mpich"), "no MPICH")
    def test_ranks_of_another_mpi_are_told(self):
        done = tool.run(["mpiexec.mpich", "-n", 2, PERF, "all_reduce", "-b", "4K", "-e", "4K", "--baseline", "mpi"], expect=2)
        self.assertEqual(done.stderr.count("counts one rank, PMI_SIZE=2: another MPI's mpirun has started it"), 1, done.stderr)

    def test_nonsense_ends(self):
        for words, because in ((["all_reduce", "--ranks", "2"], "--ranks: is not possible under mpirun"),
                               (["broadcast", "-r", "2", "-b", "4", "-e", "4"], "--root 2 is none of the 2 ranks"),
                               (["all_reduce", "--input", "/nowhere/%r.npy"], "cannot read /nowhere/"),
                               (["all_reduce", "--codecs", "x"], "did you mean --codec?"),
                               (["all_reduce", "-o", "max", "--codec", "int8"], "possible with sum and avg"),
                               (["codec", "--codec", "x"], "codec is"), (["codec", "--tiers", "x"], "did you mean --tier?"),
                               (["demo"], "it starts its processes itself")):
            done = tool.run(mpirun(2, *words), expect=2, timeout=60)
            self.assertEqual(done.stderr.count(because), 1, done.stderr)
            self.assertNotRegex(done.stderr, r"(?m)^rank \d", done.stderr)
            self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    # Open MPI's programs of one user share a folder for their sessions: those of other tests would come and go in it.
    with tempfile.TemporaryDirectory() as sessions:
        os.environ["OMPI_MCA_orte_tmpdir_base"] = sessions
        unittest.main()
