"""qccl-info whatif: what recorded jobs would take elsewhere, on logs made by hand and on one that was recorded.

usage: whatif_test.py QCCL_INFO QCCL_PERF
"""
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import tool

INFO, PERF = sys.argv[1:3]
QUIET = {"QCCL_LINK_RATE": "", "QCCL_LINK_LATENCY": "", "QCCL_CODEC": "", "QCCL_ALGO": "", "QCCL_PLAN_FILE": ""}
MS = 1_000_000


class Log:
    """A rank's log. Times are in ns; calls on a communicator get their numbers by themselves."""

    def __init__(self, rank, ranks, nodes=None, session=0xabc, per_core=1):
        self.rank, self.ranks, self.calls, self.per_core = rank, ranks, {}, per_core
        self.rows = [f"qccl-calls 2 rank={rank} ranks={ranks} pid=10 epoch=1000 library=0.1.0 host=h"]
        self.comms = self.shapes = 0
        self.comm(rank, ranks, session, nodes or f"0*{ranks}")

    def comm(self, rank, ranks, session, nodes, parent=0, name=""):
        self.comms += 1
        origin = "split" if parent else "init"
        self.rows.append(f"comm {self.comms} session={session:016x} parent={parent} origin={origin} rank={rank} ranks={ranks} "
                         f"nodes={nodes} ranks_per_core={self.per_core} name={name}")
        return self.comms

    def shape(self, count, call="all_reduce", codec="none", algorithm="ring", type="float", op="sum", root=0, comm=1, wire=0):
        self.shapes += 1
        self.rows.append(f"shape {self.shapes} {comm} call={call} type={type} op={op} root={root} count={count} asked_codec={codec} "
                         f"asked_algorithm=auto codec={codec} inner_codec={codec} algorithm={algorithm} bytes={count * 4} wire={wire}")
        return self.shapes

    def call(self, shape, start, duration, comm=1, kind="call"):
        self.calls[comm] = self.calls.get(comm, 0) + 1
        self.rows.append(f"{kind} {comm} {self.calls[comm]} {shape} 0 {start} {duration} 0")

    def text(self):
        return "\n".join(self.rows) + "\n"


def steady(rank, ranks, calls, count, computed, **shape):
    """A rank that computes for so long before each of its calls."""
    nodes, per_core = shape.pop("nodes", None), shape.pop("per_core", 1)
    log, now = Log(rank, ranks, nodes, per_core=per_core), 0
    of = log.shape(count, **shape)
    for _ in range(calls):
        log.call(of, now, MS)
        now += MS + computed
    return log


class WhatIf(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_on(self, logs, *words, expect=0, env=None):
        files = []
        for i, log in enumerate(logs):
            files.append(self.folder / f"c-{i}")
            files[-1].write_text(log if isinstance(log, str) else log.text())
        return tool.run([INFO, "whatif", *files, *words], expect=expect, env={**QUIET, **(env or {})})

    def answer(self, logs, *words, env=None):
        return json.loads(self.run_on(logs, *words, "--json", "-", env=env).stdout)


class Replay(WhatIf):
    def test_computing_and_being_late_stay(self):
        # Rank 1 computes 3 ms before each call, and rank 0 none: both take what rank 1 does.
        logs = [steady(0, 2, 11, 1024, 0), steady(1, 2, 11, 1024, 3 * MS)]
        answer = self.answer(logs)
        self.assertEqual(answer["qccl_whatif"], 1)
        self.assertEqual((answer["ranks"], answer["calls"], answer["hosts"], answer["left_out"]), (2, 11, 1, 0))
        self.assertEqual(answer["recorded"]["time_us"], 11e3 + 30e3)
        each = answer["shapes"][0]["same_plan"]["time_us"]
        self.assertAlmostEqual(answer["same_plan"]["time_us"], 30e3 + 11 * each, delta=1)
        self.assertAlmostEqual(answer["same_plan"]["in_calls_us"], 30e3 + 11 * each, delta=1)

    def test_the_root_of_a_broadcast_runs_ahead(self):
        logs = [steady(rank, 2, 11, 1 << 20, 5 * MS * rank, call="broadcast", nodes="0*1,1*1") for rank in range(2)]
        words = ("--rate", "10gbit")
        answer = self.answer(logs, *words)
        each = answer["shapes"][0]["same_plan"]["time_us"]
        # What came while the other rank computed is there when it asks.
        self.assertLess(answer["same_plan"]["time_us"], 50e3 + 5 * each)
        reversed_roles = [steady(rank, 2, 11, 1 << 20, 5 * MS * (1 - rank), call="broadcast", nodes="0*1,1*1") for rank in range(2)]
        self.assertAlmostEqual(self.answer(reversed_roles, *words)["same_plan"]["time_us"], 50e3 + 11 * each, delta=each)

    def test_ranks_share_cores_as_they_did(self):
        def time(per_core, *words):
            logs = [steady(rank, 4, 3, 1 << 20, 0, per_core=per_core) for rank in range(4)]
            return self.answer(logs, *words)["same_plan"]["time_us"]
        self.assertGreater(time(4), 2 * time(1))
        self.assertEqual(time(2), time(1, "--cores", "2"))

    def test_slow_lines_and_codecs(self):
        logs = [steady(rank, 4, 3, 1 << 20, MS, wire=123) for rank in range(4)]
        where = ("--topology", "4 x node(4 core) net:tcp:1gbit")
        lossless = self.answer(logs, *where)
        wire_us = 2 * 3 / 4 * (4 << 20) / 0.1175e3
        self.assertAlmostEqual(lossless["shapes"][0]["asked"]["time_us"], wire_us, delta=0.1 * wire_us)
        self.assertAlmostEqual(lossless["line_GBps"], 0.1175, delta=1e-6)
        self.assertEqual(lossless["recorded"]["wire_bytes"], 3 * 123)
        self.assertEqual(lossless["asked"]["nmse"], 0)
        coded = self.answer(logs, *where, "--codec", "auto:nmse=1e-3")
        self.assertEqual(coded["same_plan"], lossless["same_plan"])
        self.assertLess(coded["asked"]["time_us"], 0.4 * lossless["asked"]["time_us"])
        self.assertLess(coded["asked"]["wire_bytes"], 0.35 * lossless["asked"]["wire_bytes"])
        self.assertTrue(0 < coded["asked"]["nmse"] <= 1e-3)
        # Inside one host nothing is encoded for the sake of a line.
        self.assertEqual(self.answer(logs, "--ranks", "4", "--hosts", "4", "--codec", "int8")["shapes"][0]["asked"]["codec"], "none")

    def test_what_was_recorded_is_simulated_whether_it_pays_or_not(self):
        logs = [steady(rank, 2, 3, 4096, MS, codec="int4", algorithm="halving", nodes="0*1,1*1") for rank in range(2)]
        shape = self.answer(logs)["shapes"][0]
        self.assertEqual((shape["same_plan"]["codec"], shape["same_plan"]["algorithm"]), ("int4", "halving"))
        self.assertEqual(shape["asked"]["codec"], "none")  # the rate is unknown
        forced = self.answer(logs, "--algo", "tree")["shapes"][0]
        self.assertEqual(forced["asked"]["algorithm"], "tree")
        by_setting = self.answer(logs, "--rate", "1gbit", env={"QCCL_CODEC": "int8:min=0", "QCCL_ALGO": "ring"})["shapes"][0]
        self.assertEqual((by_setting["asked"]["codec"], by_setting["asked"]["algorithm"]), ("int8", "ring"))

    def test_communicators_of_some_ranks(self):
        logs = []
        for rank in range(4):
            log = Log(rank, 4, "0*1,1*1,2*1,3*1")
            half = log.comm(rank // 2, 2, 0xd0 + rank % 2, "0*1,1*1", parent=1, name="dp")
            of_all, of_half = log.shape(1024), log.shape(1 << 20, comm=half)
            log.call(of_all, 0, MS)
            log.call(of_half, 2 * MS, MS, comm=half)
            logs.append(log)
        # Ranks 0 and 2 are on one host, and so are 1 and 3.
        near = self.answer(logs, "--hosts", "2,2:round", "--rate", "1gbit")
        far = self.answer(logs, "--hosts", "2,2", "--rate", "1gbit")
        times = [{shape["ranks"]: shape["asked"]["time_us"] for shape in answer["shapes"]} for answer in (near, far)]
        self.assertGreater(times[1][2], 20 * times[0][2])
        self.assertEqual({shape["communicator"] for shape in far["shapes"]}, {"", "dp"})
        refused = self.run_on(logs[1:], expect=2).stderr
        self.assertIn("rank 0 of a communicator of 2 ranks has no log here", refused)

    def test_a_communicator_of_all_ranks_in_another_order(self):
        def times(root):
            """Of a broadcast of the job, and of one of all ranks the other way round."""
            logs = []
            for rank in range(4):
                log = Log(rank, 4, "0*3,1*1")
                turned = log.comm(3 - rank, 4, 0xd0, "1*1,0*3", parent=1, name="turned")
                of_job = log.shape(1 << 20, call="broadcast", algorithm="direct", root=root)
                of_turned = log.shape(1 << 20, call="broadcast", algorithm="direct", root=3 - root, comm=turned)
                log.call(of_job, 0, MS)
                log.call(of_turned, 2 * MS, MS, comm=turned)
                logs.append(log)
            answer = self.answer(logs, "--hosts", "3,1", "--rate", "1gbit")
            return {shape["communicator"]: shape["same_plan"]["time_us"] for shape in answer["shapes"]}
        near, far = times(0), times(3)
        self.assertAlmostEqual(near["turned"] / near[""], 1, delta=0.02)
        self.assertAlmostEqual(far["turned"] / far[""], 1, delta=0.02)
        self.assertGreater(far[""], 1.3 * near[""])

    def test_calls_that_are_not_whole_are_left_out(self):
        first, second = (steady(rank, 2, 5, 1024, MS) for rank in range(2))
        first.call(1, 10 * MS, MS)  # the other one was killed before
        second.rows[-1] = second.rows[-1].replace("call ", "failed ", 1)
        answer = self.answer([first, second])
        self.assertEqual((answer["calls"], answer["left_out"]), (4, 2))
        self.assertIn("2 calls failed, were not recorded, or are not in the logs", self.run_on([first, second]).stdout)
        apart = [steady(rank, 2, 5, 1024, MS, nodes="0*1,1*1") for rank in range(2)]
        self.assertIn("on 2 hosts with lines of unknown rate, taken for 0.125 GB/s", self.run_on(apart).stdout)
        alone = self.run_on([steady(0, 2, 5, 1024, MS)]).stdout
        self.assertIn("Logs of 1 of 2 ranks are missing", alone)

    def test_calls_in_another_order_end(self):
        logs = []
        for rank in range(2):
            log = Log(rank, 2)
            other = log.comm(rank, 2, 0xd0, "0*2", parent=1)
            shapes = (log.shape(64), log.shape(128, comm=other))
            for at, comm in enumerate((1, other) if rank == 0 else (other, 1)):
                log.call(shapes[comm - 1], at * 5 * MS, MS, comm=comm)
            logs.append(log)
        answer = self.answer(logs)
        self.assertEqual(answer["calls"], 2)
        self.assertLess(answer["same_plan"]["time_us"], 20e3)

    def test_the_plan_file_is_one(self):
        logs = [steady(rank, 4, 3, 1 << 20, MS, nodes="0*1,1*1,2*1,3*1") for rank in range(4)]
        for log in logs:
            log.call(log.shape(1000, type="int32"), 90 * MS, MS)
            log.call(log.shape(0, call="barrier"), 95 * MS, MS)
        plan = self.folder / "plan"
        answer = self.answer(logs, "--rate", "1gbit", "--codec", "int8", "--out", str(plan))
        rules = plan.read_text().splitlines()
        self.assertEqual(rules[0], "qccl-plan version=1 rules=2")
        by_shape = {shape["count"]: shape["asked"] for shape in answer["shapes"]}
        self.assertIn(f"codec=int8:min=0 algorithm={by_shape[1 << 20]['algorithm']} @collective=all_reduce,type=float,op=sum,count=1048576,ranks=4,nodes=4",
                      rules)
        self.assertIn(f"algorithm={by_shape[1000]['algorithm']} @collective=all_reduce,type=int32,op=sum,count=1000,ranks=4,nodes=4", rules)
        again = self.answer(logs, "--rate", "1gbit", env={"QCCL_PLAN_FILE": str(plan)})
        self.assertEqual(again["asked"], answer["asked"])


class Recorded(WhatIf):
    def fastest_us(self, log):
        """The time of a rank's fastest call, by the number of values."""
        rows = [line.split() for line in log.splitlines()]
        counts = {row[1]: int(re.search(r"\bcount=(\d+)", " ".join(row))[1]) for row in rows if row[0] == "shape"}
        fastest = {}
        for row in rows:
            if row[0] == "call":
                count = counts[row[3]]
                fastest[count] = min(fastest.get(count, math.inf), int(row[6]) / 1000)
        return fastest

    def test_a_job_is_predicted(self):
        path = self.folder / "c-%r"
        tool.run([PERF, "all_reduce", "--ranks", "2", "-b", "16K", "-e", "16M", "-f", "32", "-n", "20", "-c", "0", "--codec", "none"],
                 env={**QUIET, "QCCL_RECORD_CALLS": str(path)})
        logs = [(self.folder / f"c-{rank}").read_text() for rank in range(2)]
        answer = self.answer(logs)
        self.assertGreater(answer["calls"], 60)
        self.assertEqual(answer["logs"], 2)
        self.assertEqual({shape["count"] for shape in answer["shapes"]}, {4096, 131072, 4194304})
        # Machines differ, and others use them meanwhile: this is about orders of magnitude, and the fastest call of a shape is hindered least.
        fastest = self.fastest_us(logs[0])
        for shape in answer["shapes"]:
            self.assertTrue(1 / 30 < shape["same_plan"]["time_us"] / fastest[shape["count"]] < 30, (shape, fastest))
        self.assertLess(answer["same_plan"]["time_us"] / answer["recorded"]["time_us"], 5)
        # Small messages within a host have no headers.
        self.assertAlmostEqual(answer["same_plan"]["wire_bytes"] / answer["recorded"]["wire_bytes"], 1, delta=1e-3)
        table = self.run_on(logs, "--hosts", "1,1", "--rate", "1gbit", "--codec", "int4").stdout
        self.assertIn("recorded      same plan      asked for", table)
        self.assertIn("all_reduce 4194304 float sum (2 ranks): none", table)

    def test_a_call_with_shared_scales_is_two_collectives(self):
        tool.run([PERF, "reduce_scatter", "--ranks", "3", "-b", "1500K", "-e", "1500K", "-n", "3", "-w", "0", "-c", "0", "-d", "half",
                  "-o", "avg", "--codec", "shared:bits=5"], env={**QUIET, "QCCL_RECORD_CALLS": str(self.folder / "c-%r")})
        plan = self.folder / "plan"
        answer = self.answer([(self.folder / f"c-{rank}").read_text() for rank in range(3)], "--out", str(plan))
        # The caller's call, beside which qccl-perf measures one without a codec, and the agreement on the scales of its blocks.
        sums = ("reduce_scatter", "half", "avg", 256000)
        shapes = {(*(shape[key] for key in ("collective", "type", "op", "count")), shape["same_plan"]["codec"]): shape
                  for shape in answer["shapes"]}
        self.assertEqual(set(shapes), {(*sums, "shared:bits=5"), (*sums, "none"), ("all_reduce", "uint16", "max", 24000, "none")})
        self.assertEqual(shapes["all_reduce", "uint16", "max", 24000, "none"]["calls"], shapes[(*sums, "shared:bits=5")]["calls"])
        self.assertAlmostEqual(answer["same_plan"]["wire_bytes"] / answer["recorded"]["wire_bytes"], 1, delta=2e-3)
        # No program asks for the agreement.
        rules = plan.read_text().splitlines()
        self.assertEqual(rules[0], "qccl-plan version=1 rules=1")
        self.assertIn("@collective=reduce_scatter,type=half,op=avg,count=256000,", rules[1])

    def test_a_maximum_of_the_program_gets_a_rule(self):
        logs = [steady(rank, 2, 3, 1000, MS, type="uint16", op="max") for rank in range(2)]
        plan = self.folder / "plan"
        self.answer(logs, "--out", str(plan))
        self.assertIn("@collective=all_reduce,type=uint16,op=max,count=1000,", plan.read_text())


class Refusals(WhatIf):
    def test_are_sentences(self):
        good = [steady(rank, 2, 2, 64, MS) for rank in range(2)]
        other_job = steady(1, 2, 2, 64, MS)
        other_job.rows[1] = other_job.rows[1].replace("session=0000000000000abc", "session=0000000000000abd")
        disagrees = steady(1, 2, 2, 65, MS)
        unknown = [steady(rank, 2, 2, 64, MS, codec="zip9") for rank in range(2)]
        empty = Log(0, 2)
        for logs, words, status, because in (
                (good, ("--topology", "3 x node(2 core) net:10", "--ranks", "3"), 2, "the machine has 3 ranks, and the recorded job had 2"),
                (good, ("--ranks", "4"), 2, "the machine has 4 ranks, and the recorded job had 2"),
                (good, ("--hosts", "2,2"), 2, "the machine has 4 ranks, and the recorded job had 2"),
                (good, ("--topology", "node("), 2, "the node's ( is not closed"),
                (good, ("--topology", "/nowhere.xml"), 2, "/nowhere.xml is no file"),
                (good, ("--topology", "node(1 gpu)"), 2, "too few for 2 ranks"),
                (good, ("--codec", "zip9"), 2, "zip9"),
                (good, ("--out", "/nowhere/plan"), 1, "cannot write /nowhere/plan"),
                (good, ("--json", "/dev/full"), 1, "cannot write /dev/full"),
                ([good[0], good[0]], (), 2, "both hold rank 0 of one communicator"),
                ([good[0], other_job], (), 2, "these are logs of several jobs"),
                ([good[0], disagrees], (), 2, "ranks 0 and 1 recorded different calls as number 1"),
                (unknown, (), 2, "a log names the codec 'zip9'"),
                ([empty], (), 2, "no call is whole"),
                (["what is this\n"], (), 1, "line 1: 'what' stands where qccl-calls is expected"),
                ([""], (), 1, ""),
                ([good[0].text().replace("64", "-64")], (), 1, "line 3")):
            done = self.run_on(logs, *words, expect=status)
            self.assertIn(because, done.stderr, words)
            self.assertTrue(done.stderr.startswith("qccl-info: "), done.stderr)
        self.assertIn("FILE is required", tool.run([INFO, "whatif"], expect=2).stderr)
        self.assertIn("cannot", tool.run([INFO, "whatif", "/nowhere/log"], expect=1).stderr)
        self.assertIn("only one of --out and --json", self.run_on(good, "--out", "-", "--json", "-", expect=2).stderr)

    def test_damaged_logs_end_in_words(self):
        text = steady(0, 1, 3, 64, MS).text()
        for cut in range(0, len(text), 7):
            path = self.folder / "cut"
            path.write_text(text[:cut])
            done = subprocess.run([INFO, "whatif", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(done.returncode == 0, done.stderr == "")
            self.assertIn(done.returncode, (0, 1, 2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
