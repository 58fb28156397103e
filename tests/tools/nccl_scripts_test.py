"""qccl-perf as scripts for nccl-tests use it: a least bandwidth, single iterations, and the JSON that its tools analyse.

usage: nccl_scripts_test.py QCCL_PERF
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import tool

PERF = sys.argv.pop(1)
SMALL = [PERF, "all_reduce", "-n", "6", "-w", "1", "-b", "1K", "-e", "2K", "-f", "2"]


class NcclTests(unittest.TestCase):
    def document(self, *options, **more):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            tool.run([*SMALL, "-J", path, *options], **more)
            with open(path) as file:
                return json.load(file)

    def test_a_bandwidth_that_is_too_small_fails_the_run(self):
        for least, status, verdict, okay in (("1e9", 1, "FAILED", "false"), ("0", 0, "OK", "true"), ("", 0, "", "unchecked"), ("-1", 0, "", "unchecked")):
            env = {"NCCL_TESTS_MIN_BW": least}
            for ranks in (["--ranks", "2"], ["-t", "2"]):
                done = tool.run([*SMALL, *ranks], expect=status, env=env)
                self.assertRegex(done.stdout, rf"# Avg bus bandwidth    : [\d.e+-]+ {verdict}\n")
            self.assertEqual(self.document(env=env, expect=status)["average_bus_bandwidth"]["okay"], okay)
        done = tool.run(SMALL, expect=2, env={"NCCL_TESTS_MIN_BW": "fast"})
        self.assertEqual(done.stderr, "qccl-perf: NCCL_TESTS_MIN_BW=fast: expected a number of GB/s\n")

    def test_nine_tenths_of_the_least_bandwidth_are_enough(self):
        for share in (0.01, 0.8, 1, 1.2, 100):  # what a run measures is known when it is over
            average = self.document()["average_bus_bandwidth"]["bandwidth"]
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "out.json")
                least = share * average
                done = subprocess.run([*SMALL, "-J", path], env={**os.environ, "NCCL_TESTS_MIN_BW": str(least)},
                                      stdout=subprocess.DEVNULL, timeout=300, check=False)
                with open(path) as file:
                    written = json.load(file)
            busbw = [row[side]["bus_bw"] for row in written["results"] for side in ("out_of_place", "in_place")]
            found = written["average_bus_bandwidth"]
            self.assertAlmostEqual(found["bandwidth"], sum(busbw) / len(busbw), places=9)
            enough = found["bandwidth"] >= 0.9 * least
            self.assertEqual((done.returncode, found["okay"]), (0, "true") if enough else (1, "false"))

    def test_what_is_not_used_of_its_environment_is_noted(self):
        for name in ("NCCL_TESTS_SPLIT", "NCCL_TESTS_SPLIT_MASK", "NCCL_TESTS_DEVICE"):
            said = tool.run(SMALL, env={name: "1"}).stdout
            self.assertEqual(said.count(f"# {name} is not used here: "), 1)

    def check_iterations(self, iterations, times, skipped):
        self.assertEqual(iterations["skipped_iterations"], skipped)
        self.assertEqual(len(iterations["times_us"]), times)
        rest = iterations["times_us"][skipped:]
        for key, value in (("min_us", min(rest)), ("max_us", max(rest)), ("avg_us", sum(rest) / len(rest))):
            self.assertAlmostEqual(iterations[key], value, places=6)

    def test_leading_iterations_are_skipped_in_summaries_alone(self):
        for skip in (0, 2, 5):
            written = self.document("-I", "1", "-K", str(skip))
            self.assertEqual(written["config"]["per_iter_skip"], skip)
            for row in written["results"]:
                for side in ("out_of_place_per_iter", "in_place_per_iter"):
                    self.check_iterations(row[side], 6, skip)
        said = tool.run([*SMALL, "-I", "1", "-K", "2"]).stdout
        self.assertIn("# Per-iteration columns: of the slowest rank, without the first 2\n", said)

    def test_processes_have_a_row_of_times_each(self):
        for average in ("0", "1", "2", "3"):  # which rank the main columns show is another matter
            for row in self.document("-I", "1", "--ranks", "3", "-a", average)["results"]:
                for side in ("out_of_place_per_iter", "in_place_per_iter"):
                    ranks = row[side]["per_process_max_times_us"]
                    self.assertEqual([len(times) for times in ranks], [6] * 3)
                    self.assertEqual(row[side]["times_us"], [max(times) for times in zip(*ranks)])
        for row in self.document("-I", "1", "-t", "3")["results"]:  # threads are one process
            self.assertNotIn("per_process_max_times_us", row["in_place_per_iter"])

    def test_results_of_one_size_have_labels(self):
        self.assertEqual([row["experiment_name"] for row in self.document()["results"]], ["", ""])
        rows = self.document("--codec", "none,int8", "--algo", "ring,direct")["results"]
        self.assertEqual([row["experiment_name"] for row in rows],
                         ["none ring", "int8 ring", "none direct", "int8 direct"] * 2)

    def test_times_are_found_by_whoever_analyses_them(self):
        """Every access of nccl-tests' tools/analyze_perf_json.py --straggler --spikes --nodes."""
        written = self.document("-I", "1", "--ranks", "2")
        self.assertEqual((written["config"]["iterations"], written["config"]["aggregated_iterations"]), (6, 1))
        self.assertGreaterEqual(len([device["hostname"] for device in written["config"]["devices"]]), 2)
        for row in written["results"]:
            for side in ("out_of_place_per_iter", "in_place_per_iter"):
                for key in ("avg_us", "min_us", "max_us", "p99_us", "cv_pct"):
                    self.assertGreaterEqual(row[side][key], 0)
                self.assertTrue(all(times for times in row[side]["per_process_max_times_us"]))


if __name__ == "__main__":
    unittest.main()
