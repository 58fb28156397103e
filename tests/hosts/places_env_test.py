"""Where ranks are makes no difference but to what travels: a job on the hosts of a testbed prints the results that it prints on
one host, whose ranks QCCL_HOSTID groups alike; and what leaves a host is what there is to send. QTEST_FULL=1 takes every codec
on every number of hosts.

usage: places_env_test.py RESULTS QCCL_INFO QCCL_PERF
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import testbed
from launchers import HERE_ALONE, environment, free_port, start_by_hand
from testbed.suite import run_tests

RESULTS, INFO, PERF = sys.argv[1:4]
FULL = "QTEST_FULL" in os.environ
ALGORITHMS = ("ring", "direct", "halving", "tree", "tree:shape=double", "oneshot", "doubling", "hierarchy", "hierarchy:share=leader",
              "hierarchy:inner=ring,outer=halving", "hierarchy:inner=tree,outer=tree", "hierarchy:outer=direct,inner_codec=int8")
# Those whose sums do not go round the ring order.
FLAT = ("direct", "halving", "oneshot")
CUTS = ({"QCCL_SEGMENT": "1K", "QCCL_LANES": "1", "QCCL_CHECKSUM": "1"}, {"QCCL_SEGMENT": "4M", "QCCL_LANES": "8", "QCCL_ARENA": "1M"})
COUNT = "3001"
PATIENCE = 900 if FULL else 120  # seconds


def codecs():
    table = subprocess.run([INFO, "codecs"], capture_output=True, text=True, check=True).stdout.split("\nkeys\n")[0]
    known = re.findall(r"(?m)^ *(\w+) +[\d.]+ ", table)
    assert {"none", "int4", "minmax"} <= set(known), known
    more = ["int4:round=stochastic", "minmax:bits=3,bucket=all"]
    return [*known, *more] if FULL else ["none", "int8", *more]


def always(codec):
    """The codec also where the planner expects nothing of it."""
    return codec if codec == "none" else codec + (",min=0" if ":" in codec else ":min=0")


def words(algorithms=ALGORITHMS):
    return [f"{algorithm}@{always(codec)}" for algorithm in algorithms for codec in codecs()]


class RankHosts(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def on_hosts(self, bed, command, ranks, env=None):
        """What each rank prints."""
        with testbed.Job(bed, command, ranks, env=env, output=self.folder) as job:
            status = job.wait(PATIENCE)
        said = [(self.folder / f"{rank}.err").read_text() for rank in range(len(job.ranks))]
        self.assertEqual(status, 0, "".join(said))
        return [(self.folder / f"{rank}.out").read_text() for rank in range(len(job.ranks))]

    def here(self, command, places):
        """The same on this machine, with the variables of each rank's place."""
        port = free_port()
        ended = start_by_hand([command] * len(places), [
            environment(RANK=rank, WORLD_SIZE=len(places), MASTER_ADDR="localhost", QCCL_PORT=port, **HERE_ALONE, **place)
            for rank, place in enumerate(places)], PATIENCE)
        self.assertEqual([status for status, _, _ in ended], [0] * len(places), ended)
        return [said for _, said, _ in ended]

    def check_alike(self, bed, ranks, command, env=None, places=lambda rank: {}):
        here = self.here(command, [{"QCCL_HOSTID": f"host {rank // ranks}", **places(rank)} for rank in range(len(bed.hosts) * ranks)])
        there = self.on_hosts(bed, command, ranks, env)
        self.assertEqual(there, here)
        lines = [said.splitlines() for said in there]
        everywhere = dict.fromkeys(("reduce_scatter", "scatter", "all_to_all", "scan", "exscan"), len(lines))
        at_root = dict.fromkeys(("reduce", "gather"), 2)  # the others have no result
        different = {**everywhere, **at_root}
        for line in zip(*lines):  # of each case, from all ranks
            self.assertEqual(len(set(line)), different.get(line[0].split()[0].removesuffix("_v"), 1), line)
        return len(lines[0])

    def test_results_are_those_of_one_host(self):
        cases = 0
        for hosts in range(2, 6):
            with testbed.Testbed(hosts, rate=None) as bed:
                for ranks in range(1, 4) if FULL else [(hosts + 1) % 3 + 1]:
                    cases += self.check_alike(bed, ranks, [RESULTS, COUNT, *words()])
        print(f"{cases} cases")

    def test_neither_hosts_nor_cuts_change_results(self):
        # With the algorithm named, and a codec that has min=.
        command, ranks = [RESULTS, COUNT, *words(FLAT)], 4
        alone = self.here(command, [{}] * ranks)
        for hosts in (1, 2, ranks):
            for cuts in ({}, *CUTS):
                places = [{"QCCL_HOSTID": f"host {rank % hosts}", **cuts} for rank in range(ranks)]
                self.assertEqual(self.here(command, places), alone, (hosts, cuts))

    def test_cuts_do_not_change_what_the_planner_chooses(self):
        for hosts in (1, 4):
            for count in ("30", "90", "270", "810", "70001") if FULL else ("30", "270", "70001"):
                command = [RESULTS, count, "@none", *(f"@{codec}" for codec in codecs()[1:])]
                usual, *others = [self.here(command, [{"QCCL_HOSTID": f"host {rank % hosts}", **cuts} for rank in range(4)])
                                  for cuts in ({}, *CUTS)]
                for cuts, other in zip(CUTS, others):
                    self.assertEqual(other, usual, (hosts, count, cuts))

    def test_nodes_and_racks_are_tiers(self):
        # Two nodes in each of four hosts, of which two share a rack.
        script = 'export QCCL_NODE=$((RANK / 2 % 2)) QCCL_RACK=$((RANK / 8)) QCCL_RACK_RATE=1gbit; exec "$0" "$@"'
        places = lambda rank: {"QCCL_NODE": rank // 2 % 2, "QCCL_RACK": rank // 8}
        command = ["sh", "-c", script, RESULTS]
        with testbed.Testbed(4, rate=None) as bed:
            said = self.on_hosts(bed, [*command, "explain"], 4)[0]
            for line in ("over shm+ucx\n", "4 hosts with 4, 4, 4 and 4 ranks;", "8 nodes with 2, 2, 2, 2, 2, 2, 2 and 2 ranks\n",
                         "; 0.125 GB/s for all of a rack\n", "2 racks with 8 and 8 ranks\n", "rings go by 0 1 2 3 4 "):
                self.assertIn(line, said)
            if FULL:
                self.check_alike(bed, 4, [*command, COUNT, *words()], places=places)
        text = self.here([RESULTS, "explain"], [{"QCCL_NODE": rank % 2} for rank in range(4)])[0]
        self.assertIn("over shm\n", text)
        self.assertIn("2 nodes with 2 and 2 ranks\n  rings go by 0 2 1 3\n", text)

    # ---- What leaves a host

    def sent(self, bed, ranks, algorithm, codec, size):
        """(bytes that each host sends for a sum, the row of qccl-perf)."""
        rows, counts = [], []
        for iterations in (1, 9):
            path = self.folder / "rows.json"
            before = bed.counters()
            self.on_hosts(bed, [PERF, "all_reduce", "-b", size, "-e", size, "-n", iterations, "-w", 1, "-c", 0, "--lossless", 0, "--codec",
                                codec, "--algo", algorithm, "--json", path], ranks)
            counts.append([now.sent - then.sent for now, then in zip(bed.counters(), before)])
            rows = json.loads(path.read_text())["rows"]
        # Out of place and in place. What TCP sends twice in either run makes the difference larger or smaller.
        return [(many - few) / 16 for few, many in zip(*counts)], rows[0]

    def test_all_that_goes_to_other_hosts_goes_over_the_network(self):
        # The hosts share this machine's boot, shared memory and processes: whatever UCX could use, it is let to choose from.
        size = 4 << 20
        with testbed.Testbed(3, rate=None) as bed:
            for algorithm in ("ring", "direct", "hierarchy"):
                for codec in ("none", "int4"):
                    counted, row = self.sent(bed, 1, algorithm, codec, size)
                    for each in counted:
                        self.assertAlmostEqual(each / row["wire_bytes"], 1.02, delta=0.08, msg=f"{counted}, {row}")

    def test_a_hierarchy_sends_each_byte_between_hosts_once(self):
        size = 4 << 20
        with testbed.Testbed(2, rate=None) as bed:
            for codec, bits in (("none", 32), ("int4", 4.5)):
                # The planner sees it, too.
                for algorithm, vectors in (("auto", 1), ("hierarchy", 1), ("hierarchy:share=leader", 1), ("ring", 1.5)):
                    counted, _ = self.sent(bed, 2, algorithm, always(codec), size)
                    for each in counted:
                        found = each / (size * bits / 32)
                        self.assertAlmostEqual(found / vectors, 1.02, delta=0.08, msg=f"{algorithm} {codec}: {counted}")


if __name__ == "__main__":
    run_tests()
