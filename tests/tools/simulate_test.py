"""qccl-perf simulate: the table of a measurement and its JSON, traces, GOAL text, and what is refused.

usage: simulate_test.py QCCL_PERF
"""
import collections
import json
import pathlib
import re
import sys
import tempfile
import unittest

import tool

PERF = sys.argv[1]
QUIET = {"QCCL_LINK_RATE": "", "QCCL_LINK_LATENCY": ""}


def simulate(*words, expect=0, env=None):
    return tool.run([PERF, "simulate", *words], expect=expect, env={**QUIET, **(env or {})})


def rows_of(*words, env=None):
    return json.loads(simulate(*words, "--json", "-", env=env).stdout)["rows"]


class Table(unittest.TestCase):
    def test_a_rack_has_one_line(self):
        # Of eight hosts' values half has to cross by direct, in each direction.
        for words, env, rate in ((("--topology", "2 x rack(4 x node(2 core) net:tcp:10gbit) net:tcp:1gbit"), {}, 0.1175),
                                 (("--topology", "2 x rack(4 x node(2 core) net:tcp:10gbit) net:tcp:1gbit"), {"QCCL_RACK_RATE": "2gbit"}, 0.25),
                                 (("--topology", "2 x rack(2 x rack(2 x node(2 core) net:tcp:10gbit) net:tcp:1gbit) net:tcp:1gbit"),
                                  {"QCCL_RACK_RATE": "2gbit"}, 0.25),
                                 (("--hosts", "1,1,1,1/1,1,1,1", "--rate", "10gbit"), {"QCCL_RACK_RATE": "1gbit"}, 0.125)):
            row, = rows_of("all_reduce", *words, "-b", "16M", "-e", "16M", "--algo", "direct", env=env)
            self.assertAlmostEqual(row["time_us"] / (4 * 16 * 1.048576 / rate * 1e3), 1, delta=0.1)

    def test_the_codec_that_travels_is_told(self):
        words = ["all_reduce", "--hosts", "1,1", "--rate", "1gbit"]
        large = simulate(*words, "-b", "4M", "-e", "4M", env={"QCCL_CODEC": "int8"}).stdout
        self.assertRegex(large, r"(?m)^ +4194304 .* int8 ")
        self.assertNotIn("does not pay", large)
        small = simulate(*words, "-b", "64", "-e", "64", "--codec", "int8").stdout
        self.assertIn("# int8 does not pay in some sizes", small)

    def test_a_sweep_that_stays_at_nothing_has_one_row(self):
        self.assertEqual(len(rows_of("all_reduce", "--ranks", "2", "-b", "0", "-e", "0", "-f", "2")), 1)

    def test_has_the_columns_of_a_measurement(self):
        simulated = simulate("all_reduce", "--ranks", "2", "-b", "4K", "-e", "16K", "-f", "2", "--codec", "none,int8").stdout
        measured = tool.run([PERF, "all_reduce", "--ranks", "2", "-b", "4K", "-e", "4K", "-n", "2", "-c", "0"]).stdout
        titles = lambda text: [line.split() for line in text.splitlines() if line.startswith("#       size")]
        self.assertEqual(titles(simulated), titles(measured))
        rows = [line.split() for line in simulated.splitlines() if line and not line.startswith("#")]
        self.assertEqual([row[0] for row in rows], ["4096", "4096", "8192", "8192", "16384", "16384"])
        width = {len(line.split()) for line in measured.splitlines() if line and not line.startswith("#")}
        self.assertEqual({len(row) for row in rows}, width)

    def test_repeats(self):
        words = ("all_reduce", "--hosts", "3,2,2", "-b", "1M", "-e", "4M", "-f", "2", "--codec", "none,int4", "--algo", "auto,ring,hierarchy")
        self.assertEqual(simulate(*words).stdout, simulate(*words).stdout)

    def test_follows_the_rate_and_the_latency(self):
        words = ("broadcast", "--hosts", "1,1", "-b", "64M", "-e", "64M", "--algo", "ring")
        slow, fast = (rows_of(*words, "--rate", rate)[0]["time_us"] for rate in ("1gbit", "10gbit"))
        self.assertAlmostEqual(slow / fast, 10, delta=1)
        by_setting = rows_of(*words, env={"QCCL_LINK_RATE": "10gbit"})[0]["time_us"]
        self.assertEqual(by_setting, fast)
        small = ("all_reduce", "--hosts", "1,1", "-b", "8", "-e", "8", "--algo", "oneshot", "--latency")
        near, far = (rows_of(*small, latency)[0]["time_us"] for latency in ("5us", "1ms"))
        self.assertAlmostEqual(far - near, 995, delta=1e-3)
        # The root of a broadcast does not wait for the others, so that calls in a row hide the latency.
        hidden = [rows_of("broadcast", "--hosts", "1,1", "-b", "8", "-e", "8", "--algo", "ring", "--latency", latency)[0]["time_us"]
                  for latency in ("5us", "1ms")]
        self.assertEqual(*hidden)

    def test_a_topology_says_where_ranks_are_and_how_fast_links_are(self):
        words = ("broadcast", "-b", "64M", "-e", "64M", "--algo", "ring")
        job = ("--topology", "4 x node(2 core) net:tcp:10gbit", "--ranks", "8")
        said = rows_of(*words, *job)[0]
        # Of a line's rate headers take 6 %.
        self.assertEqual(said["time_us"], rows_of(*words, "--hosts", "4x2", "--cores", "2", "--rate", "9.4gbit")[0]["time_us"])
        self.assertLess(said["time_us"], rows_of(*words, *job, "--rate", "1gbit")[0]["time_us"] / 5)
        self.assertIn("8 ranks on 4 hosts of 2 cores; lines of 1.175 GB/s", simulate(*words, *job).stdout)
        gpus = simulate(*words, "--topology", "2 x node(8 gpu nvlink:450) net:50x8")
        self.assertIn("16 ranks on 2 hosts; lines of 368 GB/s, 3 us", gpus.stdout)
        self.assertIn("; lines of 0.125 GB/s, 7 us\n", simulate(*words, "--hosts", "2x1", "--rate", "1gbit", "--latency", "7us").stdout)

    def test_a_rate_that_nothing_says_is_told(self):
        self.assertIn("lines of unknown rate, taken for 0.125 GB/s", simulate("all_reduce", "--hosts", "1,1", "-b", "4K", "-e", "4K").stdout)
        self.assertNotIn("unknown", simulate("all_reduce", "--hosts", "1,1", "--rate", "1gbit", "-b", "4K", "-e", "4K").stdout)

    def test_settings_and_plan_files_decide_what_the_command_line_leaves_open(self):
        words = ("all_reduce", "--ranks", "4", "-b", "4M", "-e", "4M")
        self.assertEqual(rows_of(*words, env={"QCCL_ALGO": "halving@bytes>=1M"})[0]["algorithm"], "halving")
        self.assertEqual(rows_of(*words, "--algo", "ring", env={"QCCL_ALGO": "halving"})[0]["algorithm"], "ring")
        lossy = rows_of(*words, env={"QCCL_CODEC": "int8:min=0"})[0]
        self.assertGreater(lossy["nmse_predicted"], 0)
        self.assertEqual(rows_of(*words, "--codec", "none", env={"QCCL_CODEC": "int8:min=0"})[0]["nmse_predicted"], 0)
        with tempfile.TemporaryDirectory() as folder:
            plan = pathlib.Path(folder) / "plan"
            plan.write_text("qccl-plan version=1\njob ranks=4\nalgorithm=tree lanes=1 @bytes>=1M\n")
            planned = rows_of(*words, env={"QCCL_PLAN_FILE": str(plan)})[0]
            self.assertEqual(planned["algorithm"], "tree")
            four_lanes = rows_of(*words, "--algo", "tree")[0]
            self.assertNotEqual(planned["time_us"], four_lanes["time_us"])
            plan.write_text("qccl-plan version=1\njob ranks=5\nalgorithm=tree @bytes>=1M\n")
            self.assertIn("QCCL_PLAN_FILE", simulate(*words, expect=2, env={"QCCL_PLAN_FILE": str(plan)}).stderr)

    def test_links_of_a_topology_are_shared(self):
        words = ("all_reduce", "-b", "256M", "-e", "256M", "--algo", "ring")
        one, eight = (rows_of(*words, "--topology", f"4 x node(8 gpu nvlink:400) net:{net}", "--ranks", "32")[0]
                      for net in ("25", "25x8"))
        self.assertAlmostEqual(one["time_us"], eight["time_us"], delta=0.01 * one["time_us"])  # one rank leaves each node
        flows = [rows_of("all_reduce", "-b", "256M", "-e", "256M", "--algo", "direct", "--topology",
                         f"4 x node(8 gpu nvlink:400) net:{net}")[0] for net in ("25", "25x8")]
        self.assertGreater(flows[0]["time_us"], 5 * flows[1]["time_us"])
        self.assertIn("nic", flows[0]["busiest_links"][0]["name"])

    def test_hosts_may_be_namespaces_of_one_machine(self):
        words = ("all_reduce", "--hosts", "1,1,1,1", "--rate", "100gbit", "-b", "64", "-e", "64", "--algo", "oneshot", "--cores")
        own, shared = (rows_of(*words, cores)[0]["time_us"] for cores in ("2", "2:shared"))
        self.assertGreater(shared, 2 * own)

    def test_cores_are_shared(self):
        words = ("all_gather", "--ranks", "4", "-b", "64M", "-e", "64M", "--algo", "ring", "--cores")
        many, few = (rows_of(*words, cores)[0]["time_us"] for cores in ("4", "1"))
        self.assertGreater(few, 3 * many)

    def test_a_hierarchy_of_hosts_that_are_alike_is_simulated_once(self):
        row = rows_of("all_reduce", "--hosts", "128x4", "--cores", "4", "-b", "64M", "-e", "64M", "--algo", "hierarchy")[0]
        self.assertEqual((row["ranks"], row["ranks_simulated"], row["simulated"]), (512, 4, True))
        self.assertEqual(row["busiest_links"][0]["alike"], 128)

    def test_codecs_are_compared_with_lossless_calls(self):
        row = rows_of("all_reduce", "--hosts", "1,1,1,1", "--rate", "1gbit", "-b", "64M", "-e", "64M", "--codec", "int8",
                      "--algo", "ring")[0]
        self.assertAlmostEqual(row["ratio"], 3.76, delta=0.05)
        self.assertAlmostEqual(row["speedup_vs_lossless"], row["ratio"], delta=0.4)
        self.assertGreater(row["nmse_predicted"], 0)
        self.assertAlmostEqual(sum(row["critical_path_us"].values()), row["time_us"], delta=row["time_us"] * 1e-9)
        alone = rows_of("all_reduce", "--hosts", "1,1", "-b", "64M", "-e", "64M", "--codec", "int8", "--lossless", "0")[0]
        self.assertIsNone(alone["speedup_vs_lossless"])


    def test_no_part_of_a_path_is_negative(self):
        # Where calls overlap, the path to the end of one need not lead through the end of the one before.
        for words in (("all_gather", "--algo", "oneshot", "-b", "16M", "-e", "16M"), ("broadcast", "--algo", "direct", "-b", "4K", "-e", "4K")):
            row = rows_of(*words, "--hosts", "2,2", "--cores", "2")[0]
            self.assertGreaterEqual(min(row["critical_path_us"].values()), 0, row)
            self.assertAlmostEqual(sum(row["critical_path_us"].values()), row["time_us"], delta=row["time_us"] * 1e-9)


class Exports(unittest.TestCase):
    def export(self, option, *words):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "file"
            row = rows_of(*words, option, path)[0]
            return row, path.read_text()

    def test_a_trace_shows_what_each_rank_does(self):
        row, text = self.export("--perfetto", "all_reduce", "--hosts", "2,2", "-b", "256K", "-e", "256K", "--codec", "int8", "--algo", "ring")
        events = json.loads(text)["traceEvents"]
        slices = [event for event in events if event["ph"] == "X"]
        for rank in range(4):
            mine = [event for event in slices if event["tid"] == rank]
            self.assertEqual({event["pid"] for event in mine}, {rank // 2})
            self.assertLessEqual({"encode", "wait", "send", "receive"}, {event["name"] for event in mine})
            self.assertTrue(any(event["name"].startswith("decode") for event in mine))
            self.assertLessEqual(max(event["ts"] + event["dur"] for event in mine), 1.2 * row["time_us"])  # calls in a row may overlap
        self.assertEqual(sum(event["ph"] == "b" for event in events), row["messages"])
        self.assertEqual(sum(event["ph"] == "e" for event in events), row["messages"])

    def test_goal_text_is_complete(self):
        row, text = self.export("--goal", "all_reduce", "--hosts", "3,2", "-b", "4M", "-e", "4M", "--codec", "int8",
                                "--algo", "tree:shape=double")
        self.assertTrue(text.startswith("num_ranks 5\n"))
        sends, receives, calcs = collections.Counter(), collections.Counter(), 0
        for rank, body in re.findall(r"^rank (\d+) \{\n(.*?)^\}", text, re.M | re.S):
            known = set()
            for line in body.splitlines():
                if found := re.fullmatch(r"(l\d+): (send|recv) (\d+)b (to|from) (\d+) tag (\d+)", line):
                    label, verb, size, _, peer, tag = found.groups()
                    known.add(label)
                    ends = (rank, peer) if verb == "send" else (peer, rank)
                    (sends if verb == "send" else receives)[(*ends, size, tag)] += 1
                elif found := re.fullmatch(r"(l\d+): calc (\d+)", line):
                    known.add(found[1])
                    calcs += 1
                else:
                    found = re.fullmatch(r"(l\d+) requires (l\d+)", line)
                    self.assertTrue(found, line)
                    self.assertLessEqual(set(found.groups()), known)
        self.assertEqual(sends, receives)
        self.assertEqual(set(sends.values()), {1}, "a tag stands for one message")
        self.assertEqual(sum(sends.values()), row["messages"])
        self.assertGreater(calcs, 0)

    def test_what_cannot_be_written_is_told(self):
        for option in ("--perfetto", "--goal"):
            done = simulate("all_reduce", "-b", "4M", "-e", "4M", option, "/nowhere/file", expect=1)
            self.assertIn("cannot write /nowhere/file: No such file or directory", done.stderr)
            done = simulate("all_reduce", "-b", "4M", "-e", "4M", option, "/dev/full", expect=1)
            self.assertIn("cannot write /dev/full: No space left on device", done.stderr)


class Refusals(unittest.TestCase):
    def test_are_sentences(self):
        for words, because in (([], "COLLECTIVE is required"), (["sum"], "all_reduce, reduce_scatter"),
                               (["all_reduce", "--hosts", "2,x"], "is no list of hosts"),
                               (["all_reduce", "--hosts", "0x4"], "is no list of hosts"),
                               (["all_reduce", "--hosts", "70000x4"], "is no list of hosts"),
                               (["all_reduce", "--hosts", "2,2", "--ranks", "5"], "--hosts has 4 ranks, and --ranks says 5"),
                               (["all_reduce", "--rate", "0"], "'0' is no rate above 0"),
                               (["all_reduce", "--rate", "-1gbit"], "is no rate above 0"),
                               (["all_reduce", "--topology", "2 x node(2 core)"], "nothing connects the nodes"),
                               (["all_reduce", "--topology", "2 x node() net:0"], "expected a rate above 0"),
                               (["all_reduce", "--topology", "node(2 gpu)", "--ranks", "3"], "has 2 GPUs, too few for 3 ranks"),
                               (["all_reduce", "--topology", "node()", "--hosts", "2"], "--topology says where the ranks are; leave --hosts out"),
                               (["all_reduce", "--topology", "/nowhere.xml"], "/nowhere.xml is no file"),
                               (["all_reduce", "--latency", "soon"], "'soon' is no duration"),
                               (["all_reduce", "--latency", "5"], "'5' is more than a second"),
                               (["all_reduce", "--cores", "0"], "'0' is no number of cores above 0"),
                               (["all_reduce", "--cores", "2:mine"], "shared"),
                               (["all_reduce", "--cores", "2:shared", "--topology", "node()"], "leave :shared out"),
                               (["broadcast", "--root", "2"], "--root 2 is none of the 2 ranks"),
                               (["all_reduce", "--algo", "star"], "ring"),
                               (["all_reduce", "-b", "1T", "-e", "1T"], "of which at most 1048576 are simulated"),
                               (["all_reduce", "-b", "2M", "-e", "1M"], "is above --maxbytes"),
                               (["all_reduce", "-b", "1M", "-e", "2M", "--goal", "x"], "--goal writes one call, and these are 2"),
                               (["all_reduce", "--codec", "none,int8", "--perfetto", "x"], "--perfetto writes one call, and these are 2"),
                               (["all_reduce", "--algoo", "ring"], "did you mean --algo")):
            self.assertIn(because, simulate(*words, expect=2).stderr, words)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
