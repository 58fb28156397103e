"""qccl-perf misused and interrupted: what cannot be is said before anything is measured, in numbers and names, once;
what has been measured is kept.

usage: perf_misuse_test.py QCCL_PERF
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import tool
from npy_file import save

PERF = sys.argv.pop(1)
SMALL = ["-b", "4K", "-e", "4K", "-n", "3"]


def rows_of_table(text):
    return [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)


class BeforeMeasuring(Folder):
    def test_less_than_a_value(self):
        for size, type_name in (("0", "float"), ("3", "float"), ("7", "double"), ("1", "half")):
            said = tool.run([PERF, "codec", "-b", size, "-d", type_name, "--codec", "none"], expect=2).stderr
            self.assertEqual(said, f"qccl-perf codec: --bytes {size} is less than one {type_name}\n")

    def test_more_memory_than_there_is(self):
        for command in (["all_reduce", "--ranks", "4"], ["all_gather", "--threads", "3"], ["broadcast"]):
            said = tool.run([PERF, *command, "-b", "16T", "-e", "16T"], expect=2).stderr
            self.assertRegex(said, r"buffers of up to 16\.0 TB for each of \d ranks need \d+\.?\d* TB of memory, and "
                                   r"this machine has \d+\.?\d* [GM]B available")
        # An all-gather's inputs are parts of its result.
        said = tool.run([PERF, "codec", "-b", "16T"], expect=2).stderr
        self.assertRegex(said, r"^qccl-perf codec: buffers for values of 16\.0 TB need \d+\.?\d* TB of memory, and this machine has ")
        self.assertEqual(said.count("\n"), 1, said)
        said = tool.run([PERF, "all_gather", "-b", "16T", "-e", "16T", "--ranks", "3"], expect=2).stderr
        self.assertIn("need 64.0 TB", said)

    def test_files_that_cannot_be_written(self):
        for option in ("--json", "-J"):
            for path in ("/nowhere/x.json", self.folder.name):
                done = tool.run([PERF, "all_reduce", *SMALL, option, path], expect=1)
                self.assertEqual(done.stdout, "")
                self.assertIn(f"cannot write {path}: ", done.stderr)
        done = tool.run([PERF, "codec", "--json", "/nowhere/x.json"], expect=1)
        self.assertEqual(done.stdout, "")

    def test_old_results_survive_a_run_that_cannot_begin(self):
        path = self.path("rows.json")
        with open(path, "w") as file:
            file.write("yesterday's")
        tool.run([PERF, "all_reduce", "-b", "16T", "-e", "16T", "--json", path], expect=2)
        with open(path) as file:
            self.assertEqual(file.read(), "yesterday's")

    def test_a_missing_input_is_named_with_its_rank(self):
        for rank in range(2):
            save(self.path(f"rank{rank}.npy"), [1.0] * 10)
        pattern = self.path("rank%r.npy")
        for command in ("all_reduce", "demo"):
            done = tool.run([PERF, command, "--ranks", "3", "--input", pattern], expect=2)
            self.assertIn(f"input of rank 2: cannot read {self.path('rank2.npy')}: No such file", done.stderr)

    def test_one_file_for_all_ranks_is_remarked(self):
        path = self.path("all.npy")
        save(path, [1.0] * 1000)
        for command in (["all_reduce", "-n", "3"], ["demo", "--iters", "3"]):
            said = tool.run([PERF, *command, "--input", path]).stdout
            self.assertEqual(said.count(f"--input names no %r: all ranks read the same file, {path}"), 1)
        save(self.path("rank0.npy"), [1.0] * 10)
        done = tool.run([PERF, "all_reduce", "-n", "3", "--ranks", "1", "--input", self.path("rank%r.npy")])
        self.assertNotIn("%r", done.stdout)


class WhileMeasuring(unittest.TestCase):
    def test_output_that_is_lost_is_told(self):
        tool.check_loss_is_told(PERF, ["all_reduce", *SMALL], ["all_reduce", *SMALL, "-t", "2"], ["demo", "--iters", "2"],
                                ["codec", "--codec", "bf16"], ["all_reduce", "--help"], ["--help"], ["--version"])


class Sizes(unittest.TestCase):
    def test_may_have_decimals(self):
        done = tool.run([PERF, "all_reduce", "-b", "0.5K", "-e", "1.5K", "-i", "0.5K", "-n", "3"])
        self.assertEqual([row[0] for row in rows_of_table(done.stdout)], ["512", "1024", "1536"])

    def test_below_an_element_are_calls_of_nothing(self):
        done = tool.run([PERF, "all_reduce", "-d", "double", "-b", "4", "-e", "8", "-f", "2", "-n", "3"])
        self.assertEqual([row[:2] for row in rows_of_table(done.stdout)], [["0", "0"], ["8", "1"]])
        self.assertIn("# size 4 is less than one double: a row of calls with count 0", done.stdout)
        done = tool.run([PERF, "all_gather", "-b", "47", "-e", "48", "-i", "1", "-n", "3", "--ranks", "3"])
        self.assertEqual([row[:2] for row in rows_of_table(done.stdout)], [["0", "0"], ["48", "4"]])
        self.assertIn("# size 47 is less than 16 bytes for each of 3 ranks", done.stdout)


class Sentences(unittest.TestCase):
    def test_are_not_repeated_by_every_rank(self):
        done = tool.run([PERF, "all_reduce", *SMALL, "--ranks", "4"], expect=None, timeout=60,
                        env={"QCCL_INJECT": "rank=1,call=5,revoke"})
        said = [line.split(": ", 1)[1] for line in done.stderr.splitlines() if line.startswith("rank ")]
        self.assertGreater(len(said), 0)
        self.assertEqual(len(said), len(set(said)), done.stderr)


class Interrupted(Folder):
    @classmethod
    def setUpClass(cls):
        # Under nohup, or behind a shell's &, programs would be started with these ignored.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    def measured(self, path, key):
        """How many rows the document holds; nothing if it is not there yet."""
        try:
            with open(path) as file:
                return len(json.load(file)[key])
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def start(self, *options):
        return subprocess.Popen([PERF, "all_reduce", "-b", "64K", "-e", "64K", "-n", "10", *options],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def wait_for_rows(self, path, key):
        for _ in range(600):
            if (self.measured(path, key) or 0) >= 2:
                return
            time.sleep(0.05)
        self.fail("nothing was measured in 30 s")

    def check_kept(self, strike, expected, *options):
        rows, nccl = self.path("rows.json"), self.path("nccl.json")
        program = self.start("-N", "0", "--json", rows, "-J", nccl, *options)
        self.wait_for_rows(rows, "rows")
        self.wait_for_rows(nccl, "results")
        strike(program)
        _, said = program.communicate(timeout=60)
        self.assertEqual(program.returncode, expected, said)
        self.assertGreaterEqual(self.measured(rows, "rows"), 2)
        self.assertGreaterEqual(self.measured(nccl, "results"), 2)
        os.remove(nccl)
        return said

    def test_rows_are_kept(self):
        for launch in (["--ranks", "3"], ["--threads", "3"]):
            for number in (signal.SIGINT, signal.SIGTERM):
                said = self.check_kept(lambda program: program.send_signal(number), 128 + number, *launch)
                self.assertEqual(said.count("interrupted by signal"), 1)
            # As a terminal does it: all processes at once.
            said = self.check_kept(lambda program: os.killpg(program.pid, signal.SIGINT), 130, *launch)
            self.assertEqual(said.count("signal"), 1)

    def test_rows_are_kept_when_a_rank_dies(self):
        for victim in (0, 1):
            self.check_kept(lambda program: os.kill(tool.children(program.pid)[victim], signal.SIGKILL), 1, "--ranks", "3")

    def test_rows_on_standard_output_too(self):
        with tempfile.NamedTemporaryFile() as nccl:
            nccl.close()
            program = self.start("-N", "1000000", "--json", "-", "-J", nccl.name)
            self.wait_for_rows(nccl.name, "results")
            program.send_signal(signal.SIGTERM)
            written, _ = program.communicate(timeout=60)
            self.assertEqual(program.returncode, 143)
            self.assertGreaterEqual(len(json.loads(written)["rows"]), 2)
            os.remove(nccl.name)

    def test_codec_rows_too(self):
        program = subprocess.Popen([PERF, "codec", "--tier", "all", "--json", "-"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.assertTrue(program.stderr.readline().startswith("# codec"))
        program.send_signal(signal.SIGINT)
        written, _ = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 130)
        self.assertEqual(len(json.loads(written)["rows"]) % 4, 0)


if __name__ == "__main__":
    unittest.main()
