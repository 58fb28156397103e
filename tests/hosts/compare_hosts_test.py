"""perf/hosts/compare_hosts.py: what it computes beforehand, what it does with contenders that are not there, fail, hang or lie, and
one run against those that are.

usage: compare_hosts_test.py SOURCE_ROOT
"""
import csv
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree

ROOT = pathlib.Path(sys.argv[1])
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "perf" / "hosts"))
import collectives_table  # noqa: E402
import compare_hosts  # noqa: E402
import tool  # noqa: E402
from comparison import picture, table, vectors  # noqa: E402
from testbed.suite import run_tests  # noqa: E402

SCRIPT = ROOT / "perf" / "hosts" / "compare_hosts.py"

# In the place of qccl-perf: every rank sends the vector to the next, or what BITS of 32 leave of it, and rank 0 says what the
# test wants.
STAND_IN = """#!/usr/bin/python3
import json, os, socket, sys, threading, time
told = dict(zip(sys.argv[2::2], sys.argv[3::2]))
if os.environ.get("FAILS") == os.environ["RANK"]:
    sys.exit("this rank cannot go on")
if "HANGS" in os.environ:
    threading.Event().wait()
first_time = "FAILS_ONCE" in os.environ and os.environ["FAILS_ONCE"] + os.environ["RANK"]
if first_time and not os.path.exists(first_time):
    open(first_time, "w").close()
    sys.exit("not the first time")
rank, ranks, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(told["-b"])
codecs = told["--codec"].split(",")
subnet = os.environ["MASTER_ADDR"].rpartition(".")[0]
server = socket.create_server(("", 9000))
bits = {"none": 32, "int8": 8, "int4": 4}
beside = ["none"] if told.get("--lossless") != "0" and "none" not in codecs else []
count = sum(size * bits[codec] // 32 for codec in codecs + beside) * 2 * int(told["-n"])
def send():
    while True:
        try:
            socket.create_connection((f"{subnet}.{(rank + 1) % ranks + 1}", 9000)).sendall(bytes(count))
            return
        except OSError:
            time.sleep(0.05)  # attempts count on the link, too
threading.Thread(target=send).start()
connection, _ = server.accept()
while connection.recv(1 << 20): pass
row = {"time_us": 1000.0, "algorithm": "ring", "nmse": 0.0, "codec": "x", "ranks": ranks, "transport": "ucx", "ranks_agree": True}
row |= json.loads(os.environ.get("ROW", "{}"))
rows = [{**row, "in_place": in_place, "time_us": row["time_us"] + 8 * in_place} for _ in codecs for in_place in (False, True)]
if rank == 0:
    json.dump({"rows": rows}, open(told["--json"], "w"))
"""


class Beforehand(unittest.TestCase):
    def test_bits_are_those_of_the_wire(self):
        count = 1 << 20
        for codec in ("none", "fp16", "bf16", "fp8e4m3", "fp8e5m2", "int12", "int10", "int8", "int6", "int5", "int4", "int3", "int2",
                      "minmax", "mxfp8e4m3", "mxfp6e2m3", "mxfp4", "nvfp4", "onebit", "terngrad", "norm", "dummy"):
            self.assertAlmostEqual(vectors.bits_of(codec), 8 * tool.payload_bytes(codec, count, 4) / count, places=9)
        for codec in ("topk", "dgc"):
            self.assertAlmostEqual(vectors.bits_of(codec), 8 * tool.payload_bytes(codec, count, 4) / count, places=3)
        self.assertEqual(vectors.bits_of("int4:block=64,round=stochastic"), 4.25)
        self.assertEqual(vectors.bits_of("minmax:bits=4,bucket=1024"), 4.0625)
        self.assertEqual(vectors.bits_of("norm:bits=4,bucket=64,norm=linf"), 4.5)
        self.assertEqual(vectors.bits_of("minmax:bits=4,bucket=all"), 4)
        for codec in ("zip", "minmax:bits=4,bucket=all,entropy=1", "int8:entropy=1"):
            self.assertIsNone(vectors.bits_of(codec))

    def test_limits(self):
        self.assertAlmostEqual(table.limit_of(0.12e9, 4, "none"), 0.08)
        self.assertAlmostEqual(table.limit_of(0.12e9, 2, "int4"), 0.12 * 32 / 4.5)
        self.assertIsNone(table.limit_of(0.12e9, 1, "none"))
        self.assertIsNone(table.limit_of(None, 4, "none"))

    def test_what_a_rate_allows(self):
        for rate, bits in (("1gbit", 1e9), ("2.5gbit", 2.5e9), ("400mbit", 4e8), ("64kbit", 64e3)):
            self.assertAlmostEqual(table.nominal_line(rate) * 8 / bits, 0.956, places=3)
        self.assertIsNone(table.nominal_line("none"))

    def test_the_usual_program_is_that_of_the_usual_build(self):
        with unittest.mock.patch.object(sys, "argv", [str(SCRIPT)]):
            for script in (compare_hosts, collectives_table):
                self.assertEqual(script.arguments().program, ROOT.resolve() / "build/perf/qccl-perf")

    def test_lists_of_codecs(self):
        self.assertEqual(vectors.split_codecs("none,int4:block=64,round=stochastic,minmax"),
                         ["none", "int4:block=64,round=stochastic", "minmax"])

    def test_sizes(self):
        self.assertEqual([vectors.parse_size(text) for text in ("4", "64K", "16M", "1G")], [4, 1 << 16, 1 << 24, 1 << 30])
        self.assertEqual(vectors.size_text(1 << 24), "16 Mi")
        for text in ("0", "3", "64k", "-4", "1.5M", ""):
            with self.assertRaises(ValueError):
                vectors.parse_size(text)

    def test_vectors_differ_between_ranks_and_not_between_runs(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for size in (4, 400000, 3 << 20):
                self.assertEqual(vectors.write_vectors(folder, 2, size), f"{name}/rank%r.npy")
                first = [(folder / f"rank{rank}.npy").read_bytes() for rank in (0, 1)]
                self.assertEqual([len(text) for text in first], [128 + size] * 2)
                self.assertIn(f"'shape': ({size // 4},)".encode(), first[0][:128])
                self.assertNotEqual(*first)
                vectors.write_vectors(folder, 2, size)
                self.assertEqual([(folder / f"rank{rank}.npy").read_bytes() for rank in (0, 1)], first)

    def test_the_picture_is_a_picture(self):
        with tempfile.NamedTemporaryFile("r", suffix=".svg") as file:
            curves = {"A & B": [(1 << 16, 0.01), (1 << 20, 0.05)], "QCCL int4": [(1 << 20, 0.5)]}
            picture.write_picture(file.name, "a < b", curves, {"limit": 0.08})
            root = xml.etree.ElementTree.parse(file.name).getroot()
        names = [element.tag.rpartition("}")[2] for element in root.iter()]
        self.assertEqual((names.count("polyline"), names.count("circle")), (2, 3))
        words = [element.text for element in root.iter() if element.tag.endswith("text")]
        self.assertLessEqual({"A & B", "QCCL int4", "a < b", "limit", "64 Ki", "1 Mi", "0.1"}, set(words))
        heights = [float(element.get("cy")) for element in root.iter() if element.tag.endswith("circle")]
        self.assertTrue(heights[0] > heights[1] > heights[2])


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.program = self.folder / "stand-in"
        self.program.write_text(STAND_IN)
        self.program.chmod(0o755)

    def compare(self, *words, expect=0):
        done = subprocess.run([SCRIPT, "--hosts", "2", "--sizes", "64K,256K", "--repetitions", "1", "--program", self.program,
                               "--output", self.folder / "out", "--patience", "40", *words], capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done

    def rows(self):
        with open(self.folder / "out.csv") as file:
            return list(csv.DictReader(file))

    def test_qccl_alone(self):
        said = self.compare("--leave-out", "ob1,ucx,mpich,gloo", "--codecs", "none,int8", "--algorithms", "auto,ring", "--repetitions", "2").stdout
        self.assertIn("limit of a lossless sum", said)
        rows = self.rows()
        self.assertEqual([(row["codec"], row["bytes"]) for row in rows],
                         [(codec, size) for size in ("65536", "262144") for codec in ("none", "int8") * 2])
        for row in rows:
            self.assertEqual((row["hosts"], row["ranks_per_host"], row["rate"], row["repetitions"]), ("2", "1", "1gbit", "2"))
            self.assertEqual((row["algorithm"], float(row["time_us"]), row["times_best_peer"]), ("ring", 1000, ""))
            self.assertAlmostEqual(float(row["algbw_GBps"]), float(row["bytes"]) / 1e6)
            self.assertAlmostEqual(float(row["limit_GBps"]) / float(row["line_GBps"]), 1 if row["codec"] == "none" else 32 / 8.5, places=3)
            # What the stand-in sends for a sum, and the headers of its segments.
            for sent in row["vectors_sent_per_host"].split(";"):
                self.assertAlmostEqual(float(sent) / (1 if row["codec"] == "none" else 0.25), 1.05, delta=0.1)
        self.assertIn("<svg", (self.folder / "out.svg").read_text())

    def test_what_is_no_rank_of_the_job_is_left_out(self):
        for env, because in (('ROW={"transport": "shm"}', "it ran 2 ranks over shm"), ('ROW={"ranks": 4}', "it ran 4 ranks over ucx"),
                             ('ROW={"ranks_agree": false}', "ranks do not agree"), ("FAILS=1", "rank 1, exit status 1: this rank cannot go on")):
            done = self.compare("--leave-out", "ob1,ucx,mpich,gloo", "--no-counts", "--env", env, "--patience", "5", expect=1)
            self.assertEqual(done.stdout.count(because), 3, done.stdout)

    def test_who_fails_once_is_tried_again(self):
        said = self.compare("--leave-out", "ob1,ucx,mpich,gloo", "--codecs", "none", "--no-counts", "--repetitions", "3",
                            "--env", f"FAILS_ONCE={self.folder}/failed").stdout
        self.assertRegex(said, r"QCCL none: failed 1 times: rank \d, exit status 1: not the first time")
        self.assertEqual([row["repetitions"] for row in self.rows()], ["2", "2"])

    def test_who_hangs_is_ended_and_the_others_go_on(self):
        done = self.compare("--env", "HANGS=1", "--patience", "10", "--no-counts", "--python", "/nowhere/python", "--leave-out", "mpich,ucx",
                            expect=0 if shutil.which("mpirun.openmpi") else 1)
        self.assertIn("QCCL int8: left out: not done after 10 s", done.stdout)
        self.assertIn("Gloo: left out: no torch.distributed in /nowhere/python", done.stdout)

    def test_against_the_peers_that_are_here(self):
        # Of MPICH's runs over several hosts some never end: nothing to hold up a commit for.
        said = self.compare("--codecs", "none", "--leave-out", "gloo,mpich").stdout
        rows = {(row["library"], row["bytes"]): row for row in self.rows()}
        self.assertEqual({library for library, _ in rows} - {"Open MPI ob1", "Open MPI ucx"}, {"QCCL"}, said)
        for launcher, library in (("mpirun.openmpi", "Open MPI ob1"), ("mpirun.openmpi", "Open MPI ucx")):
            if shutil.which(launcher) is None or f"{library} none: left out: mpicc" in said:
                continue
            row = rows[library, "262144"]
            self.assertGreater(float(row["time_us"]), 0)
            self.assertLessEqual(float(row["times_best_peer"]), 1)
            # Between two ranks each sends the vector once, and a little more.
            for sent in row["vectors_sent_per_host"].split(";"):
                self.assertAlmostEqual(float(sent), 1.05, delta=0.1)

    def test_misuse(self):
        for words, because in ((["--hosts", "1"], "nobody to sum with"), (["--sizes", "1.5M"], "'1.5M' is no size"),
                               (["--leave-out", "nccl"], "'nccl' is none of ob1"), (["--env", "X"], "X: is no KEY=VALUE")):
            self.assertIn(because, self.compare(*words, expect=2).stderr)


if __name__ == "__main__":
    run_tests()
