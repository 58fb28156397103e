"""qccl-info topology from outside: this machine and others as tree, matrix, picture, JSON and text, and what is refused.

usage: topology_info_test.py QCCL_INFO
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import tool

INFO = sys.argv.pop(1)
JOB = "2 x node(4 gpu nvlink:450 nic:rdma:50) net:50"
SOUND = "2 x node(4 gpu nvlink:450 nic:rdma:50 pcie:gen5)"
XML = """<system version="1"><cpu numaid="0" affinity="f">
<pci busid="0000:01:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"><gpu dev="0" sm="80"/></pci>
</cpu></system>"""


def topology(*words, **more):
    return tool.run([INFO, "topology", *words], **more)


class Forms(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return str(pathlib.Path(self.folder.name) / name)

    def test_this_machine(self):
        self.assertIn("NUMA", topology().stdout)
        said = json.loads(topology("--json", "-").stdout)
        self.assertIn("machine", {node["kind"] for node in said["nodes"]})
        self.assertTrue(said["connected"])

    def test_a_job(self):
        said = topology("--topology", SOUND).stdout
        for words in ("node0 and others alike, 2 together", "nvlink 150 GB/s", "ring 0, 50 GB/s, ranks 0 "):
            self.assertIn(words, said)
        self.assertIn("NV1 150", topology("--topology", SOUND, "--matrix").stdout)

    def test_files_beside_the_tree(self):
        names = [self.path(name) for name in ("picture.svg", "graph.json", "graph.txt")]
        said = topology("--topology", SOUND, "--svg", names[0], "--json", names[1], "--text", names[2])
        self.assertEqual(said.stdout, topology("--topology", SOUND).stdout)
        self.assertTrue(xml.etree.ElementTree.parse(names[0]).getroot().tag.endswith("svg"))
        document = json.loads(pathlib.Path(names[1]).read_text())
        self.assertEqual(list(document), ["version", "connected", "nodes", "links", "ranks", "rings", "trees"])
        self.assertEqual((document["version"], len(document["ranks"])), (1, 8))
        self.assertEqual(sorted(document["rings"][0]["ranks"]), list(range(8)))

    def test_the_text_reads_back_the_same(self):
        text, again = self.path("a"), self.path("b")
        topology("--topology", SOUND, "--text", text)
        topology("--topology", text, "--text", again)
        self.assertEqual(pathlib.Path(text).read_text(), pathlib.Path(again).read_text())
        self.assertEqual(topology("--topology", text).stdout, topology("--topology", SOUND).stdout)
        self.assertEqual(topology("--topology", SOUND, "--text", "-").stdout, pathlib.Path(text).read_text())

    def test_xml(self):
        pathlib.Path(self.path("t.xml")).write_text(XML)
        self.assertIn("GPU 0 0000:01:00.0 sm80 [pcie 31.5 GB/s x16]", topology("--topology", self.path("t.xml")).stdout)

    def test_ranks(self):
        said = json.loads(topology("--topology", SOUND, "--ranks", "3", "--json", "-").stdout)
        self.assertEqual(len(said["ranks"]), 3)

    def test_large_jobs(self):
        picture = topology("--topology", "64 x node(8 gpu nvlink:450) net:50x8", "--svg", "-").stdout
        self.assertIn("\u00d7 64 alike", picture)
        self.assertLess(len(picture), 200000)


class Refusals(unittest.TestCase):
    def refused(self, *words, status=2):
        done = subprocess.run([INFO, "topology", *words], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (status, ""))
        self.assertTrue(done.stderr.startswith("qccl-info: ") and done.stderr.endswith("\n"))
        return done.stderr

    def test_topologies(self):
        self.assertIn("net: gives NICs to nodes that have nic: already", self.refused("--topology", JOB))
        self.assertIn("did you mean nvlink?", self.refused("--topology", "node(8 gpu nvlnk:450)"))
        self.assertIn("/nowhere.xml is no file", self.refused("--topology", "/nowhere.xml"))
        self.assertIn("is a folder", self.refused("--topology", "/"))
        self.assertIn("too few for 9 ranks", self.refused("--topology", SOUND, "--ranks", "9"))

    def test_words(self):
        self.assertIn("'0' is no number from 1", self.refused("--ranks", "0"))
        self.assertIn("did you mean --matrix?", self.refused("--matrx"))
        self.assertIn("--svg needs a value", self.refused("--svg"))
        self.assertIn("only one of --svg, --json and --text", self.refused("--svg", "-", "--json", "-"))
        self.assertIn("is empty", self.refused("--topology", ""))

    def test_files_that_cannot_be_written(self):
        done = subprocess.run([INFO, "topology", "--json", "/nowhere/x"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, "qccl-info: cannot write /nowhere/x: No such file or directory\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
