"""perf/report/codec_table.py: one small run, whose figures are what is known of the codecs, and misuse.

usage: codec_table_test.py SOURCE_ROOT PACKAGE_FOLDER QCCL_PERF   (exits 77, skipped, without NumPy)
"""
import csv
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

try:
    import numpy
except ImportError:
    sys.exit(77)

SCRIPT = pathlib.Path(sys.argv[1]) / "perf" / "report" / "codec_table.py"
PACKAGE, PERF = sys.argv[2:4]
del sys.argv[1:]
CODECS = ["int8", "int4:block=64,round=stochastic", "mxfp8e4m3:scale=ocp"]
VALUES = 1 << 14


class Table(unittest.TestCase):
    def run_table(self, *words, expect=0):
        command = [sys.executable, SCRIPT, "--package", PACKAGE, "--program", PERF, *words]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def test_the_figures_are_those_of_the_codecs(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for rank in range(3):
            numpy.save(folder / f"rank{rank}.npy", numpy.full(1024, 2.0 ** rank))
        said = self.run_table("--codecs", ",".join(CODECS), "--ranks", "4,2", "--algorithms", "direct,ring", "--values", VALUES,
                              "--trials", 300, "--data", f"powers={folder}/rank%r.npy", "--output", folder / "table").stdout
        with open(folder / "table.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), (5 * 2 + 1) * len(CODECS) * 2)
        self.assertEqual(len(said.splitlines()), len(rows) + 2)  # with a head and a last line
        by_key = {(row["data"], int(row["ranks"]), row["codec"], row["algorithm"]): row for row in rows}
        for (data, ranks, codec, algorithm), row in by_key.items():
            header = 64 * 8 / (1024 if data == "powers" else VALUES)
            bits = {"int8": 8.5, CODECS[1]: 4.25, CODECS[2]: 8.25}[codec] + header
            self.assertAlmostEqual(float(row["bits"]), bits, delta=0.02 + header / 50)
            self.assertEqual(row["bias"] != "", codec == CODECS[1] and ranks == 2, row)
            if row["bias"]:
                self.assertLess(float(row["bias"]), 6)
            self.assertGreater(min(float(row[speed]) for speed in ("encode", "decode_add", "memcpy")), 0)
            if data in ("gauss", "alike") and codec in CODECS[:2]:
                self.assertLess(abs(float(row["figures"]) / float(row["measured"]) - 1), 0.15, row)
            if codec in CODECS[::2] and float(row["measured"]) > 0:
                self.assertLess(abs(float(row["expected"]) / float(row["measured"]) - 1), 0.15, row)
            if data == "gauss":
                self.assertLess(abs(float(row["measured"]) / float(row["predicted"]) - 1), 0.2, row)
        # Every rank adds an encode to a ring, and none to a direct sum; powers of two have no error at all.
        grow = lambda data, algorithm: float(by_key[data, 4, "int8", algorithm]["measured"]) / float(by_key[data, 2, "int8", algorithm]["measured"])
        self.assertGreater(grow("gauss", "ring"), 1.4)
        self.assertLess(grow("gauss", "direct"), 1.3)
        self.assertEqual(float(by_key["powers", 3, "int8", "ring"]["one_encode"]), 0)
        picture = xml.etree.ElementTree.parse(folder / "table.svg").getroot()
        points = [each for each in picture.iter("{http://www.w3.org/2000/svg}circle") if len(each)]
        self.assertEqual(len(points), 5 * len(CODECS))

    def test_misuse_is_named(self):
        self.assertIn("sums have two ranks or more", self.run_table("--ranks", "1", expect=2).stderr)
        self.assertIn("is no NAME=DIR/rank%r.npy", self.run_table("--data", "files", expect=2).stderr)
        self.assertIn("names no files of two ranks", self.run_table("--data", "a=/nowhere/rank%r.npy", "--trials", 0, expect=1).stderr)
        self.assertIn("at least 256", self.run_table("--values", "3", expect=2).stderr)
        self.assertIn("int99", self.run_table("--codecs", "int99", expect=1).stderr)


if __name__ == "__main__":
    unittest.main()
