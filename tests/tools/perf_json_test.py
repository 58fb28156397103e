"""qccl-perf from outside: its JSON, its table, and what it does with nonsense.

usage: perf_json_test.py QCCL_PERF
"""
import datetime
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import tool

PERF = sys.argv.pop(1)
KEYS = ("collective bytes count dtype op in_place algorithm codec used_codec ranks transport devices time_us time_us_mean "
        "time_us_p99 time_us_sustained enqueue_us algbw_GBps busbw_GBps wire_bytes time_shares ratio nmse nmse_predicted max_abs_err ranks_agree speedup_vs_lossless "
        "baseline group skew").split()
QUICK = ["-n", "3", "-w", "1"]
BUS = {"all_reduce": lambda p: 2 * (p - 1) / p, "reduce_scatter": lambda p: (p - 1) / p,
       "all_gather": lambda p: (p - 1) / p, "broadcast": lambda p: 1,
       "reduce": lambda p: 1, "gather": lambda p: (p - 1) / p, "scatter": lambda p: (p - 1) / p,
       "all_to_all": lambda p: (p - 1) / p,
       "scan": lambda p: 1, "exscan": lambda p: 1, "send": lambda p: 1}


def perf(collective, *options, **more):
    return tool.rows_of([PERF, collective, *QUICK, *options], **more)


class Rows(unittest.TestCase):
    def check_row(self, row, collective, ranks):
        self.assertEqual(list(row), KEYS)
        self.assertEqual(row["collective"], collective)
        self.assertEqual(row["ranks"], ranks)
        self.assertGreater(row["time_us"], 0)
        self.assertGreaterEqual(row["time_us_p99"], row["time_us"])
        bandwidth = row["bytes"] / 1e9 / (row["time_us"] * 1e-6)
        self.assertAlmostEqual(row["algbw_GBps"] / bandwidth, 1, places=6)
        self.assertAlmostEqual(row["busbw_GBps"], row["algbw_GBps"] * BUS[collective](ranks), places=9)
        self.assertIsNone(row["baseline"])
        self.assertEqual((row["devices"], row["enqueue_us"]), (["host"] * row["ranks"], None))
        shares = row["time_shares"]
        self.assertEqual(list(shares), ["encode", "copy", "network", "wait"])
        self.assertAlmostEqual(sum(shares.values()), 1)
        self.assertEqual(shares["network"], 0)
        self.assertGreater(shares["copy"], 0)

    def test_every_collective_over_processes_and_threads(self):
        for collective in BUS:
            for launch, transport in (("--ranks", "shm"), ("--threads", "inproc")):
                rows = perf(collective, launch, "3", "-b", "96K", "-e", "96K")
                self.assertEqual([row["in_place"] for row in rows], [False, True])
                for row in rows:
                    self.check_row(row, collective, 3)
                    self.assertEqual((row["bytes"], row["dtype"], row["codec"]), (98304, "float", "none"))
                    blocks = "gather" in collective or "scatter" in collective or collective == "all_to_all"
                    self.assertEqual(row["count"], 24576 // 3 if blocks else 24576)
                    self.assertEqual(row["op"], "sum" if "reduce" in collective or "scan" in collective else None)
                    self.assertEqual(row["transport"], transport)
                    self.assertLess(row["nmse"], 1e-13)
                    self.assertEqual(row["ranks_agree"], True if collective in ("all_reduce", "all_gather", "broadcast") else None)
                    self.assertEqual((row["ratio"], row["speedup_vs_lossless"]), (1, 1))

    def test_messages_are_measured_as_nccl_tests_does(self):
        for launch in ("--ranks", "--threads"):
            for ranks in (1, 2, 4):
                (row,) = perf("sendrecv", launch, ranks, "-b", "96K", "-e", "96K", "--codec", "int8:min=0", "--lossless", "0")
                self.assertEqual((row["collective"], row["bytes"], row["count"], row["in_place"]), ("sendrecv", 98304, 24576, False))
                self.assertAlmostEqual(row["algbw_GBps"] * row["time_us"], 98.304, places=6)
                self.assertEqual(row["busbw_GBps"], row["algbw_GBps"])
                rows = perf("hypercube", launch, ranks, "-b", "96K", "-e", "96K", "--codec", "none,int8:min=0")
                self.assertEqual([row["in_place"] for row in rows], [False, True] * 2)
                for row in rows:
                    self.assertEqual((row["collective"], row["bytes"]), ("hypercube", 98304))
                    received = 98304 * (ranks - 1) / ranks / 1e3
                    self.assertAlmostEqual(row["algbw_GBps"] * row["time_us"], received, places=6)
                    self.assertEqual(row["busbw_GBps"], row["algbw_GBps"])
                    if ranks > 1:
                        self.assertEqual(row["nmse"] > 0, row["codec"] != "none")
        for options, because in ((["--ranks", "3"], "hypercube needs a power of two, and these are 3 ranks"),
                                 (["--group", "2"], "--group 2: the rounds of hypercube follow one another")):
            self.assertIn(because, tool.run([PERF, "hypercube", *options], expect=2).stderr)

    def test_a_group_is_one_row(self):
        for collective in (*BUS, "send_recv"):
            alone = perf(collective, "-t", "3", "-b", "6K", "-e", "6K")
            rows = perf(collective, "-t", "3", "-b", "6K", "-e", "6K", "--group", "5", "--codec", "none,int8:min=0", "--lossless", "0")
            self.assertEqual(len(rows), 2 * len(alone))
            for row in rows:
                self.assertEqual((row["bytes"], row["count"], row["group"]), (5 * alone[0]["bytes"], 5 * alone[0]["count"], 5))
                self.assertAlmostEqual(row["algbw_GBps"] * row["time_us"] * 1e3, row["bytes"], places=3)
                if row["codec"] == "none":
                    self.assertEqual(row["nmse"], 0)
        self.assertIn("'0' is no number from 1 to 65536", tool.run([PERF, "all_reduce", "--group", "0"], expect=2).stderr)

    def test_v_forms_have_skewed_parts(self):
        ranks, size = 3, 96 << 10
        for form in ("all_gather_v", "reduce_scatter_v", "gather_v", "scatter_v", "all_to_all_v"):
            exchanges = form == "all_to_all_v"
            for launch, skew in (("--ranks", "equal"), ("--threads", "linear"), ("--ranks", "one"), ("--threads", "random")):
                rows = perf(form, launch, ranks, "-b", size, "-e", size, "--skew", skew, "--codec", "none,int8:min=0", "--seed", 7, "-r", "all")
                roots = ranks if form in ("gather_v", "scatter_v") else 1
                self.assertEqual(len(rows), 2 * roots * (1 if exchanges and skew != "equal" else 2))
                for row in rows:
                    self.assertEqual((row["collective"], row["skew"], row["dtype"]), (form, skew, "float"))
                    if exchanges and skew == "random":
                        self.assertLess(row["bytes"], size)
                    else:
                        self.assertEqual(row["bytes"], size)
                    self.assertEqual(row["algorithm"], row["algorithm"] if roots == 1 and not exchanges else "direct")
                    if row["codec"] == "none":
                        self.assertEqual(row["nmse"], 0)
                    elif skew != "one":
                        self.assertGreater(row["nmse"], 0)
                    if skew == "one" and not exchanges:  # the rank that has everything sends or receives it all
                        self.assertAlmostEqual(row["busbw_GBps"], row["algbw_GBps"], places=9)
                    if skew == "equal":
                        self.assertAlmostEqual(row["busbw_GBps"], row["algbw_GBps"] * (ranks - 1) / ranks, places=9)
        (row,) = perf("alltoallv", "-t", 3, "-b", "6K", "-e", "6K", "--group", "4", "--algo", "pairwise")
        self.assertEqual((row["group"], row["algorithm"], row["nmse"]), (4, "pairwise", 0))
        for options, because in ((["--algo", "bruck"], "bruck has no all_to_all_v"),
                                 (["--codec", "int8:guard=nmse:1e-3"], "all_to_all_v has no guards")):
            self.assertIn(because, tool.run([PERF, "all_to_all_v", *options], expect=2).stderr)

    def test_owners_may_keep_exact_values(self):
        exact = "int8:min=0,owner=exact"
        for call, share in (("all_gather", 2 / 3), ("all_gather_v", None), ("broadcast", 1)):
            rows = perf(call, "-t", 3, "-b", "96K", "-e", "96K", "--codec", "int8:min=0," + exact, "--lossless", "0")
            self.assertEqual([row["codec"] for row in rows], ["int8:min=0"] * 2 + [exact] * 2)
            for usual, own in zip(rows, rows[2:]):
                self.assertTrue(usual["ranks_agree"] and own["ranks_agree"])
                self.assertGreater(own["nmse"], 0)
                if share:
                    self.assertAlmostEqual(own["nmse"] / usual["nmse"], share, delta=0.02)
                    self.assertAlmostEqual(own["nmse_predicted"] / usual["nmse_predicted"], share, places=3)
        self.assertIn("in all_reduce it means nothing", tool.run([PERF, "all_reduce", "--codec", exact], expect=2).stderr)

    def test_codecs_may_be_alone(self):
        for beside, speedup in (("1", True), ("0", False)):
            rows = perf("all_reduce", "-b", "96K", "-e", "96K", "--codec", "int8", "--lossless", beside)
            self.assertEqual([(row["codec"], row["speedup_vs_lossless"] is not None, row["ratio"] > 3) for row in rows],
                             [("int8", speedup, True)] * 2)

    def test_wire_bytes_are_those_of_the_grid(self):
        codecs = ["none", "bf16", "fp16", "fp8e4m3", "fp8e5m2", "int12", "int10", "int8", "int6", "int5", "int4", "int3", "int2",
                  "minmax", "mxfp8e4m3", "mxfp6e2m3", "mxfp4", "nvfp4", "onebit", "terngrad", "topk", "norm", "dgc", "dummy",
                  "lossless", "tbq", "bound"]
        for count, ranks in ((20000, 2), (20001, 4)):
            rows = perf("all_reduce", "--ranks", ranks, "-b", 4 * count, "-e", 4 * count, "--algo", "direct,ring",
                        "--codec", ",".join(codecs))
            self.assertEqual(len(rows), 2 * 2 * len(codecs))
            lossless = {row["algorithm"]: row["wire_bytes"] for row in rows if row["codec"] == "none"}
            for row in rows:
                counts = tool.chunk_counts(count, ranks, row["codec"])
                sent = tool.most_sent(row["algorithm"], counts, row["codec"], 4)
                self.assertEqual(row["wire_bytes"], sent, row)
                self.assertAlmostEqual(row["ratio"], lossless[row["algorithm"]] / sent, places=9)

    def test_errors_are_as_predicted_on_gaussian_data(self):
        rows = perf("all_reduce", "--ranks", "4", "-b", "1M", "-e", "1M", "--algo", "direct,ring",
                    "--codec", "int8,int4,int2,minmax,bf16")
        self.assertEqual(len(rows), 20)
        for row in rows:
            self.assertTrue(row["ranks_agree"])
            self.assertGreater(row["max_abs_err"], 0)
            self.assertLess(abs(row["nmse"] / row["nmse_predicted"] - 1), 0.1, row)
            self.assertGreater(row["speedup_vs_lossless"], 0)

    def test_the_algorithm_shown_is_of_the_whole_call(self):
        # Vectors of up to this are sent whole, larger ones never: no speed has a say.
        limit = 32768
        for collective in BUS:
            rows = perf(collective, "--ranks", "4", "-b", limit // 2, "-e", 2 * limit, "-f", "2", "--codec", "int4",
                        env={"QCCL_ONESHOT_MAX": str(limit)})
            self.assertEqual({row["bytes"] for row in rows}, {limit // 2, limit, 2 * limit})
            for row in rows:
                self.assertEqual(row["algorithm"] == "oneshot", row["bytes"] <= limit, row)

    def test_every_type_and_operation(self):
        rows = perf("all_reduce", "-d", "all", "-o", "all", "-b", "4K", "-e", "4K")
        integers, floats, complexes, pairs = 8, 6, 2, 5
        self.assertEqual(len(rows), 2 * (11 * integers + 5 * floats + 3 * complexes + 8 + 2 * pairs))
        for row in rows:
            self.assertTrue(row["ranks_agree"])
            real = row["dtype"] in ("half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2", "complex64", "complex128")
            self.assertEqual(row["nmse"] is not None, real)

    def test_a_budget_chooses_and_is_kept(self):
        for error, ranks in ((1e-1, 2), (1e-3, 3), (1e-5, 2)):
            rows = perf("all_reduce", "--ranks", ranks, "-b", "256K", "-e", "256K", "--codec", f"none,auto:nmse={error},min=0,auto:bits=4.5")
            self.assertEqual([row["codec"] for row in rows[::2]], ["none", f"auto:nmse={error:g},min=0", "auto:bits=4.5"])
            none, kept, narrow = (row["used_codec"] for row in rows[::2])
            self.assertEqual((none, narrow), ("none", "int4"))
            self.assertNotIn("auto", kept)
            self.assertTrue(all(row["ratio"] > 1 and 0 < row["nmse"] <= error for row in rows[2:4]), rows)

    def test_a_budget_that_no_codec_keeps_is_told_once(self):
        done = tool.run([PERF, "all_reduce", *QUICK, "-b", "1K", "-e", "64K", "-f", "4", "--codec", "auto:nmse=1e-9,min=0"])
        told = [line for line in done.stderr.splitlines() if "such calls go lossless" in line]
        self.assertEqual(len(told), 1, done.stderr)
        self.assertIn("codec auto:nmse=1e-09,min=0: no codec keeps that error on 2 ranks: the least is ", told[0])
        self.assertNotIn("lossless", tool.run([PERF, "all_reduce", *QUICK, "-b", "1K", "-e", "1K", "--codec", "auto:nmse=0.1"]).stderr)

    def test_what_a_codec_cannot_is_left_out_with_a_word(self):
        done = tool.run([PERF, "all_reduce", *QUICK, "-d", "all", "--codec", "int4", "-b", "1K", "-e", "1K"])
        self.assertIn("int4 is left out", done.stdout)
        tool.run([PERF, "all_reduce", *QUICK, "-o", "max", "--codec", "int4", "-b", "1K", "-e", "1K"], expect=2)

    def test_the_same_seed_gives_the_same_errors(self):
        def errors(seed):
            return [row["nmse"] for row in perf("all_reduce", "--codec", "int4", "--seed", seed, "-b", "64K", "-e", "64K")]
        self.assertEqual(errors(5), errors(5))
        self.assertNotEqual(errors(5), errors(6))

    def test_standard_output_is_json_alone(self):
        done = tool.run([PERF, "all_reduce", *QUICK, "-b", "1K", "-e", "1K", "--json", "-"])
        self.assertEqual(len(json.loads(done.stdout)["rows"]), 2)
        self.assertIn("Avg bus bandwidth", done.stderr)


class Table(unittest.TestCase):
    def lines(self, *options):
        return tool.run([PERF, "all_reduce", *QUICK, "-b", "1K", "-e", "4K", "-f", "2", *options]).stdout.splitlines()

    def test_its_shape_is_nccl_tests(self):
        lines = self.lines("--ranks", "2")
        self.assertIn("# Collective test starting: all_reduce_perf", lines)
        self.assertIn("# nThread 1 nGpus 1 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 1 iters: 3 "
                      "agg iters: 1 validation: 1 graph: 0 unalign: 0", lines)
        devices = [line for line in lines if re.match(r"#  Rank +\d+ Group +0 Pid +\d+ on +\S+ device +0 \[", line)]
        self.assertEqual(len(devices), 2)
        names = next(line for line in lines if line.startswith("#       size"))
        self.assertEqual(names.split()[1:14], "size count type redop root time algbw busbw #wrong time algbw busbw "
                                              "#wrong".split())
        self.assertTrue(names.startswith("#       size         count      type   redop    root     time   algbw   "
                                         "busbw  #wrong     time   algbw   busbw  #wrong"))
        units = lines[lines.index(names) + 1]
        self.assertTrue(units.startswith("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}"
                                         .format("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
                                                 "(GB/s)", "(GB/s)")))
        rows = [line for line in lines if not line.startswith("#") and line.strip()]
        self.assertEqual([row.split()[0] for row in rows], ["1024", "2048", "4096"])
        for row in rows:
            # Columns end where nccl-tests' end.
            fields = row.split()
            for end, field in zip((12, 26, 36, 44, 52, 61, 69, 77, 85, 94, 102, 110, 118), fields):
                self.assertEqual(row[:end].split()[-1], field)
            self.assertEqual(fields[2:5], ["float", "sum", "-1"])
            self.assertEqual((fields[8], fields[12]), ("0", "0"))
            self.assertEqual(fields[13], "none")
            self.assertEqual(len(fields), 23)
        self.assertIn("# Out of bounds values : 0 OK", lines)
        average = next(line for line in lines if line.startswith("# Avg bus bandwidth    : "))
        bus = [float(row.split()[column]) for row in rows for column in (7, 11)]
        self.assertAlmostEqual(float(average.split(":")[1]), sum(bus) / len(bus), delta=0.006)
        self.assertIn("# Collective test concluded: all_reduce_perf", lines)

    def test_our_columns_stand_under_their_names(self):
        codec = "int4:block=64,round=stochastic,seed=123456789"
        lines = self.lines("--codec", "none," + codec)
        names = next(line for line in lines if line.startswith("#       size"))
        for row in (line for line in lines if line and not line.startswith("#")):
            for name in ("wire", "ratio", "nmse", "predicted", "agree", "median", "in-place", "speedup"):
                self.assertRegex(row[:names.index(name) + len(name)], r"\S$", row)
                self.assertRegex(row[names.index(name) + len(name):], r"^( |$)", row)

    def test_ratios_are_of_the_medians_shown(self):
        with tempfile.NamedTemporaryFile("r") as file:
            lines = self.lines("--codec", "none,int8", "--json", file.name)
            written = json.load(file)["rows"]
        rows = [line.split() for line in lines if line and not line.startswith("#")]
        medians = [(float(row[20]), float(row[21])) for row in rows]
        for shown, (there, in_place) in zip(medians, zip(written[::2], written[1::2])):
            self.assertAlmostEqual(shown[0], there["time_us"], delta=0.006)
            self.assertAlmostEqual(shown[1], in_place["time_us"], delta=0.006)
        for lossless, coded in zip(range(0, len(rows), 2), range(1, len(rows), 2)):
            self.assertAlmostEqual(float(rows[coded][22]), medians[lossless][0] / medians[coded][0], delta=0.05)
        self.assertIn("# time, algbw and busbw are of means; speedup is of medians", lines)

    def test_the_codec_of_the_environment_is_not_measured(self):
        said = tool.run([PERF, "all_reduce", *QUICK, "-b", "1K", "-e", "1K"], env={"QCCL_CODEC": "int8"}).stdout
        self.assertEqual(said.count("# QCCL_CODEC is not used here: --codec says what is measured"), 1)
        self.assertNotIn("int8", said)
        self.assertNotIn("QCCL_CODEC", "\n".join(self.lines()))

    def test_options_change_it_as_in_nccl_tests(self):
        rows = [line.split() for line in self.lines("-c", "0", "-C", "1") if line and not line.startswith("#")]
        for row in rows:
            self.assertEqual((row[8], row[12]), ("N/A", "N/A"))
        self.assertTrue(any("cputime" in line for line in self.lines("-C", "1")))
        rows = [line.split() for line in self.lines("-I", "1") if line and not line.startswith("#")]
        for row in rows:
            shortest, longest, late = (float(text) for text in row[9:12])
            self.assertTrue(shortest <= late <= longest)
            self.assertEqual(row[16], "0")
        rows = [line for line in self.lines("-S", "1") if line and not line.startswith("#")]
        for row in rows:
            self.assertRegex(row, r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  none")
        self.assertTrue(any("Memory usage" in line for line in self.lines("-M", "1")))
        self.assertEqual(len([line for line in self.lines("-N", "3") if line and not line.startswith("#")]), 9)
        self.assertIn("# Blocking Enabled: wait for completion and barrier after each collective ", self.lines("-z", "1"))

    def test_other_options_run(self):
        for options in (["-a", "0"], ["-a", "1"], ["-a", "2"], ["-m", "4"], ["-u", "1"], ["-T", "60"], ["-y", "1"],
                        ["-p", "1"], ["--buffers", "malloc"], ["-c", "3"], ["-g", "1", "-t", "3"]):
            rows = [line.split() for line in self.lines(*options) if line and not line.startswith("#")]
            self.assertEqual([row[8] for row in rows], ["0"] * 3)

    def test_roots(self):
        done = tool.run([PERF, "broadcast", *QUICK, "--ranks", "3", "-r", "all", "-b", "1K", "-e", "1K"])
        rows = [line.split() for line in done.stdout.splitlines() if line and not line.startswith("#")]
        self.assertEqual([row[3:5] for row in rows], [["none", "0"], ["none", "1"], ["none", "2"]])

    def test_called_by_name(self):
        link = os.path.join(os.path.dirname(PERF), "all_gather_perf")
        done = tool.run([link, *QUICK, "-b", "1K", "-e", "1K"])
        self.assertIn("# Collective test starting: all_gather_perf", done.stdout)

    def test_nccl_tests_json(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            for expected in (path, path + ".0", path + ".1"):
                tool.run([PERF, "all_reduce", *QUICK, "-b", "1K", "-e", "2K", "-f", "2", "-J", path, "-I", "1"])
                with open(expected) as file:
                    written = json.load(file)
            self.assertEqual(list(written), "version start_time args env nccl_version config results out_of_bounds "
                                            "average_bus_bandwidth errors end_time".split())
            self.assertEqual([row["size"] for row in written["results"]], [1024, 2048])
            for row in written["results"]:
                self.assertEqual((row["type"], row["redop"], row["root"]), ("float", "sum", "-1"))
                for side in ("out_of_place", "in_place"):
                    self.assertEqual(list(row[side]), ["time", "alg_bw", "bus_bw", "nwrong"])
                    self.assertEqual(len(row[side + "_per_iter"]["times_us"]), 3)
            self.assertEqual(written["out_of_bounds"], {"count": 0, "okay": "true"})


class Documents(unittest.TestCase):
    def test_they_say_what_was_run_where_and_how(self):
        for command in (["all_reduce", *QUICK, "-b", "1K", "-e", "1K"], ["all_reduce", *QUICK, "-b", "1K", "-e", "1K", "-t", "2"],
                        ["codec", "--codec", "int8", "-b", "4K"]):
            words = [PERF, *command, "--json", "-"]
            before = datetime.datetime.now().astimezone().replace(microsecond=0)
            written = json.loads(tool.run(words, env={"QCCL_LANES": "3", "QCCL_ALGO": ""}).stdout)
            self.assertEqual(list(written), ["version", "command_line", "host", "date", "settings", "rows"])
            self.assertEqual("qccl-perf " + written["version"], tool.run([PERF, "--version"]).stdout.strip())
            self.assertEqual(written["command_line"], words)
            self.assertEqual(written["host"], socket.gethostname())
            date = datetime.datetime.strptime(written["date"], "%Y-%m-%dT%H:%M:%S%z")
            self.assertTrue(before <= date <= datetime.datetime.now().astimezone())
            self.assertEqual(written["settings"]["QCCL_LANES"], {"value": "3", "by": "environment"})
            self.assertEqual(written["settings"]["QCCL_ALGO"], {"value": "auto", "by": "built in"})
            self.assertGreater(len(written["rows"]), 0)


class Nonsense(unittest.TestCase):
    def test_is_refused_with_what_is_possible(self):
        for command, because in ((["all_reduce", "--codec", "int9"], "int8"), (["all_reduce", "--algo", "star"], "ring"),
                                 (["all_reduces"], "reduce_scatter"), ([], "COLLECTIVE"),
                                 (["all_reduce", "--ranks", "0"], "--ranks"), (["all_reduce", "-b", "many"], "no size"),
                                 (["codec", "--codec", "x"], "int8"), (["codec", "--tier", "x"], "scalar"),
                                 (["codec", "-d", "int8"], "int8"), (["demo", "--codec", "x"], "int8"),
                                 (["demo", "--ranks", "0"], "--ranks")):
            self.assertIn(because, tool.run([PERF, *command], expect=2).stderr)

    def test_is_refused_once_in_the_programs_name(self):
        for command, because in ((["all_reduce", "--codecs", "int8"], "qccl-perf: unknown option --codecs; did you mean --codec?"),
                                 (["all_reduce", "-o", "max", "--codec", "int8"], "qccl-perf: codec int8: possible with sum"),
                                 (["all_reduce", "-d", "int8", "--codec", "int8,int4"], "qccl-perf: codec int8: int8 values"),
                                 (["codec", "--json"], "qccl-perf codec: --json needs a value"),
                                 (["demo", "--rank", "4"], "qccl-perf demo: unknown option --rank; did you mean --ranks?"),
                                 (["demo", "--ranks", "x"], "qccl-perf demo: --ranks: 'x' is no number from 1 to 256")):
            done = tool.run([PERF, *command], expect=2)
            self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)
            self.assertTrue(done.stderr.startswith(because), done.stderr)

    def test_a_file_that_cannot_be_written(self):
        done = tool.run([PERF, "all_reduce", *QUICK, "-b", "1K", "-e", "1K", "--json", "/nowhere/x.json"], expect=1)
        self.assertIn("/nowhere/x.json", done.stderr)


class Death(unittest.TestCase):
    def test_when_a_rank_is_killed_all_end_and_the_program_fails(self):
        for victim in (0, 2):
            program = subprocess.Popen([PERF, "all_reduce", "--ranks", "4", "-b", "1M", "-e", "1M", "-N", "0"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(1)
            ranks = tool.children(program.pid)
            self.assertEqual(len(ranks), 4)
            os.kill(ranks[victim], signal.SIGKILL)
            _, said = program.communicate(timeout=60)
            self.assertNotEqual(program.returncode, 0)
            self.assertIn(f"rank {victim} was ended by signal 9", said)
            for rank in ranks:
                self.assertFalse(os.path.exists(f"/proc/{rank}"))

    def test_an_injected_death_too(self):
        done = tool.run([PERF, "all_reduce", "--ranks", "3", "-b", "4K", "-e", "4K"], expect=None, timeout=60,
                        env={"QCCL_INJECT": "rank=1,call=5,kill"})
        self.assertIn("rank 1 was ended by signal 9", done.stderr)


class Others(unittest.TestCase):
    def test_codec_speeds(self):
        rows = tool.rows_of([PERF, "codec", "--codec", "int8,minmax"])
        self.assertEqual(len(rows), 2 * 2 * 4)
        for row in rows:
            self.assertEqual(list(row), "codec dtype tier operation where GBps vs_memcpy".split())
            self.assertGreater(row["GBps"], 0.01)
            self.assertIn(row["where"], ("l2", "stream"))
            if row["operation"] == "memcpy":
                self.assertEqual(row["vs_memcpy"], 1)
        self.assertEqual({row["operation"] for row in rows}, {"encode", "decode", "decode_add", "memcpy"})

    def test_the_demonstration(self):
        done = tool.run([PERF, "demo", "--iters", "3"])
        self.assertIn("independent between ranks", done.stdout)
        table = [line.split() for line in done.stdout.splitlines() if re.match(r"(none|bf16|int8|int4|minmax)\s", line)]
        self.assertEqual([row[0] for row in table], ["none", "bf16", "int8", "int4", "minmax"])
        for row in table:
            self.assertEqual(row[9], "yes")
        losses = re.search(r"from (\d+\.\d+) to (\d+\.\d+)", done.stdout)
        self.assertLess(float(losses[2]), 0.7 * float(losses[1]))
        errors = [float(row[6]) for row in table]
        self.assertTrue(errors[0] < errors[2] < errors[3])
        networks = [line.split() for line in done.stdout.splitlines() if re.match(r" *1\d* Gbit/s ", line)]
        self.assertEqual([row[0] for row in networks], ["1", "10", "100"])
        self.assertGreater(float(networks[0][-1]), 1.25)
        self.assertLess(float(networks[0][3]), 1e-3)
        self.assertRegex(done.stdout, r"\nFor an NMSE of at most 0.001: export QCCL_CODEC=" + re.escape(networks[0][2]) + r" at 1 Gbit/s[ ;.]")

    def test_help_and_version(self):
        self.assertIn("COLLECTIVE", tool.run([PERF, "--help"]).stdout)
        self.assertIn("--codec", tool.run([PERF, "all_reduce", "--help"]).stdout)
        for command in ([], ["all_reduce"], ["codec"], ["demo"]):
            self.assertRegex(tool.run([PERF, *command, "--version"]).stdout, r"^qccl-perf \d+\.\d+\.\d+$")

    def test_rates_are_rows_of_the_planners_table(self):
        row = r'(?m)^    \{"(\S+)", "scalar", \{\d+\.\d+F, \d+\.\d+F, \d+\.\d+F\}\},$'
        printed = tool.run([PERF, "codec", "--rates", "--tier", "scalar", "-b", "4K"]).stdout
        table = pathlib.Path(__file__).resolve().parents[2] / "lib/plan/measured_rates.hpp"
        self.assertEqual(re.findall(row, printed), re.findall(row, table.read_text()))
        self.assertEqual(len(printed.splitlines()), len(re.findall(row, printed)))
        for words in (["--device", "cuda:0"], ["-d", "half"], ["--json", "-"]):
            self.assertIn("--rates prints rows of fp32 on the host", tool.run([PERF, "codec", "--rates", *words], expect=2).stderr)


if __name__ == "__main__":
    unittest.main()
