"""perf/hosts/training_table.py: one run on two hosts, in which a codec's ranks end with different weights; and misuse.

usage: training_table_test.py SOURCE_ROOT PACKAGE_FOLDER   (exits 77, skipped, without PyTorch or scikit-learn)
"""
import csv
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from testbed.suite import SKIPPED, run_tests

SCRIPT = pathlib.Path(sys.argv[1]) / "perf" / "hosts" / "training_table.py"
PACKAGE = sys.argv[2]
STEPS, WIDTH = 3, 256
CODED = 1024 * WIDTH + WIDTH * 10 + 64 * 32 * 9
VALUES = CODED + 32 * 9 + 32 + 64 + WIDTH + 10

# In the place of Python: where the codec is fp16, rank 1 has other weights than it should; and with int4 the first time.
WRONG_PYTHON = """#!/bin/sh
case "$RANK $*" in 1*"--codec fp16"*) wrong=yes ;; 1*"--codec int4"*) mkdir {folder}/once 2>/dev/null && wrong=yes ;; esac
[ "${{wrong-}}" ] && export PYTHONPATH="{folder}:$PYTHONPATH"
exec {python} "$@"
"""
WRONG_WEIGHTS = """
import hashlib
rightly = hashlib.sha256
hashlib.sha256 = lambda values: rightly(b"others" if len(values) > 100000 else values)
"""


class Table(unittest.TestCase):
    def run_table(self, *words, expect=0):
        done = subprocess.run([SCRIPT, "--hosts", "2", "--package", PACKAGE, *map(str, words)], capture_output=True, text=True, timeout=300,
                              check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def run_with_failures(self, folder):
        """(printed lines, rows of the CSV file)"""
        (folder / "sitecustomize.py").write_text(WRONG_WEIGHTS)
        python = folder / "python"
        python.write_text(WRONG_PYTHON.format(folder=folder, python=sys.executable))
        python.chmod(0o755)
        said = self.run_table("--python", python, "--codecs", "int4,fp16", "--steps", STEPS, "--batch", 8, "--width", WIDTH, "--turns", 1,
                              "--output", folder / "table", expect=1).stdout
        with open(folder / "table.csv", newline="") as file:
            return said.splitlines(), list(csv.DictReader(file))

    def test_one_run(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            printed, rows = self.run_with_failures(folder)
            bars = [each for each in xml.etree.ElementTree.parse(folder / "table.svg").iter() if each.tag.endswith("rect")][1:]
        self.assertEqual([(row["ranks"], row["gradients"]) for row in rows], [("1", "alone"), ("2", "gloo"), ("2", "qccl int4")], printed)
        self.assertEqual(len(bars), len(rows))
        alone, gloo, int4 = rows
        # Sums of two ranks are rounded as those of one are not, which moves one digit of 797 or none.
        self.assertAlmostEqual(float(alone["accuracy"]), float(gloo["accuracy"]), delta=2 / 797)
        self.assertAlmostEqual(float(gloo["sent_bytes_per_step"]), 4 * VALUES, delta=8)
        self.assertAlmostEqual(float(int4["sent_bytes_per_step"]), 4.5 / 8 * CODED + 4 * (VALUES - CODED), delta=0.1 * CODED)
        self.assertAlmostEqual(float(int4["times_gloo"]), float(int4["steps_per_second"]) / float(gloo["steps_per_second"]), places=3)
        self.assertAlmostEqual(float(int4["points_above_gloo"]), 100 * (float(int4["accuracy"]) - float(gloo["accuracy"])), places=2)
        for row, shown in zip(rows, [line.split() for line in printed if line[:5].strip().isdigit()], strict=True):
            self.assertEqual(shown[0], row["ranks"])
            self.assertIn(f"{float(row['accuracy']):.2%}", shown)
            self.assertAlmostEqual(STEPS / float(row["seconds"]), float(row["steps_per_second"]), places=3)
        why = [line for line in printed if line.startswith("# 2 x")]
        self.assertEqual([line.split(": ")[0] for line in why], ["# 2 x qccl int4", "# 2 x qccl fp16"])
        for line in why:
            self.assertIn("the ranks have ended with different weights", line)

    def test_misuse(self):
        for words, because in ((["--hosts", "1,2"], "one host has nobody to talk to"), (["--batch", "9"], "2 hosts cannot share 9 digits"),
                               (["--env", "X"], "X: is no KEY=VALUE"), (["--steps", "0"], "'0' is no number above 0")):
            self.assertIn(because, self.run_table(*words, expect=2).stderr)
        self.assertIn("no torch.distributed in /nowhere/python", self.run_table("--python", "/nowhere/python", expect=1).stderr)


if __name__ == "__main__":
    if missing := [name for name in ("torch", "sklearn") if importlib.util.find_spec(name) is None]:
        print(f"skipped: {missing[0]} is not installed")
        sys.exit(SKIPPED)
    run_tests()
