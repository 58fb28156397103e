"""QCCL_REPRODUCIBLE=1: a job ends with the same bytes wherever its ranks are, on whatever cores and links, and says why it chose
as it did. Without it the same places give other bytes, so that the test would see a difference.

usage: reproducible_ranks_test.py RESULTS QCCL_INFO
"""
import collections
import functools
import subprocess
import sys
import unittest

from launchers import HERE_ALONE, environment, free_port, start_by_hand

RESULTS, INFO = sys.argv[1:3]
RANKS = 4
COUNTS = ("30", "700", "70001")
CODECS = ("none", "int8", "onebit", "int4:round=stochastic", "lossless:min=0", "int4:entropy=1,min=0")  # these pack between hosts alone
SHARED_ALGORITHMS = ("", "direct", "ring", "tree", "halving", "doubling", "hierarchy")
SHARED_CODECS = ("shared:bits=5", "shared:bits=5,min=0", "shared:bits=8,block=100,min=0", "shared:bits=8,block=100")
# The host of each rank, and what else it hears.
PLACES = (
    ([0, 0, 0, 0], {}),
    ([0, 0, 0, 0], {"QCCL_NODE": "{rank_odd}", "QCCL_TIER": "scalar"}),
    ([0, 1, 0, 1], {"QCCL_SEGMENT": "1K", "QCCL_LANES": "1", "QCCL_LINK_RATE": "100mbit"}),
    ([0, 1, 2, 3], {"QCCL_LINK_RATE": "400gbit", "QCCL_LINK_LATENCY": "1us", "QCCL_RACK": "{rank_odd}", "QCCL_ARENA": "64M"}),
)


def results(count, hosts, more, reproducible, prefix=(), words=tuple(f"@{codec}" for codec in CODECS)):
    """What the ranks print."""
    port = free_port()
    command = [*prefix, RESULTS, count, *words]
    environments = [environment(RANK=rank, WORLD_SIZE=RANKS, MASTER_ADDR="localhost", QCCL_PORT=port, QCCL_HOSTID=f"host {host}",
                                QCCL_REPRODUCIBLE=reproducible, **HERE_ALONE,
                                **{name: value.format(rank_odd=rank % 2) for name, value in more.items()})
                    for rank, host in enumerate(hosts)]
    ended = start_by_hand([command] * RANKS, environments)
    assert [status for status, _, _ in ended] == [0] * RANKS, ended
    return [said for _, said, _ in ended]


@functools.cache
def shared_results(count, hosts, more, words):
    return results(count, hosts, dict(more), 0, words=words)


def explain(*words, **settings):
    return subprocess.run([INFO, "explain", *words], env=environment(**settings), capture_output=True, text=True, check=True).stdout


class Reproducible(unittest.TestCase):
    def test_places_links_and_cores_do_not_change_the_bytes(self):
        differing = 0
        for count in COUNTS:
            first = results(count, *PLACES[0], reproducible=1)
            self.assertEqual(len(first[0].splitlines()), 15 * len(CODECS))
            for hosts, more in PLACES[1:]:
                self.assertEqual(results(count, hosts, more, reproducible=1), first, (count, hosts, more))
                differing += results(count, hosts, more, reproducible=0) != first
            self.assertEqual(results(count, *PLACES[0], reproducible=1, prefix=["taskset", "-c", "0"]), first, count)
        self.assertGreater(differing, 0)

    def test_shared_scales_need_no_such_setting(self):
        words = [f"{algorithm}@{codec}" for algorithm in SHARED_ALGORITHMS for codec in SHARED_CODECS]
        for count in COUNTS:
            for rank in range(RANKS):
                hashes = collections.defaultdict(list)
                for hosts, more in PLACES:
                    for line in shared_results(count, tuple(hosts), tuple(more.items()), tuple(words))[rank].splitlines():
                        collective, word, value = line.split()
                        hashes[collective, word.split("@")[1].removesuffix(",min=0")].append(value)
                self.assertEqual({collective for collective, _ in hashes}, {"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_v"})
                for of, found in hashes.items():
                    self.assertGreater(len(found), 8 * len(PLACES), of)
                    self.assertEqual(len(set(found)), 1, (of, count, rank))

    def test_the_algorithm_does_not_depend_on_the_settings(self):
        def chosen(size, hosts, **settings):
            said = explain("all_reduce", "--bytes", size, "--ranks", "8", "--codec", "int4", *hosts, **settings)
            return [line.split()[1] for line in said.splitlines() if line.startswith("* ")], said

        for size in ("64", "4K", "256K", "16M"):
            usual, said = chosen(size, [], QCCL_REPRODUCIBLE=1)
            self.assertIn("  reproducible: chosen by fixed speeds, wherever the ranks are; rings go by rank\n", said)
            for hosts in ([], ["--hosts", "4,4:round"], ["--hosts", "2+2/1,3"]):
                for settings in ({}, {"QCCL_SEGMENT": "4K", "QCCL_LANES": "1"}, {"QCCL_LINK_RATE": "1mbit"}, {"QCCL_ONESHOT_MAX": "64M"}):
                    self.assertEqual(chosen(size, hosts, QCCL_REPRODUCIBLE=1, **settings)[0], usual, (size, hosts, settings))

    def test_a_setting_that_is_not_heard_is_told(self):
        port = free_port()
        said = start_by_hand([[RESULTS, "3", "@none"]] * 2, [
            environment(RANK=rank, WORLD_SIZE=2, MASTER_ADDR="localhost", QCCL_PORT=port, QCCL_REPRODUCIBLE=1, QCCL_ONESHOT_MAX="1M")
            for rank in range(2)])
        self.assertEqual(sum(error.count("QCCL_ONESHOT_MAX is not heard: ") for _, _, error in said), 1, said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
