"""qccl-perf and qccl-info on GPUs that the CPU plays: results, columns and JSON of ranks as threads, as processes, under a
launcher's variables and beside the host; codecs; and what is refused. QTEST_FULL=1 starts every collective in both ways.

usage: perf_device_test.py QCCL_PERF QCCL_INFO
"""
import json
import os
import re
import signal
import subprocess
import sys
import unittest

import tool
from launchers import environment, free_port, start_by_hand

PERF, INFO = sys.argv[1:3]
SMALL = ["-n", "3", "-w", "1", "-b", "16K", "-e", "16K"]
TWO = "emulated:0,emulated:1"
FULL = "QTEST_FULL" in os.environ


def in_turn(number, ways):
    """A start takes longer than the calls, so a commit has one of the ways for each row."""
    return ways if FULL else ways[number % len(ways):][:1]


class Collectives(unittest.TestCase):
    def check(self, rows, devices, enqueues=True):
        self.assertGreater(len(rows), 0)
        for row in rows:
            dealt = devices.split(",")
            self.assertEqual(row["devices"], [dealt[rank % len(dealt)] for rank in range(row["ranks"])])
            self.assertGreater(row["time_us"], 0)
            self.assertGreater(row["wire_bytes"], 0)
            self.assertIn(row["ranks_agree"], (True,) if row["collective"] in ("all_reduce", "all_gather", "broadcast") else (None,))
            if row["codec"] == "none":
                self.assertEqual(row["nmse"], 0 if row["dtype"] == "double" else row["nmse"])
                self.assertLess(row["nmse"], 1e-13)
            if not enqueues:
                self.assertIsNone(row["enqueue_us"])
                continue
            self.assertGreater(row["enqueue_us"], 0)
            self.assertLess(row["enqueue_us"], row["time_us_mean"] * 2)

    def test_every_collective_over_threads_and_processes(self):
        collectives = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "scan", "exscan", "send")
        for number, collective in enumerate(collectives):
            for launch in in_turn(number, ("--threads", "--ranks")):
                self.check(tool.rows_of([PERF, collective, *SMALL, launch, "3", "--device", TWO, "--codec", "none,int8"]), TWO)

    def test_v_forms(self):
        for number, form in enumerate(("all_gather_v", "reduce_scatter_v", "gather_v", "scatter_v", "all_to_all_v")):
            for launch, skew in in_turn(number, (("--threads", "linear"), ("--ranks", "one"))):
                rows = tool.rows_of([PERF, form, *SMALL, launch, "3", "--device", TWO, "--skew", skew])
                self.assertEqual({(row["collective"], row["skew"], row["nmse"]) for row in rows}, {(form, skew, 0)})

    def test_ranks_share_a_gpu(self):
        for launch in ("--threads", "--ranks"):
            self.check(tool.rows_of([PERF, "all_reduce", *SMALL, launch, "4", "--device", "emulated:1", "-d", "float"]),
                       "emulated:1")

    def test_every_device_has_a_rank(self):
        three = "emulated:0,emulated:1,host"
        rows = tool.rows_of([PERF, "all_reduce", *SMALL, "--device", three])
        self.assertEqual({row["ranks"] for row in rows}, {3})
        self.check(rows, three)
        for launch in ("--threads", "--ranks"):
            done = tool.run([PERF, "all_reduce", *SMALL, launch, "2", "--device", three], expect=2)
            self.assertEqual(done.stderr.count("--device names 3 devices for 2 ranks"), 1)

    def test_some_ranks_are_on_the_host(self):
        for launch in ("--threads", "--ranks"):
            rows = tool.rows_of([PERF, "all_reduce", *SMALL, launch, "3", "--device", "host,emulated:0", "--codec", "int8"])
            self.check(rows, "host,emulated:0")

    def test_sums_in_place_are_refilled(self):
        rows = tool.rows_of([PERF, "all_reduce", "-b", "4K", "-e", "4K", "-d", "half", "-n", "40", "-w", "20", "-m", "3", "-t", "2",
                             "--device", "emulated:0", "-u", "1", "-c", "2"])
        self.assertEqual([row["ranks_agree"] for row in rows], [True, True])
        for row in rows:
            self.assertLess(row["nmse"], 1e-5)

    def test_results_are_those_of_the_host(self):
        def errors(device):
            rows = tool.rows_of([PERF, "all_reduce", *SMALL, "-t", "3", "--device", device, "--algo", "ring", "--codec", "int4,minmax",
                                 "--lossless", "0"])
            return [(row["codec"], row["in_place"], row["nmse"], row["max_abs_err"]) for row in rows]
        self.assertEqual(errors("emulated:0"), errors("host"))

    def test_under_variables(self):
        port = free_port()
        ranks = [subprocess.Popen([PERF, "all_reduce", *SMALL, "--device", TWO, "--json", "-"], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True,
                                  env=environment(RANK=rank, WORLD_SIZE=2, MASTER_ADDR="localhost", QCCL_PORT=port))
                 for rank in range(2)]
        said = [rank.communicate(timeout=120) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], said)
        self.check(json.loads(said[0][0])["rows"], TWO)
        ended = start_by_hand([[PERF, "all_reduce", *SMALL, "--device", TWO + ",host"]] * 2,
                              [environment(RANK=rank, WORLD_SIZE=2, MASTER_ADDR="localhost", QCCL_PORT=port) for rank in range(2)])
        self.assertEqual([status for status, _, _ in ended], [2, 2], ended)
        self.assertEqual("".join(words for _, _, words in ended).count("--device names 3 devices for 2 ranks"), 1, ended)

    def test_the_table_says_devices_and_enqueue_times(self):
        lines = tool.run([PERF, "all_reduce", *SMALL, "-t", "3", "--device", "emulated:2,host"]).stdout.splitlines()
        self.assertIn("# Buffers: the GPUs' memory; of ranks on the host from qcclMemAlloc, registered", lines)
        devices = [re.search(r"device +(\d+) \[(\S+)\] .", line).groups() for line in lines if line.startswith("#  Rank")]
        self.assertEqual(devices, [("2", "emulated:2"), ("0", "host"), ("2", "emulated:2")])
        names = next(line for line in lines if line.startswith("#       size"))
        self.assertEqual(names.split()[-1], "enqueue")
        row, = (line for line in lines if line and not line.startswith("#"))
        self.assertEqual(len(row), len(names))
        self.assertGreater(float(row.split()[-1]), 0)
        self.assertEqual(row.split()[8], "0")
        # Without GPUs there is no such column.
        self.assertNotIn("enqueue", tool.run([PERF, "all_reduce", *SMALL, "--device", "host"]).stdout)

    def test_what_is_not_there_is_named(self):
        for launch in ("--threads", "--ranks"):
            done = tool.run([PERF, "all_reduce", *SMALL, launch, "2", "--device", "emulated:99"], expect=None)
            self.assertIn("emulated:99: this machine has 8 GPUs", done.stderr)
        done = tool.run([PERF, "all_reduce", "--device", "gpu"], expect=2)
        self.assertIn("emulated:0", done.stderr)


class Ends(unittest.TestCase):
    def ended(self, launch, strike):
        program = subprocess.Popen([PERF, "all_reduce", launch, "3", "--device", TWO + ",host", "-b", "16K", "-e", "16K", "-N", "0"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in program.stdout:
            if not line.startswith("#"):  # measuring
                break
        strike(program)
        return (program.communicate(timeout=60)[1], program.returncode)

    def test_of_a_run_that_is_interrupted(self):
        for launch in ("--ranks", "--threads"):
            said, status = self.ended(launch, lambda program: program.terminate())
            self.assertEqual((status, said.count("interrupted by signal")), (143, 1), said)

    def test_of_a_rank_that_dies(self):
        said, status = self.ended("--ranks", lambda program: os.kill(tool.children(program.pid)[1], signal.SIGKILL))
        self.assertEqual(status, 1, said)
        self.assertIn("rank 1 was ended by signal 9", said)


class Codecs(unittest.TestCase):
    OPERATIONS = ["copy", "encode", "decode", "decode_add", "decode_add_encode"]

    def test_every_codec_is_measured_beside_a_copy(self):
        rows = tool.rows_of([PERF, "codec", "--device", "emulated:0", "-b", "4K"])
        codecs = list(dict.fromkeys(row["codec"] for row in rows))
        self.assertEqual(codecs, "none fp16 bf16 fp8e4m3 fp8e5m2 int12 int10 int8 int6 int5 int4 int3 int2 minmax mxfp8e4m3 "
                                 "mxfp6e2m3 mxfp4 nvfp4 onebit terngrad topk norm dgc dummy".split())
        for codec in codecs:
            operations = [row["operation"] for row in rows if row["codec"] == codec]
            self.assertIn(operations, (self.OPERATIONS, self.OPERATIONS[:-1]))
            self.assertEqual(len(operations) == 5, codec not in ("nvfp4", "onebit", "terngrad", "topk", "norm", "dgc", "dummy"))
        for row in rows:
            self.assertEqual((row["device"], row["dtype"], row["bytes"]), ("emulated:0", "float", 4096))
            self.assertGreater(row["GBps"], 0)
            if row["operation"] == "copy":
                self.assertEqual(row["vs_copy"], 1)
                self.assertAlmostEqual(row["GBps"] * row["time_us"] * 1e3 / 8192, 1, places=6)
            if (row["codec"], row["operation"]) == ("fp16", "encode"):  # half the values' bytes are written
                self.assertAlmostEqual(row["GBps"] * row["time_us"] * 1e3 / 6144, 1, places=6)
            if (row["codec"], row["operation"]) == ("none", "decode_add"):
                self.assertAlmostEqual(row["GBps"] * row["time_us"] * 1e3 / 12288, 1, places=6)

    def test_other_types(self):
        rows = tool.rows_of([PERF, "codec", "--device", "emulated:1", "-b", "4K", "-d", "bfloat16", "--codec", "int8"])
        self.assertEqual({row["dtype"] for row in rows}, {"bfloat16"})

    def test_what_makes_no_sense_is_refused(self):
        done = tool.run([PERF, "codec", "--device", "emulated:0", "--tier", "scalar"], expect=2)
        self.assertIn("--tier scalar is of the host's processor", done.stderr)
        done = tool.run([PERF, "codec", "--device", "emulated"], expect=2)
        self.assertIn("emulated:0", done.stderr)
        done = tool.run([PERF, "codec", "--device", "emulated:0,emulated:1"], expect=2)
        for size, because in (("0", "--bytes 0 is less than one float"), ("3", "--bytes 3 is less than one float"),
                              ("16T", "buffers for values of 16.0 TB need ")):
            done = tool.run([PERF, "codec", "--device", "emulated:0", "-b", size], expect=2)
            self.assertIn(because, done.stderr)
        done = tool.run([PERF, "codec", "--device", "emulated:8"], expect=None)
        self.assertIn("8 GPUs", done.stderr)


class Info(unittest.TestCase):
    def test_lists_gpus_or_says_why_there_are_none(self):
        lines = tool.run([INFO, "devices"]).stdout.splitlines()
        self.assertTrue(lines[1].startswith("  host: "))
        emulated = [line for line in lines if line.startswith("  emulated:")]
        self.assertEqual(len(emulated), 8)
        for number, line in enumerate(emulated):
            lanes = 32 if number % 2 == 0 else 64
            self.assertRegex(line, rf"^  emulated:{number}: .*emulated.*, \d+ multiprocessors, warps of {lanes} lanes; "
                                   r"calls in streams and graphs$")
        for vendor in ("cuda", "hip"):
            self.assertTrue(any(re.match(rf"  {vendor}(: none; .|:0: .*lanes)", line) for line in lines), lines)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
