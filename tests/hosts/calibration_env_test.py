"""Ranks of processes count with measured figures: those that QCCL_CALIBRATION names on rank 0, or the ones in its user's cache directory.

usage: calibration_env_test.py RESULTS QCCL_INFO
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from launchers import HERE_ALONE, environment, free_port, start_by_hand

RESULTS, INFO = sys.argv[1:3]
RANKS = 2
MEASURED = "1.17 GB/s for all of a host"
UNKNOWN = "an unknown rate, taken for"


def explain(*places):
    """(exit statuses, what rank 0 prints, what each rank warns of); ranks count as on hosts of their own."""
    port = free_port()
    ended = start_by_hand([[RESULTS, "explain"]] * RANKS, [
        environment(**HERE_ALONE, **{"RANK": rank, "WORLD_SIZE": RANKS, "MASTER_ADDR": "localhost", "QCCL_PORT": port,
                                     "QCCL_HOSTID": f"h{rank}", **(places[rank] if rank < len(places) else {})}) for rank in range(RANKS)])
    return [status for status, _, _ in ended], ended[0][1], [warned for _, _, warned in ended]


class Calibration(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.cache = {"XDG_CACHE_HOME": str(self.folder), "QCCL_CALIBRATION": ""}
        said = subprocess.run([INFO, "devices"], env=environment(**self.cache), capture_output=True, text=True, check=True).stdout
        self.machine = re.search(r"(?m)^  measured as: (.*)$", said)[1]
        self.cached = pathlib.Path(re.search(r"(?m)^  calibration: (\S+), not there", said)[1])
        self.assertEqual(self.cached.parent, self.folder / "qccl")
        self.cached.parent.mkdir()

    def write(self, path, text, machine=None):
        path.write_text(f"qccl-calibration version=1\nmachine {machine or self.machine}\n{text}\n")
        return {"QCCL_CALIBRATION": str(path)}

    def test_rank_0_speaks_for_all(self):
        figures = self.write(self.folder / "figures", "far bytes_per_ns=1.17")
        status, said, warned = explain(figures, {})
        self.assertEqual(status, [0, 0], warned)
        self.assertIn(MEASURED, said)
        status, said, _ = explain({}, figures)
        self.assertEqual(status, [0, 0])
        self.assertIn(UNKNOWN, said)

    def test_what_jobs_of_this_shape_were_measured_to_take_decides(self):
        def choice(hosts, factors):
            text = f"far bytes_per_ns=1.17\njob ranks=2 hosts={hosts} model=3\n" + "\n".join(
                f"factor all_reduce {algorithm} none 1048576={factor}" for algorithm, factor in factors.items())
            status, said, warned = explain(*[self.write(self.folder / "figures", text)] * RANKS)
            self.assertEqual(status, [0, 0], warned)
            return re.search(r"(?m)^\* (\S+)", said)[1], "measured to take" in said
        slow = dict.fromkeys(("direct", "ring", "halving", "tree", "tree:shape=double", "hierarchy", "oneshot", "doubling"), 40)
        for algorithm in ("halving", "tree", "oneshot"):
            self.assertEqual(choice(2, {**slow, algorithm: 0.1}), (algorithm, True))
        usual, _ = choice(1, {})
        self.assertEqual(choice(1, {**slow, "tree": 0.1}), (usual, False), "another job's")

    def test_a_job_has_figures_of_its_own(self):
        for hosts, rate in ((2, "2.5 GB/s"), (1, "1.17 GB/s")):
            figures = self.write(self.folder / "figures", f"far bytes_per_ns=1.17\njob ranks=2 hosts={hosts} model=3\nfar bytes_per_ns=2.5")
            self.assertIn(f" {rate} for all of a host", explain(*[figures] * RANKS)[1])

    def test_what_rests_on_another_model_is_left_out_with_one_warning(self):
        for model in ("", " model=0", " model=77"):
            figures = self.write(self.folder / "figures", f"far bytes_per_ns=1.17\njob ranks=2 hosts=2{model}\nfar bytes_per_ns=2.5\n"
                                 "factor all_reduce tree none 1048576=0.05")
            status, said, warned = explain(*[figures] * RANKS)
            self.assertEqual(status, [0, 0], warned)
            self.assertIn(MEASURED, said)
            self.assertNotIn("measured to take", said)
            self.assertEqual("".join(warned).count("says nothing of 1 job any more, "), 1, warned)

    def test_settings_come_first(self):
        figures = self.write(self.folder / "figures", "far bytes_per_ns=1.17")
        _, said, _ = explain(*[{**figures, "QCCL_LINK_RATE": "3GB/s"}] * RANKS)
        self.assertIn(" 3 GB/s for all of a host", said)

    def test_the_cache_directory_serves_where_nothing_is_said(self):
        self.write(self.cached, "far bytes_per_ns=1.17")
        self.assertIn(MEASURED, explain(self.cache)[1])
        self.assertIn(UNKNOWN, explain({**self.cache, "QCCL_CALIBRATION": "off"})[1])
        said = subprocess.run([INFO, "devices"], env=environment(**self.cache), capture_output=True, text=True, check=True).stdout
        self.assertIn(f"  calibration: {self.cached}\n", said)

    def test_figures_of_another_machine_are_left_alone_with_one_warning(self):
        figures = self.write(self.folder / "figures", "far bytes_per_ns=1.17", machine="a mainframe, 1 core")
        status, said, warned = explain(*[figures] * RANKS)
        self.assertEqual(status, [0, 0], warned)
        self.assertIn(UNKNOWN, said)
        sentence = f"is not used: it was measured on another machine (a mainframe, 1 core), and this is {self.machine}\n"
        self.assertEqual("".join(warned).count(sentence), 1, warned)

    def test_what_cannot_be_read_is_refused_by_all_ranks(self):
        path = self.folder / "figures"
        for text, reason in (("qccl-calibration version=1\nmachine m\nfar bytes_per_ns=0", "line 3: bytes_per_ns is \"0\"; expected a number"),
                             ("{}", "it is no calibration"), ("x" * 1100000, "more than the 1048576 possible"), (None, "it cannot be read")):
            path.unlink(missing_ok=True)
            if text is not None:
                path.write_text(text)
            status, _, warned = explain({"QCCL_CALIBRATION": str(path)})
            self.assertNotIn(0, status)
            for said in warned:
                self.assertIn(f"QCCL_CALIBRATION: {path}: ", said)
                self.assertIn(reason, said)

    def test_a_damaged_file_of_the_cache_is_left_alone(self):
        self.cached.write_text("qccl-calibration version=1\nfar")
        status, said, warned = explain(self.cache)
        self.assertEqual(status, [0, 0], warned)
        self.assertIn(UNKNOWN, said)
        self.assertIn(f"{self.cached} is not used: line 2: it gives no figure", warned[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
