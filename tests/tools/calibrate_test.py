"""qccl-perf calibrate: what it writes is read by the library, keeps what was measured before, and what cannot be is refused before
anything is measured. QTEST_FULL=1 measures larger calls, on one host up to the usual largest size, and each call as often as usual.

usage: calibrate_test.py QCCL_PERF RESULTS
"""
import os
import pathlib
import re
import sys
import tempfile
import unittest

import tool
from launchers import HERE_ALONE, environment, free_port, start_by_hand

PERF, RESULTS = sys.argv[1:3]
COLLECTIVES = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "scan", "exscan", "send"}
FULL = "QTEST_FULL" in os.environ
LARGER, SMALLER = (64 << 20, 1 << 20) if FULL else (256 << 10, 64 << 10)
SHORT = [] if FULL else ["--rounds", 1, "--iters", 3]
CODECS = {"int4", "minmax", "fp16", "onebit", "topk"}


class Calibrate(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.file = self.folder / "deep" / "figures"

    def calibrate(self, *words, **options):
        return tool.run([PERF, "calibrate", *words], **options)

    def jobs(self):
        """{(ranks, hosts): {collective: [algorithms]}} of the file."""
        found = {}
        for line in self.file.read_text().splitlines():
            if job := re.fullmatch(r"job ranks=(\d+) hosts=(\d+) model=\d+", line):
                now = found[int(job[1]), int(job[2])] = {}
            elif factor := re.match(r"factor (\S+) (\S+) (none|int8|int4)( \d+=\S+)+$", line):
                now.setdefault(factor[1], []).append((factor[2], factor[3]))
        return found

    def test_a_file_for_two_jobs(self):
        larger = [] if FULL else ["--largest", LARGER, *SHORT]
        said = self.calibrate("-t", 2, *larger, "--out", "-")
        self.assertRegex(said.stdout, r"(?s)\A# last of 2 ranks on 1 host.*\nqccl-calibration version=1\nmachine .*\njob ranks=2 hosts=1 model=\d+\n")
        self.assertRegex(said.stderr, r"\A\d+ calls of 2 ranks on 1 host, .* and \d+ codecs measured; ")
        self.file.parent.mkdir()
        first = said.stdout
        self.file.write_text(first)
        said = self.calibrate("-t", 3, "--largest", SMALLER, *SHORT, "--out", self.file)
        self.assertRegex(said.stdout, r"(?m)^\d+ calls of 3 ranks on 1 host, .* and \d+ codecs measured; ")
        self.assertIn(f"written to {self.file}\n", said.stdout)
        self.assertEqual(said.stderr, "")
        jobs = self.jobs()
        self.assertEqual(set(jobs), {(2, 1), (3, 1)})
        for job in jobs.values():
            self.assertEqual(set(job), COLLECTIVES)
            self.assertLessEqual({("direct", "none"), ("direct", "int8"), ("ring", "none"), ("oneshot", "int4")}, set(job["all_reduce"]))
        largest = re.findall(r"(?m)^factor all_reduce ring none .* (\d+)=\S+$", self.file.read_text())
        self.assertEqual(largest, [str(LARGER), str(SMALLER)])
        text = self.file.read_text()
        machine, pair, crowd = text.split("\njob ")
        for part in (machine, pair, crowd):
            self.assertLessEqual(CODECS, set(re.findall(r"(?m)^codec (\w+)", part)))
            self.assertEqual(len(re.findall(r"(?m)^near ", part)), len(set(re.findall(r"(?m)^near \w+", part))))
        self.assertIn("\ncopy ", crowd) # measured with two, where three share cores
        # What the factors of two ranks rest on is not what three have measured since.
        self.assertEqual(pair, first.split("\njob ")[1].rstrip())
        self.assertNotEqual(*(re.findall(r"(?m)^codec .*", part) for part in (pair, machine)))
        self.check_simulation(text)

    def check_simulation(self, text):
        """Simulated calls of such a job are corrected by what the file says; those of another job are not."""
        factor = float(re.search(r"(?m)^simulated all_reduce ring none .*\b16384=(\S+)", text)[1])
        twice = re.sub(r"(?m)^(simulated all_reduce ring none .*\b16384=)\S+", rf"\g<1>{2 * factor}", text)
        (self.folder / "twice").write_text(twice)
        for ranks, times in ((2, 2), (4, 1)):
            once, then = (tool.rows_of([PERF, "simulate", "all_reduce", "-b", "16K", "-e", "16K", "--algo", "ring", "--ranks", ranks],
                                       env={"QCCL_CALIBRATION": str(file)})[0]["time_us"] for file in (self.file, self.folder / "twice"))
            self.assertAlmostEqual(then / once, times, delta=0.01)

    def test_ranks_of_two_hosts_find_their_rate_in_the_cache(self):
        cache = {"XDG_CACHE_HOME": str(self.folder), "QCCL_CALIBRATION": ""}

        def job(*command, patience=90):
            port = free_port()
            return start_by_hand([command] * 2, [
                environment(**HERE_ALONE, **{"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "QCCL_PORT": port,
                                             "QCCL_HOSTID": f"h{rank}", **cache}) for rank in range(2)], patience)
        self.assertIn("an unknown rate", job(RESULTS, "explain")[0][1])
        for status, _, said in job(PERF, "calibrate", "--largest", "4M" if FULL else "64K", *map(str, SHORT), patience=300):
            # On a busy machine the other rank may take long to start.
            self.assertEqual((status, re.sub(r"qccl-perf: waiting for rank .*\n", "", said)), (0, ""))
        (self.file,) = (self.folder / "qccl").iterdir()
        self.assertEqual(set(self.jobs()), {(2, 2)})
        rate = float(re.search(r"(?m)^far .*bytes_per_ns=(\S+)", self.file.read_text())[1])
        explained = job(RESULTS, "explain")[0][1]
        self.assertNotIn("an unknown rate", explained)
        self.assertAlmostEqual(float(re.search(r"(\S+) GB/s for all of a host", explained)[1]), rate, delta=0.02 * rate)

    def test_what_cannot_be_is_refused_at_once(self):
        said = self.calibrate("-t", 1, expect=2).stderr
        self.assertEqual(said, "qccl-perf: one rank has nobody to send to: calibrate with 2 or more\n")
        (self.folder / "file").touch()
        os.mkfifo(self.folder / "pipe")
        for path in (self.folder, self.folder / "file" / "below", self.folder / "pipe"):
            said = self.calibrate("-t", 2, "--out", path, expect=2).stderr
            self.assertEqual(said, f"qccl-perf: --out: {path} cannot be written\n")
        (self.folder / "file").write_text("my thesis\n")
        said = self.calibrate("-t", 2, "--out", self.folder / "file", expect=2).stderr
        self.assertIn("is there already, and line 1: it is no calibration", said)
        self.assertEqual((self.folder / "file").read_text(), "my thesis\n")
        said = self.calibrate("-t", 2, env={"XDG_CACHE_HOME": "", "HOME": ""}, expect=2).stderr
        self.assertIn("neither HOME nor XDG_CACHE_HOME", said)
        self.assertIn("'4K' is too little", self.calibrate("-t", 2, "--largest", "4K", expect=2).stderr)
        self.assertIn("--rounds: '4' is no number from 1 to 3", self.calibrate("-t", 2, "--rounds", 4, expect=2).stderr)
        self.assertIn("--threads", self.calibrate("--thread", 2, "--ranks", 2, expect=2).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
