"""qccl-info advise and plan from outside: the advice as text and JSON, plan files that qccl-info explain obeys, and what is refused.

usage: advice_info_test.py QCCL_INFO
"""
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

import tool
from npy_file import save

INFO = sys.argv.pop(1)
SLOW, FAST, ALONE = "4 x node(2 core) net:tcp:1gbit", "4 x node(2 core) net:rdma:3200gbit", "node(4 core)"
COUNT, RANKS = 20000, 4


class WithFolder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def data(self, name="rank%r.npy"):
        return str(self.folder / name)

    def save_ranks(self, ranks=RANKS):
        for rank in range(ranks):
            numbers = random.Random(rank)
            save(self.folder / f"rank{rank}.npy", [numbers.gauss(0, 1) for _ in range(COUNT)])


class Advice(WithFolder):
    def advise(self, *words, **more):
        return tool.run([INFO, "advise", "--input", self.data(), *words], **more)

    def told(self, *words):
        return json.loads(self.advise("--json", "-", *words).stdout)

    def test_a_slow_network(self):
        self.save_ranks()
        said = self.told("--topology", SLOW)
        self.assertEqual([said[key] for key in ("version", "count", "type", "ranks", "hosts")], [1, COUNT, "float", RANKS, RANKS])
        self.assertEqual([row["nmse"] for row in said["budgets"]], [1e-1, 1e-2, 1e-3, 1e-4, 1e-5])
        measured = {row["codec"]: row for row in said["codecs"]}
        self.assertGreater(len(measured), 5)
        for row in said["budgets"]:
            if row["outcome"] == "codec":
                self.assertLessEqual(measured[row["codec"]]["nmse"], row["nmse"])
                self.assertGreaterEqual(measured[row["codec"]]["speedup"], 1.25)
                self.assertGreater(measured[row["codec"]]["saved_us"], 0)
        advice = said["advice"]
        self.assertEqual((advice["nmse"], advice["outcome"]), (1e-3, "codec"))
        text = self.advise("--topology", SLOW).stdout
        self.assertIn(f"{RANKS} ranks on {RANKS} hosts with ", text)
        self.assertEqual(text.splitlines()[-3:], [advice["sentence"], f"export QCCL_CODEC={advice['codec']}",
                                                 f"export QCCL_LINK_RATE={said['link_gb_per_s']:.4g}GB/s"])
        self.assertEqual(len(re.findall(r"^ +(?:0\.\d+|1e-05)  ", text, re.M)), 5)

    def test_a_measured_rate_is_not_stated_over(self):
        self.save_ranks()
        machine = re.search(r"(?m)^  measured as: (.*)$", tool.run([INFO, "devices"]).stdout)[1]
        calibration = self.folder / "calibration"
        calibration.write_text(f"qccl-calibration version=1\nmachine {machine}\nfar bytes_per_ns=0.02\n")
        hosts = ("--hosts", "1,1,1,1", "--nmse", "1e-2")
        for env, rates in (({"QCCL_CALIBRATION": str(calibration)}, 0), ({"QCCL_LINK_RATE": "0.02GB/s"}, 1)):
            lines = self.advise(*hosts, env=env).stdout.splitlines()
            self.assertEqual((sum(line.startswith("export QCCL_CODEC=") for line in lines),
                              sum(line.startswith("export QCCL_LINK_RATE=") for line in lines)), (1, rates), lines)

    def test_lines_of_racks_are_told(self):
        self.save_ranks()
        slow = "2 x rack(2 x node(2 core) net:tcp:10gbit) net:tcp:1gbit"
        for words, env, rate in ((("--topology", slow), {}, "0.1175"), (("--hosts", "1,1/1,1", "--rate", "10gbit"), {"QCCL_RACK_RATE": "1gbit"}, "0.125")):
            lines = self.advise(*words, "--nmse", "1e-2", env=env).stdout.splitlines()
            self.assertIn(f" GB/s between them, and {rate} GB/s for all of a rack", lines[0])
            self.assertTrue(lines[-1].startswith(f"export QCCL_RACK_RATE={rate}GB/s # and QCCL_RACK, "), lines[-1])
        few = "2 x rack(4 x node(2 core) net:tcp:10gbit) net:tcp:1gbit"
        self.assertIn("4 hosts of the topology's 8, all in one rack with ", self.advise("--topology", few, "--nmse", "1e-2").stdout)

    def test_hosts_that_are_left_out(self):
        self.save_ranks(2)
        self.assertIn(") of 2 ranks on 2 hosts of the topology's 4 with", self.advise("--topology", SLOW, "--nmse", "1e-2").stdout)
        self.save_ranks()
        self.assertNotIn("of the topology's", self.advise("--topology", "4 x node(1 core) net:tcp:1gbit", "--nmse", "1e-2").stdout)

    def test_one_error(self):
        self.save_ranks()
        said = self.told("--topology", SLOW, "--nmse", "0.05")
        self.assertEqual([row["nmse"] for row in said["budgets"]], [0.05])
        self.assertEqual(said["advice"]["nmse"], 0.05)

    def test_the_library_does_what_is_advised(self):
        self.save_ranks()
        advice = self.told("--topology", SLOW)["advice"]
        said = tool.run([INFO, "explain", "all_reduce", "--bytes", 4 * COUNT, "--ranks", RANKS, "--hosts", "1,1,1,1"],
                        env={"QCCL_CODEC": advice["codec"], "QCCL_LINK_RATE": "1gbit"}).stdout
        self.assertNotIn("travels with none", said)

    def test_where_no_codec_is_advised(self):
        self.save_ranks()
        for topology, nmse, outcome, words in ((FAST, "1e-3", "no_gain", "makes the sum 1.25 times as fast on this network"),
                                               (ALONE, "1e-3", "no_link", "all ranks are on one host"),
                                               (SLOW, "1e-9", "missed", "no codec keeps an NMSE of 1e-09 on these data")):
            advice = self.told("--topology", topology, "--nmse", nmse)["advice"]
            self.assertEqual((advice["outcome"], advice["codec"]), (outcome, None))
            text = self.advise("--topology", topology, "--nmse", nmse).stdout
            self.assertIn(words, text.splitlines()[-1])
            self.assertIn("eave QCCL_CODEC alone", text.splitlines()[-1])
            self.assertNotIn("export", text)

    def test_json_beside_the_text(self):
        self.save_ranks()
        path = self.folder / "advice.json"
        self.assertEqual(self.advise("--topology", SLOW, "--json", path).stdout, self.advise("--topology", SLOW).stdout)
        self.assertEqual(json.loads(path.read_text()), self.told("--topology", SLOW))

    def test_one_file_for_all_ranks(self):
        self.save_ranks(1)
        done = tool.run([INFO, "advise", "--input", self.data("rank0.npy"), "--topology", SLOW])
        self.assertIn("all ranks read the same file", done.stderr)
        self.assertIn("4 ranks on 4 hosts", done.stdout)

    def refused(self, sentence, *words, status=2):
        done = self.advise(*words, expect=status)
        self.assertEqual(done.stdout, "")
        self.assertIn(sentence, done.stderr)

    def test_wrong_data(self):
        self.refused("rank0.npy: there is no such file", "--topology", SLOW)
        self.save_ranks(1)
        self.refused("there is one rank, which has nothing to send", "--topology", SLOW)
        self.save_ranks()
        self.refused("input of rank 4: cannot read", "--topology", SLOW, "--ranks", "5")
        save(self.folder / "rank2.npy", [1.0] * (COUNT - 1))
        self.refused("rank2.npy holds 19999 values, and that of rank 0 holds 20000", "--topology", SLOW)
        save(self.folder / "rank2.npy", [1.0] * COUNT, "<f8", "d")
        self.refused("rank2.npy holds double, and that of rank 0 holds float", "--topology", SLOW)
        for wrong, shown in ((float("nan"), "nan"), (float("-inf"), "-inf")):
            save(self.folder / "rank2.npy", [1.0] * (COUNT - 5) + [wrong] * 5)
            self.refused(f"rank2.npy holds {shown} at index {COUNT - 5}", "--topology", SLOW)
        for rank in range(RANKS):
            save(self.folder / f"rank{rank}.npy", [0.0] * COUNT)
        self.refused("the sum of the data is zero", "--topology", SLOW)
        for rank in range(RANKS):
            save(self.folder / f"rank{rank}.npy", [1] * COUNT, "<i4", "i")
        self.refused("holds int32, and codecs encode floating point alone", "--topology", SLOW)
        for rank in range(RANKS):
            save(self.folder / f"rank{rank}.npy", [])
        self.refused("rank0.npy holds no values", "--topology", SLOW)

    def test_wrong_questions(self):
        self.save_ranks()
        self.refused("the topology", "--topology", "4 x nod(2 core)")
        self.refused("too few for 4 ranks", "--topology", "2 x node(1 gpu) net:50")
        self.refused("how fast the links between the hosts are is unknown", "--hosts", "1,1,1,1")
        self.refused("'2' is no error: expected a number above 0 and below 1", "--topology", SLOW, "--nmse", "2")
        self.refused("No such file or directory", "--topology", SLOW, "--json", self.folder / "none" / "advice.json", status=1)
        done = subprocess.run([INFO, "advise", "--input", self.data("rank0.npy")], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("on which machines?", done.stderr)


class Plans(WithFolder):
    def plan(self, *words, **more):
        return tool.run([INFO, "plan", "--gradients", *words], **more)

    def gradients(self, content, name="list"):
        path = self.folder / name
        path.write_text(content)
        return path

    def explained(self, plan, count, *words, **more):
        return tool.run([INFO, "explain", "all_reduce", "--bytes", 4 * count, "--ranks", RANKS, "--hosts", "1,1,1,1", *words],
                        env={"QCCL_PLAN_FILE": str(plan)}, **more)

    def test_small_tensors_are_not_compressed(self):
        listed = self.gradients("bias 4\nweight 102400\nbias2 4\n")
        plan = self.folder / "plan"
        said = self.plan(listed, "--topology", SLOW, "--codec", "int8", "--out", plan).stdout
        self.assertIn("1 of 3 tensors are compressed", said)
        self.assertEqual(said.splitlines()[-1], f"export QCCL_PLAN_FILE={plan}")
        rules = [line for line in plan.read_text().splitlines() if not line.startswith("#")]
        self.assertEqual(rules[:2], ["qccl-plan version=1 rules=2", "job ranks=4 nodes=4"])
        none = re.fullmatch(r"codec=none algorithm=(\S+) parts=1 @collective=all_reduce,type=float,count=4", rules[2])
        int8 = re.fullmatch(r"codec=int8:min=0 algorithm=(\S+) parts=(\d+) @collective=all_reduce,type=float,count=102400", rules[3])
        for found, codec, count in ((none, "none", 4), (int8, "int8:min=0", 102400)):
            said = self.explained(plan, count).stdout
            for words in (f"codec {codec} by line ", f"algorithm {found[1]} by line ", "cut by line "):
                self.assertIn(words, said)
        self.assertGreater(int(int8[2]), 1)
        self.assertRegex(self.explained(plan, 102400).stdout, rf"\n\* .* {int8[2]} segments in ")

    def test_the_usual_codec_keeps_an_error(self):
        said = self.plan(self.gradients("weight,4000000"), "--topology", SLOW).stdout
        self.assertIn("with auto:nmse=0.001", said)
        self.assertRegex(said, r"\ncodec=int\d:\S+ algorithm=")

    def test_nothing_is_compressed_where_it_does_not_pay(self):
        for topology in (ALONE, FAST):
            said = self.plan(self.gradients("weight 20000"), "--topology", topology, "--ranks", RANKS).stdout
            self.assertIn("0 of 1 tensors are compressed", said)
            self.assertIn("\ncodec=none ", said)

    def test_other_lists(self):
        self.save_ranks()
        listed = self.gradients(json.dumps([{"name": "a", "shape": [200, 100]}]), "list.json")
        wanted = "collective=all_reduce,type=float,count=20000"
        for where in (listed, self.data(), self.folder):
            self.assertIn(wanted, self.plan(where, "--topology", SLOW).stdout)
        self.assertIn(wanted, self.plan("-", "--topology", SLOW, text_in="a 20000\n").stdout)

    def test_an_algorithm_for_all(self):
        said = self.plan(self.gradients("a 100\nb 1000000\n"), "--topology", SLOW, "--algo", "ring").stdout
        self.assertEqual(said.count(" algorithm=ring "), 2)

    def test_wrong_questions(self):
        listed = self.gradients("a 100\n")
        for words, sentence, status in (((self.gradients("a 0\n", "bad"), "--topology", SLOW), "bad: line 1: a has no number of values", 2),
                                        ((self.folder / "none", "--topology", SLOW), "none: cannot read it: No such file", 1),
                                        ((listed,), "on which machines?", 2),
                                        ((listed, "--topology", "4 x nod(2 core)"), "the topology", 2),
                                        ((listed, "--hosts", "1,1"), "how fast the links between the hosts are is unknown", 2),
                                        ((listed, "--topology", SLOW, "--codec", "int9"), 'codec is "int9"; possible are', 2),
                                        ((listed, "--topology", SLOW, "--algo", "rang"), "rang", 2),
                                        ((listed, "--topology", SLOW, "--out", self.folder / "none" / "plan"), "No such file or directory", 1)):
            done = self.plan(*words, expect=status)
            self.assertIn(sentence, done.stderr)
        self.assertIn("--gradients", tool.run([INFO, "plan"], expect=2).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
