"""tests/gpu.sh on a machine without a GPU: it says so; and, on one that the CPU plays, it tests, measures and keeps results.

usage: gpu_script_test.py SOURCE_ROOT BUILD_FOLDER
"""
import csv
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


def script(*parts, **variables):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("QTEST_", "QCCL_"))}
    return subprocess.run([ROOT / "tests/gpu.sh", *parts], capture_output=True, text=True, timeout=500,
                          env={**clean, **{name: str(value) for name, value in variables.items()}})


def links_to_the_build(folder):
    """What the script builds lies here already; its own files go where nothing is kept."""
    build = pathlib.Path(folder) / "build"
    build.mkdir()
    for name in ("lib", "perf", "tests"):
        os.symlink(BUILD / name, build / name)
    return build


class Script(unittest.TestCase):
    def test_without_a_gpu_it_says_so(self):
        with tempfile.TemporaryDirectory() as empty:
            for tool in ("dirname", "date", "grep"):
                os.symlink(f"/usr/bin/{tool}", f"{empty}/{tool}")
            done = script("tests", PATH=empty)
        self.assertEqual((done.returncode, done.stderr), (77, ""))
        self.assertIn("skipped, neither nvidia-smi nor rocminfo shows a GPU", done.stdout)

    def test_what_is_misspelt_is_refused(self):
        done = script("codec")
        self.assertEqual(done.returncode, 2)
        self.assertIn("collectives", done.stderr)
        for name, value in (("QCCL_PREFIX", "/nowhere"), ("QTEST_SECONDS", "soon"), ("QTEST_VALUES", "1e9")):
            done = script("tests", QTEST_DEVICE="emulated:0", **{name: value})
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertTrue(done.stderr.startswith(f"gpu.sh: {name}"), done.stderr)

    def test_what_is_not_built_is_said_once(self):
        with tempfile.TemporaryDirectory() as folder:
            done = script("collectives", QTEST_DEVICE="emulated:0", QTEST_BUILD=folder)
        self.assertEqual((done.returncode, done.stderr), (1, f"gpu.sh: {folder} is not built; run tests/gpu.sh build\n"))

    def test_tests_without_their_gpu_are_skipped_and_not_passed(self):
        with tempfile.TemporaryDirectory() as folder:
            done = script("tests", QTEST_DEVICE="emulated:9", QTEST_BUILD=links_to_the_build(folder), QTEST_RESULTS=folder)
        self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
        self.assertIn("skipped: kernels, collectives\n", done.stdout)
        self.assertNotIn("passed", done.stdout)

    def test_what_there_is_no_time_for_is_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            done = script("codecs", QTEST_DEVICE="emulated:0", QTEST_BUILD=links_to_the_build(folder), QTEST_RESULTS=folder,
                          QTEST_SECONDS=0)
        self.assertEqual(done.returncode, 1)
        self.assertIn("failed: codec_float for want of time", done.stdout)

    def test_it_tests_measures_and_keeps(self):
        with tempfile.TemporaryDirectory() as folder:
            build = links_to_the_build(folder)
            done = script("tests", "sanitizer", "codecs", "collectives", QTEST_DEVICE="emulated:0", QTEST_BUILD=build,
                          QTEST_RESULTS=f"{folder}/results", QTEST_VALUES=50000, QTEST_EVERY=9)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("all parts passed", done.stdout)
            self.assertIn("sanitizer: skipped", done.stdout)
            table = pathlib.Path(f"{folder}/results/emulated-gpu-of-32-lanes.md").read_text()
            with open(f"{folder}/results/emulated-gpu-of-32-lanes.csv") as file:
                rows = list(csv.DictReader(file))
        self.assertEqual({row["what"] for row in rows}, {"codec", "all_reduce"})
        self.assertEqual({row["launch"] for row in rows if row["what"] == "all_reduce"}, {"threads", "processes"})
        self.assertEqual({row["device"] for row in rows}, {"emulated:0"})
        for row in rows:
            self.assertGreater(float(row["time_us"]), 0)
        for word in ("# emulated GPU of 32 lanes", "| `topk` |", "| processes | 2 | 65536 |"):
            self.assertIn(word, table)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
