"""qccl-info explain from outside: machines that are not there, sizes, verdicts, bytes by link, JSON, errors of given values, and what is refused.

usage: explain_info_test.py QCCL_INFO
"""
import json
import pathlib
import random
import re
import sys
import tempfile
import unittest

import tool
from npy_file import save

INFO = sys.argv.pop(1)
JOB = "4 x node(2 gpu nvlink:450) net:rdma:100gbit"


def info(*words, **more):
    return tool.run([INFO, *words], **more)


class Explanations(unittest.TestCase):
    def rows(self, *words, **more):
        return json.loads(info("explain", *words, "--json", "-", **more).stdout)["rows"]

    def test_machines_that_are_not_there(self):
        said = info("explain", "all_reduce", "--bytes", "64M", "--topology", JOB).stdout
        self.assertIn("of 16777216 float (64 MiB) on 8 ranks", said)
        self.assertIn("4 hosts with 2, 2, 2 and 2 ranks; between them 3 us, and 11.5 GB/s", said)
        self.assertRegex(said, r"all together [\d.]+ [KMG]iB by gpudirect_rdma, [\d.]+ [KMG]iB by nvlink")
        document = json.loads(info("explain", "all_reduce", "--bytes", "1M", "--topology", JOB, "--ranks", "6", "--json", "-").stdout)
        self.assertEqual((document["machine"]["ranks"], document["machine"]["hosts"], document["machine"]["gpus"]), (6, 3, True))
        self.assertEqual(document["machine"]["link_between_hosts"], {"class": "rdma", "GBps": 11.5})
        self.assertEqual(document["machine"]["link_in_host"]["class"], "nvlink")

    def test_sizes_as_qccl_perf_takes_them(self):
        rows = self.rows("all_reduce", "-b", "1K", "-e", "64K", "-f", "8", "--ranks", "4", "--codec", "none,int8:min=0")
        self.assertEqual([(row["bytes"], row["used_codec"]) for row in rows],
                         [(size << 10, codec) for size in (1, 8, 64) for codec in ("none", "int8")])
        said = info("explain", "all_reduce", "-b", "1K", "-e", "64K", "-f", "8", "--ranks", "4").stdout
        self.assertEqual(len(re.findall(r"(?m)^all_reduce of", said)), 3)
        said = info("explain", "all_reduce", "-b", "1K", "-e", "64K", "-f", "8", "--topology", JOB).stdout
        self.assertEqual([said.count("all_reduce of"), said.count("rings go by"), said.count(" hosts with ")], [3, 1, 1])
        default = info("explain", "all_reduce", "--ranks", "2").stdout
        self.assertIn("(32 MiB)", default)

    def test_a_barrier_has_no_values(self):
        self.assertTrue(info("explain", "barrier", "--ranks", "4").stdout.startswith("barrier on 4 ranks\n"))
        row, = self.rows("barrier", "--ranks", "4", "-f", "2")
        self.assertEqual(row["bytes"], 0)
        said = info("explain", "barrier", "--ranks", "4", "--codec", "int4", expect=None).stderr
        self.assertIn("a barrier has no values to encode", said)

    def test_calls_larger_than_any_machine(self):
        row, = self.rows("all_reduce", "--bytes", "100T", "--ranks", "4")
        chosen, = [each for each in row["candidates"] if each["verdict"] == "chosen"]
        self.assertGreater(sum(chosen["bytes_by_link"].values()), 4 * (100 << 40))

    def test_each_candidate_has_a_verdict(self):
        for words in (["all_reduce", "--codec", "int4"], ["all_reduce", "--type", "half"], ["broadcast", "--root", "3"], ["all_gather", "--algo", "ring"],
                      ["all_reduce", "--codec", "auto:nmse=1e-2"]):
            row, = self.rows(*words, "--bytes", "4M", "--topology", "4 x node(2 core) net:tcp:1gbit", "--ranks", "8")
            self.assertEqual(row["version"], 1)
            chosen = [each for each in row["candidates"] if each["verdict"] == "chosen"]
            self.assertEqual([each["algorithm"] for each in chosen], [row["algorithm"]])
            self.assertTrue(row["reason"].startswith(row["algorithm"] + ": "), row["reason"])
            for each in row["candidates"]:
                self.assertIn(each["verdict"], ("chosen", "lost", "refused", "impossible"))
                self.assertTrue(each["why"], each)
                if each["verdict"] == "impossible":
                    continue
                self.assertGreater(each["time_us"], 0)
                self.assertEqual(set(each["bytes_by_link"]) - {"tcp", "shared_memory"}, set())
                self.assertGreaterEqual(each["bytes_by_link"]["tcp"], each["host_bytes"])
                if each["verdict"] == "lost" and "--algo" not in words and "may lose" not in each["why"]:
                    self.assertGreaterEqual(each["time_us"] * 1.08, row["time_us"])

    def test_bytes_by_link_are_those_of_all_ranks(self):
        # In a ring over two hosts of two ranks two of four links lead to the other host; each carries 6 of 4 chunks.
        row, = self.rows("all_reduce", "--bytes", "64M", "--hosts", "2,2", "--algo", "ring")
        ring, = (each for each in row["candidates"] if each["algorithm"] == "ring")
        self.assertAlmostEqual(ring["bytes_by_link"]["tcp"] / (2 * 1.5 * (64 << 20)), 1, delta=0.001)
        self.assertEqual(ring["bytes_by_link"]["tcp"], ring["bytes_by_link"]["shared_memory"])
        self.assertEqual(ring["wire_bytes"] * 4, sum(ring["bytes_by_link"].values()))

    def test_a_cut_that_settings_say_is_told(self):
        for env, told in (({}, False), ({"QCCL_SEGMENT": "64K"}, True), ({"QCCL_LANES": "1"}, True)):
            said = info("explain", "all_reduce", "--bytes", "64M", "--hosts", "1,1,1,1", "--rate", "1gbit", env=env).stdout
            self.assertEqual("  cut as settings or the plan say; " in said, told, said)
            row, = self.rows("all_reduce", "--bytes", "64M", "--hosts", "1,1,1,1", "--rate", "1gbit", env=env)
            self.assertEqual(row["usual_cut"], not told)
        said = info("explain", "all_reduce", "--bytes", "64M", "--hosts", "1,1,1,1", env={"QCCL_REPRODUCIBLE": "1"}).stdout
        self.assertNotIn("cut as settings", said)

    def test_a_rack_has_one_line(self):
        # Of eight hosts' values half has to cross by direct, in each direction.
        slow = "2 x rack(4 x node(2 core) net:tcp:10gbit) net:tcp:1gbit"
        for words, env, rate in ((("--topology", slow), {}, 0.1175), (("--topology", slow), {"QCCL_RACK_RATE": "2gbit"}, 0.25),
                                 (("--hosts", "1,1,1,1/1,1,1,1", "--rate", "10gbit"), {"QCCL_RACK_RATE": "1gbit"}, 0.125)):
            row, = self.rows("all_reduce", "--bytes", "64M", *words, env=env)
            self.assertAlmostEqual(row["machine"]["rack_GBps"], rate, delta=1e-4)
            by_name = {each["algorithm"]: each for each in row["candidates"]}
            for name, times in (("direct", 4), ("ring", 1.75), ("hierarchy", 1)):
                self.assertAlmostEqual(by_name[name]["parts_us"]["racks"] / (times * 64 * 1.048576 / rate * 1e3), 1, delta=0.01)
            self.assertIn(row["algorithm"], ("hierarchy", "tree"))

    def test_a_rate_that_nothing_says_is_unknown(self):
        quiet = {"QCCL_LINK_RATE": "", "QCCL_CALIBRATION": ""}
        words = ("all_reduce", "--bytes", "4M", "--hosts", "1,1", "--codec", "int4")
        unknown, = self.rows(*words, env=quiet)
        self.assertEqual((unknown["machine"]["host_GBps"], unknown["used_codec"]), (None, "none"))
        known, = self.rows(*words, "--rate", "1gbit", env=quiet)
        self.assertEqual((known["machine"]["host_GBps"], known["used_codec"]), (0.125, "int4"))
        self.assertEqual([row["machine"]["host_rate_source"] for row in (unknown, known)], ["assumed", "stated"])
        alike, = self.rows(*words, "--rate", "1gbit", env={**quiet, "QCCL_REPRODUCIBLE": "1"})
        self.assertEqual([alike["machine"][key] for key in ("host_GBps", "host_rate_source", "host_latency_us")], [None] * 3)
        self.assertTrue(all(each["regret"] >= 1 for each in known["candidates"] if each["verdict"] in ("chosen", "lost")))
        self.assertGreater(known["lossless"]["time_us"], 2 * known["time_us"])
        self.assertRegex(known["reason"], r"with int4 [\d.]+ times as fast as with none")
        self.assertIn("an unknown rate, taken for", info("explain", *words, env=quiet).stdout)

    def test_the_settings_say_which_tiers_compute(self):
        words = ("all_reduce", "--bytes", "1M", "--ranks", "4", "--codec", "int8", "--algo", "direct")
        best, = self.rows(*words)
        slow, = self.rows(*words, env={"QCCL_TIER": "scalar"})
        self.assertGreater(slow["time_us"], 2 * best["time_us"])
        self.assertIn("QCCL_TIER is \"mmx\"; possible are scalar", info("explain", *words, env={"QCCL_TIER": "mmx"}, expect=2).stderr)

    def test_json_beside_the_text(self):
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/explain.json"
            said = info("explain", "all_reduce", "--bytes", "1M", "--ranks", "4", "--json", path).stdout
            self.assertEqual(said, info("explain", "all_reduce", "--bytes", "1M", "--ranks", "4").stdout)
            with open(path) as file:
                row, = json.load(file)["rows"]
            self.assertEqual(said.splitlines()[-1], row["reason"])

    def test_values_of_files_say_their_error(self):
        numbers = random.Random(7)
        with tempfile.TemporaryDirectory() as folder:
            pattern = folder + "/rank%r.npy"
            for rank in range(4):
                # Each rank is strong in the quarter that it sums by direct, and does not encode there.
                save(pathlib.Path(folder) / f"rank{rank}.npy", [(10 if i // 10000 == rank else 1) * numbers.gauss(0, 1) for i in range(40000)])
            measured = json.loads(info("advise", "--input", pattern, "--json", "-").stdout)["codecs"]
            by_codec = {each["codec"]: each for each in measured if each["codec"] in ("int8", "int4")}
            self.assertEqual(len(by_codec), 2)
            for codec, told in by_codec.items():
                row, = self.rows("all_reduce", "--input", pattern, "--codec", codec + ":min=0")
                self.assertEqual((row["ranks"], row["count"], row["dtype"]), (4, 40000, "float"))
                candidates = {each["algorithm"]: each for each in row["candidates"] if each["verdict"] != "impossible"}
                self.assertAlmostEqual(candidates[told["algorithm"]]["nmse_expected"] / told["nmse"], 1, delta=0.15)
                self.assertLess(candidates["direct"]["nmse_expected"], 0.7 * candidates["direct"]["nmse_predicted"])
            self.assertIn(", by the sample 0.0", info("explain", "all_reduce", "--input", pattern, "--codec", "int4:min=0").stdout)
            self.assertNotIn("by the sample", info("explain", "all_reduce", "--input", pattern, "--codec", "none").stdout)
            for words, because in ((["all_gather"], "of sums by all_reduce alone"), (["all_reduce", "--op", "max"], "of sums by all_reduce alone"),
                                   (["all_reduce", "--bytes", "1M"], "--bytes excludes --input"),
                                   (["all_reduce", "--type", "half"], "--datatype excludes --input")):
                self.assertIn(because, info("explain", *words, "--input", pattern, expect=2).stderr)
            self.assertIn("cannot read", info("explain", "all_reduce", "--input", pattern, "--ranks", "5", expect=2).stderr)
            self.assertIn("two or more", info("explain", "all_reduce", "--input", pattern, "--ranks", "1", expect=2).stderr)
            one = pattern.replace("%r", "0")
            self.assertIn("all ranks read the same file, " + one, info("explain", "all_reduce", "--input", one, "--ranks", "4").stderr)
        self.assertIn("there is no such file", info("explain", "all_reduce", "--input", "/nowhere/rank%r.npy", expect=2).stderr)

    def test_what_cannot_be_is_refused(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            text.write("qccl-topology version=1\n")
            text.flush()
            for words, because in ((["--bytes", "1M"], "--ranks, --hosts or --topology is required"),
                                   (["-b", "2M", "-e", "1M", "--ranks", "2"], "is above --maxbytes"),
                                   (["-b", "many", "--ranks", "2"], "'many' is no size"),
                                   (["-f", "0", "--ranks", "2"], "'0' is no number from 1"),
                                   (["--bytes", "1M", "-e", "2M", "--ranks", "2"], "--bytes excludes --maxbytes"),
                                   (["--topology", JOB, "--ranks", "9"], "has 8 GPUs, too few for 9 ranks"),
                                   (["--topology", JOB, "--hosts", "4,4"], "leave --hosts out"),
                                   (["--topology", "2 x node(2 core)"], "nothing connects the nodes"),
                                   (["--topology", "2 x node() net:0"], "expected a rate above 0"),
                                   (["--topology", text.name], text.name),
                                   (["--hosts", "1,1", "--rate", "0"], "'0' is no rate above 0"),
                                   (["--hosts", "2,2", "--ranks", "3"], "--hosts has 4 ranks, and --ranks says 3"),
                                   (["--ranks", "2", "--root", "all"], "name one root"),
                                   (["--ranks", "2", "--json", "/nowhere/x"], "/nowhere/x")):
                said = info("explain", "all_reduce", *words, expect=None)
                self.assertIn(because, said.stderr, words)
                self.assertEqual(said.stderr.count("\n"), 1)
                self.assertEqual(said.stdout, "")


if __name__ == "__main__":
    unittest.main()
