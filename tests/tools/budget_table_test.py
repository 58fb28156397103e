"""perf/hosts/budget_table.py: what auto chooses between hosts keeps its error, on data with heavy tails that ranks share in part.

usage: budget_table_test.py SOURCE_ROOT BUILD_ROOT
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy

SOURCE, BUILD = sys.argv[1:3]
del sys.argv[1:3]
SCRIPT = pathlib.Path(SOURCE) / "perf" / "hosts" / "budget_table.py"


def save_ranks(folder, ranks, count=40000, correlation=0.4, spread=1.0):
    """Gaussian values times log-normal scales."""
    draw = numpy.random.default_rng(3)
    scales, common = numpy.exp(spread * draw.normal(size=count)), draw.normal(size=count)
    for rank in range(ranks):
        values = scales * (correlation ** 0.5 * common + (1 - correlation) ** 0.5 * draw.normal(size=count))
        numpy.save(folder / f"rank{rank}.npy", values.astype(numpy.float32))


class Table(unittest.TestCase):
    def run_script(self, *words):
        return subprocess.run([sys.executable, SCRIPT, "--build", BUILD, *words], capture_output=True, text=True, check=False, timeout=250)

    def test_errors_are_kept(self):
        with tempfile.TemporaryDirectory() as name:
            save_ranks(pathlib.Path(name), 3)
            done = self.run_script(name, "--errors", "1e-1,1e-3,1e-5", "--slack", "4")
            rows = [line.split() for line in done.stdout.splitlines()[1:]]
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual([(row[1], row[2]) for row in rows], [(ranks, error) for ranks in "23" for error in ("0.1", "0.001", "1e-05")])
            for row in rows:
                self.assertNotEqual(row[3], "none", rows)
                self.assertTrue(0 < float(row[6]) <= float(row[2]), row)
                self.assertLessEqual(float(row[8]), float(row[5]), row)

    def test_what_is_not_kept_is_told(self):
        with tempfile.TemporaryDirectory() as name:
            save_ranks(pathlib.Path(name), 2, count=4000)
            done = self.run_script(name, "--errors", "1e-1", "--slack", "-1")
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertTrue(done.stdout.rstrip().endswith("NO"), done.stdout)

    def test_a_folder_without_files_is_refused(self):
        with tempfile.TemporaryDirectory() as name:
            done = self.run_script(name)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"{name} holds no rank0.npy", done.stderr)


if __name__ == "__main__":
    unittest.main()
