"""Ranks of processes take their places from the topology graph: one of each host asks hwloc, the others learn it from that one.

usage: topology_env_test.py RESULTS
"""
import os
import sys
import tempfile
import unittest

from launchers import HERE_ALONE, environment, free_port, start_by_hand

RESULTS = sys.argv[1]
CPUS = sorted(os.sched_getaffinity(0))
# A machine of two NUMA nodes, of which the first has the first processor here and the second the last one.
TWO_NODES = f"pack:2 [numa] pu:{max(CPUS[-1], 1)}"


def sets(number):
    return "".join(f' {kind}{name}="{1 << of:#010x}"' for name, of in (("cpuset", CPUS[0 if number == 0 else -1]), ("nodeset", number)) for kind in ("", "complete_"))


def package_with_nic(number):
    """As hwloc writes it: a NUMA node with the first or the last processor here, and an adapter in a slot of its own."""
    return (f'<object type="Package" os_index="{number}"{sets(number)} gp_index="1{number}">'
            f'<object type="NUMANode" os_index="{number}"{sets(number)} gp_index="2{number}"/>'
            f'<object type="PU" os_index="{CPUS[0 if number == 0 else -1]}"{sets(number)} gp_index="3{number}"/>'
            f'<object type="Bridge" gp_index="4{number}" bridge_type="0-1" depth="0" bridge_pci="0000:[{number}0-{number}1]">'
            f'<object type="Bridge" gp_index="5{number}" bridge_type="1-1" depth="1" bridge_pci="0000:[{number}1-{number}1]" pci_busid="0000:{number}0:01.0"'
            ' pci_type="0604 [8086:340a] [0000:0000] 22 00" pci_link_speed="31.5">'
            f'<object type="PCIDev" gp_index="6{number}" pci_busid="0000:{number}1:00.0" pci_type="0207 [15b3:1021] [15b3:0042] 00 00" pci_link_speed="31.5">'
            f'<object type="OSDev" gp_index="7{number}" name="mlx5_{number}" osdev_type="3"/></object></object></object></object>\n')


def machine_with_two_nics():
    both = f"{1 << CPUS[0] | 1 << CPUS[-1]:#010x}"
    return ('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">\n'
            f'<object type="Machine" os_index="0" cpuset="{both}" complete_cpuset="{both}" allowed_cpuset="{both}"'
            ' nodeset="0x3" complete_nodeset="0x3" allowed_nodeset="0x3" gp_index="1">'
            f'{package_with_nic(0)}{package_with_nic(1)}</object>\n</topology>\n')


def explain(places, cpus=()):
    """What the ranks print and warn of; each has the variables of its place and runs on a processor of `cpus`, if there are any."""
    port = free_port()
    bound = [["taskset", "-c", str(cpus[rank % len(cpus)])] if cpus else [] for rank in range(len(places))]
    ended = start_by_hand([[*one, RESULTS, "explain"] for one in bound], [
        environment(RANK=rank, WORLD_SIZE=len(places), MASTER_ADDR="localhost", QCCL_PORT=port, QCCL_DEBUG="info", **HERE_ALONE, **place)
        for rank, place in enumerate(places)])
    assert [status for status, _, _ in ended] == [0] * len(places), ended
    return [said for _, said, _ in ended], [warned for _, _, warned in ended]


class Topology(unittest.TestCase):
    @unittest.skipIf(len(CPUS) < 2, "one processor")
    def test_a_rank_is_in_the_node_that_has_its_processors(self):
        said, _ = explain([{"HWLOC_SYNTHETIC": TWO_NODES}] * 4, [CPUS[0], CPUS[-1]])
        self.assertIn("2 nodes with 2 and 2 ranks\n  rings go by 0 2 1 3\n", said[0])
        said, _ = explain([{"HWLOC_SYNTHETIC": TWO_NODES}] * 4)  # bound to neither
        self.assertNotIn("nodes with", said[0])

    @unittest.skipIf(len(CPUS) < 2, "one processor")
    def test_the_setting_comes_before_the_graph(self):
        places = [{"HWLOC_SYNTHETIC": TWO_NODES, "QCCL_NODE": str(rank // 2)} for rank in range(4)]
        said, _ = explain(places, [CPUS[0], CPUS[-1]])
        self.assertIn("2 nodes with 2 and 2 ranks\n  rings go by 0 1 2 3\n", said[0])

    def test_one_rank_of_a_host_looks_for_all(self):
        for hosts in (1, 2):
            places = [{"HWLOC_SYNTHETIC": TWO_NODES, "QCCL_HOSTID": f"h{rank % hosts}"} for rank in range(4)]
            _, warned = explain(places)
            told = [f"topology from HWLOC_SYNTHETIC={TWO_NODES}\n" in text for text in warned]
            self.assertEqual(told, [rank < hosts for rank in range(4)], warned)

    @unittest.skipIf(len(CPUS) < 2, "one processor")
    def test_hosts_may_differ(self):
        places = [{"HWLOC_SYNTHETIC": TWO_NODES if rank % 2 else "pack:1 [numa] pu:64", "QCCL_HOSTID": f"h{rank % 2}"} for rank in range(4)]
        said, _ = explain(places, [CPUS[0], CPUS[0], CPUS[0], CPUS[-1]])
        self.assertIn("2 hosts with 2 and 2 ranks;", said[0])
        self.assertIn("3 nodes with 2, 1 and 1 ranks\n", said[0])

    @unittest.skipIf(len(CPUS) < 2, "one processor")
    def test_hosts_of_two_adapters_have_two_rings(self):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write(machine_with_two_nics())
            file.flush()
            said, _ = explain([{"HWLOC_XMLFILE": file.name, "QCCL_HOSTID": f"h{rank // 2}"} for rank in range(4)], [CPUS[0], CPUS[-1]])
        self.assertIn("rings go by 0 3 2 1\n  rings=all also by 0 1 2 3\n", said[0])
        self.assertRegex(said[0], r"\n  ring:rings=all +[0-9.]+ [mun]s: ")

    def test_where_hwloc_finds_nothing_there_is_a_communicator(self):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write("<topology version=\"2.0\"><object type=\"Mach")
            file.flush()
            _, warned = explain([{"HWLOC_XMLFILE": file.name}] * 2)
        self.assertIn(f"HWLOC_XMLFILE={file.name}: hwloc", warned[0])
        self.assertIn("cannot read it; this machine counts as one NUMA node with no GPU and no NIC\n", warned[0])
        self.assertNotIn("HWLOC_XMLFILE", warned[1])

    def test_a_pipe_is_not_waited_for(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(pipe := os.path.join(folder, "pipe"))
            _, warned = explain([{"HWLOC_XMLFILE": pipe}] * 2)
        self.assertIn(f"HWLOC_XMLFILE={pipe}: hwloc", warned[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
