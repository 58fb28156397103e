"""QCCL_PLAN_FILE of ranks that are processes: all need the same rules, however each writes them, and bytes do not depend on how a
plan cuts calls.

usage: plan_file_ranks_test.py RESULTS
"""
import pathlib
import sys
import tempfile
import unittest

from launchers import environment, free_port, start_by_hand

RESULTS = sys.argv[1]
RANKS = 2


class PlanFiles(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def plan(self, name, *lines):
        path = self.folder / name
        path.write_text("\n".join(("qccl-plan version=1", *lines)) + "\n")
        return path

    def run_ranks(self, *words, **of_ranks):
        """(exit status, what it printed, its errors) of each rank, with the variable's value for each."""
        port = free_port()
        environments = [environment(RANK=rank, WORLD_SIZE=RANKS, MASTER_ADDR="localhost", QCCL_PORT=port,
                                    **{name: values[rank] for name, values in of_ranks.items() if values[rank]})
                        for rank in range(RANKS)]
        return start_by_hand([[RESULTS, *words]] * RANKS, environments)

    def test_ranks_need_the_same_rules(self):
        ours = self.plan("ours", "job ranks=2", "algorithm=tree @bytes>=1K")
        same = self.plan("same", "# in other words", "job ranks=2", "", "algorithm=tree   @bytes>1023")
        other = self.plan("other", "job ranks=2", "algorithm=tree @bytes>=2K")
        another_job = self.plan("another", "job ranks=3", "algorithm=tree @bytes>=1K")
        for files, sentence in (((ours, same), None), ((ours, other), "QCCL_PLAN_FILE: rank 1 has"), ((ours, None), "rank 1 has \"none\""),
                                ((ours, another_job), "QCCL_PLAN_FILE: rank 1 has"), ((ours, self.folder / "none"), "it cannot be read"),
                                ((another_job, another_job), "it is the plan of another job: of 3 ranks")):
            ended = self.run_ranks("1000", "@none", QCCL_PLAN_FILE=files)
            for status, _, said in ended:
                self.assertEqual(status, 0 if sentence is None else 1, ended)
                self.assertIn(sentence or "", said)

    def test_cuts_do_not_change_bytes(self):
        words = ["70001", "ring@none", "direct@int4", "tree@int8:round=stochastic"]
        usual = self.run_ranks(*words)
        self.assertEqual([status for status, _, _ in usual], [0] * RANKS, usual)
        for wish in ("parts=1", "parts=7 lanes=3", "segment=1K lanes=1", "parts=100000 lanes=9"):
            cut = self.run_ranks(*words, QCCL_PLAN_FILE=[self.plan("cut", wish)] * RANKS)
            self.assertEqual([said[:2] for said in cut], [said[:2] for said in usual], (wish, cut))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
