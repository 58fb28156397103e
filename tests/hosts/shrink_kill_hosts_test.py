"""Communicators over several hosts are split, and shrunk where ranks die or a host cannot be reached.

usage: shrink_kill_hosts_test.py PROGRAM
"""
import pathlib
import sys
import tempfile
import time
import unittest

import testbed
from testbed.suite import run_tests

PROGRAM = sys.argv[1]


class Remnants(unittest.TestCase):
    """Three hosts of three ranks each, of which the middle one has no neighbour elsewhere."""

    def setUp(self):
        self.bed = self.enterContext(testbed.Testbed(3))
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.job = self.enterContext(testbed.Job(self.bed, [PROGRAM, "--join"], ranks=3, output=self.folder))
        self.wait_until(lambda: all("works" in self.said(rank) for rank in range(9)))

    def said(self, rank, kind="out"):
        return (self.folder / f"{rank}.{kind}").read_text()

    def wait_until(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                self.fail("waited in vain: " + "".join(self.said(rank, "err") for rank in range(9)))
            time.sleep(0.02)

    def check(self, left):
        """`left`: by rank, who is left with it, a bit for each."""
        self.wait_until(lambda: all(self.job.statuses()[rank] is not None for rank in left))
        for rank, ranks in left.items():
            self.assertEqual((self.job.statuses()[rank], self.said(rank, "err")), (0, ""))
            self.assertRegex(self.said(rank), f", left {ranks:x}\n")

    def test_ranks_die(self):
        self.job.kill(0)
        self.job.kill(4)
        self.check({rank: 0b111101110 for rank in (1, 2, 3, 5, 6, 7, 8)})

    def test_a_host_cannot_be_reached(self):
        self.bed.hosts[1].cut()
        self.check({rank: 0b111000111 for rank in (0, 1, 2, 6, 7, 8)})
        # The others, for which it is they that cannot be reached, go on apart.
        self.check({rank: 0b000111000 for rank in (3, 4, 5)})


del sys.argv[1:]
run_tests()
