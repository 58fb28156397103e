"""Words, shell scripts and Python scripts, as codespell, shellcheck and pyflakes see them. Skips with a word what is not
installed.

usage: lint_test.py SOURCE_ROOT
"""
import pathlib
import shutil
import subprocess
import sys
import unittest

import source_files

ROOT = pathlib.Path(sys.argv[1])
# A unit of columns, vectors of bits, and misspellings that tests try.
KNOWN_WORDS = "bu,vas,blok,hsa"
PROSE = (".c", ".cpp", ".cu", ".h", ".hpp", ".py", ".sh", ".build", ".md", ".1")


class Lint(unittest.TestCase):
    def find_nothing(self, tool, *arguments):
        if shutil.which(tool) is None:
            self.skipTest(f"{tool} is not installed")
        done = subprocess.run([tool, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        self.assertEqual((done.stdout + done.stderr)[:4000], "")
        self.assertEqual(done.returncode, 0)

    def test_spelling(self):
        self.find_nothing("codespell", "--ignore-words-list", KNOWN_WORDS, *source_files.paths(ROOT, *PROSE))

    def test_shell_scripts(self):
        self.find_nothing("shellcheck", "--severity=warning", *source_files.paths(ROOT, ".sh"), ".ci/run")

    def test_python_scripts(self):
        self.find_nothing("pyflakes3", *source_files.paths(ROOT, ".py"), "tests/support/testbed/hosts")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
