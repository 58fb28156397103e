"""quickstart.sh refuses what it does not know before it installs or builds anything, and runs the demonstration where it
is called.

usage: quickstart_test.py SOURCE_ROOT
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(sys.argv[1]) / "quickstart.sh"
# In the place of the built tool.
DEMONSTRATION = '#!/bin/sh\necho "in $(pwd): $*"\n'


def is_installed(packages):
    if shutil.which("dpkg-query", path="/usr/bin:/bin") is None:
        return True  # no Debian: nothing would be installed
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Status}\n", *packages], capture_output=True, text=True)
    return done.stdout.count("install ok installed") == len(packages)


class Quickstart(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name).resolve() / "a tree"
        self.elsewhere = self.root / "sub" / "folder"
        self.elsewhere.mkdir(parents=True)
        shutil.copy(SCRIPT, self.root)

    def tearDown(self):
        self.folder.cleanup()

    def call(self, *words, expect=0):
        done = subprocess.run(["../../quickstart.sh", *words], cwd=self.elsewhere, capture_output=True, text=True,
                              env={**os.environ, "CDPATH": "/"}, timeout=60)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def test_unknown_words_are_refused_first(self):
        for words, because in ((["tests"], "tests"), (["build", "--foo"], "--foo"), (["test", "engine"], "engine"), (["test", "-Dhip=disabled", "--suite"], "--suite"), ([""], '""'),
                               (["Build"], "Build"), (["--help", "me"], "me")):
            done = self.call(*words, expect=2)
            self.assertEqual(done.stdout, "")
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertTrue(done.stderr.startswith("quickstart.sh: "))
            self.assertIn(because, done.stderr)
            self.assertEqual(sorted(path.name for path in self.root.iterdir()), ["quickstart.sh", "sub"])

    def test_help_from_elsewhere(self):
        self.assertIn("./quickstart.sh build", self.call("--help").stdout)

    def test_the_demonstration_sees_the_callers_paths(self):
        packages = re.search(r'^needed_to_build="(.*)"$', SCRIPT.read_text(), re.M)[1].split()
        if not is_installed(packages):
            self.skipTest("packages that building needs are not installed")
        (self.root / "build" / "perf").mkdir(parents=True)
        (self.root / "build" / "build.ninja").write_text("")
        tool = self.root / "build" / "perf" / "qccl-perf"
        tool.write_text(DEMONSTRATION)
        tool.chmod(0o755)
        said = self.call("--input", "x/rank%r.npy", "--codec", "int8").stdout
        self.assertEqual(said, f"in {self.elsewhere}: demo --input x/rank%r.npy --codec int8\n")
        self.assertEqual(self.call().stdout, f"in {self.elsewhere}: demo\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
