"""The build can be configured whatever it is to leave out. A commit leaves out little, most and all; the night (QTEST_FULL=1) also each
part by itself.

usage: options_test.py SOURCE_ROOT MESON
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE, MESON = sys.argv[1:3]
PARTS = ("mpi", "ucx", "cuda", "hip", "emulated")
FULL = "QTEST_FULL" in os.environ
NOTHING = [f"-D{part}=disabled" for part in PARTS]


class Options(unittest.TestCase):
    def configure(self, *options):
        with tempfile.TemporaryDirectory() as folder:
            ended = subprocess.run([MESON, "setup", str(pathlib.Path(folder) / "build"), SOURCE, *options], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(ended.returncode, 0, f"meson setup {' '.join(options)}\n{ended.stdout[-2000:]}")

    def test_each_part_can_be_left_out(self):
        for part in ("mpi", "ucx", "emulated") if FULL else ("ucx",):
            self.configure(f"-D{part}=disabled", "-Dcuda=disabled", "-Dhip=disabled")

    def test_all_parts_can_be_left_out(self):
        self.configure(*NOTHING)
        self.configure(*NOTHING, "-Dperf=false", *([] if FULL else ["-Dtests=false"]))
        if FULL:
            self.configure(*NOTHING, "-Dtests=false")

    def test_sanitizers_can_be_chosen(self):
        self.configure(*NOTHING[:4], "-Db_sanitize=address,undefined")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
