"""qccl-perf as one rank of a job that somebody else has started: by hand, by MPICH's mpiexec, by torchrun.

usage: perf_env_test.py QCCL_PERF
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from launchers import HERE_ALONE, RANKS, environment, free_port, launch, start_by_hand

PERF = sys.argv.pop(1)
SMALL = ["all_reduce", "-b", "4", "-e", "4K", "-f", "32", "-n", "5", "--codec", "none,int8"]


def ranks_by_hand(commands, size=RANKS, **more):
    """(exit status, standard output, standard error) of a process for each command."""
    port = free_port()
    environments = [environment(RANK=rank, WORLD_SIZE=size, MASTER_ADDR="localhost", QCCL_PORT=port, **more)
                    for rank in range(len(commands))]
    return start_by_hand([[PERF, *command] for command in commands], environments)


class OneOfSeveral(unittest.TestCase):
    def check_rows(self, text):
        rows = json.loads(text)["rows"]
        self.assertEqual({row["ranks"] for row in rows}, {RANKS})
        self.assertEqual(len(rows), 2 * 3 * 2)  # out of place and in place, sizes, codecs
        self.assertTrue(all(row["ranks_agree"] for row in rows), rows)

    def test_rank_0_of_a_job_by_hand_prints(self):
        ended = ranks_by_hand([[*SMALL, "--json", "-"]] * RANKS)
        self.assertEqual([status for status, _, _ in ended], [0] * RANKS, ended)
        self.check_rows(ended[0][1])
        self.assertEqual([said for _, said, _ in ended[1:]], [""] * (RANKS - 1))

    def test_settings_agree_by_value_and_disagree_as_they_are_written(self):
        def ended(**second):
            port = free_port()
            environments = [environment(RANK=rank, WORLD_SIZE=2, MASTER_ADDR="localhost", QCCL_PORT=port,
                                        **(second if rank else {"QCCL_LINK_RATE": "100G", "QCCL_ARENA": "16M"}))
                            for rank in range(2)]
            return start_by_hand([[PERF, *SMALL]] * 2, environments)

        self.assertEqual([status for status, _, _ in ended(QCCL_LINK_RATE="12.5GB/s", QCCL_ARENA="16384K")], [0, 0])
        said = "".join(complaint for _, _, complaint in ended(QCCL_LINK_RATE="10gbit", QCCL_ARENA="16M"))
        self.assertIn('QCCL_LINK_RATE: rank 1 has "10gbit", rank 0 has "100G"', said)
        said = "".join(complaint for _, _, complaint in ended(QCCL_LINK_RATE="100G", QCCL_ARENA="32M"))
        self.assertIn('QCCL_ARENA: rank 1 has "32M", rank 0 has "16M"', said)

    def test_ranks_of_two_hosts_pass_on_what_a_neighbour_lends(self):
        # Registered memory is read where it lies, by the rank beside it, which sends it on to another host.
        command = ["all_reduce", "-b", "2M", "-e", "2M", "-n", "2", "-R", "1", "--codec", "none,int8:min=0", "--algo", "ring,direct,hierarchy",
                   "--json", "-"]
        port = free_port()
        environments = [environment(RANK=rank, WORLD_SIZE=RANKS, MASTER_ADDR="localhost", QCCL_PORT=port, QCCL_HOSTID=f"host {rank // 2}",
                                    **HERE_ALONE)
                        for rank in range(RANKS)]
        ended = start_by_hand([[PERF, *command]] * RANKS, environments)
        if "there is no libqccl_ucx.so" in ended[0][2]:
            self.skipTest("built without UCX")
        self.assertEqual([status for status, _, _ in ended], [0] * RANKS, ended)
        rows = json.loads(ended[0][1])["rows"]
        self.assertEqual(len(rows), 2 * 2 * 3)
        self.assertEqual({row["transport"] for row in rows}, {"shm+ucx"})
        for row in rows:
            self.assertTrue(row["ranks_agree"], row)
            if row["codec"] == "none":
                self.assertEqual((row["nmse"] < 1e-12, row["nmse_predicted"]), (True, 0), row)
            else:  # by the tiers that there are
                self.assertAlmostEqual(row["nmse"] / row["nmse_predicted"], 1, delta=0.1, msg=row)

    def test_launchers_start_it(self):
        for name in ("hydra", "torchrun"):
            with self.subTest(name):
                with tempfile.TemporaryDirectory() as folder:
                    path = os.path.join(folder, "rows.json")
                    done = launch(name, PERF, *SMALL, "--json", path)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    self.assertEqual(done.stdout.count("# Collective test starting"), 1, done.stdout)
                    with open(path) as file:
                        self.check_rows(file.read())

    def test_what_the_job_decides_is_refused(self):
        for words, because in ((["all_reduce", "--ranks", "2"], "--ranks: is not possible where RANK and WORLD_SIZE are set"),
                               (["all_reduce", "-t", "2"], "is not possible where RANK and WORLD_SIZE are set"),
                               (["all_reduce", "--baseline", "mpi"], "start it as mpirun"),
                               (["demo"], "it starts its processes itself"),
                               (["codec"], "codecs are measured by one process"),
                               (["codec", "--device", "emulated:0"], "codecs are measured by one process")):
            (status, printed, said), = ranks_by_hand([words], 2)
            self.assertEqual((status, printed, said.count(because)), (2, "", 1), said)

    def test_ranks_that_cannot_be_are_refused(self):
        done = subprocess.run([PERF, *SMALL], env=environment(RANK=7, WORLD_SIZE=4), capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, "qccl-perf: RANK=7 cannot be with WORLD_SIZE=4: ranks count from 0 to 3\n")

    def test_one_rank_may_be_refused_for_all(self):
        ended = ranks_by_hand([["broadcast", "-r", "2", "-b", "4", "-e", "4"]] * 2, 2)
        self.assertEqual([status for status, _, _ in ended], [2, 2])
        self.assertEqual("".join(said for _, _, said in ended).count("--root 2 is none of the 2 ranks"), 1)

    def test_help_is_printed_once(self):
        ended = ranks_by_hand([["all_reduce", "--help"]] * 2, 2)
        self.assertEqual([(status, printed.count("--minbytes")) for status, printed, _ in ended], [(0, 1), (0, 0)])

    def test_a_job_of_one_is_no_job(self):
        (status, printed, _), = ranks_by_hand([[*SMALL, "--ranks", "3"]], 1)
        self.assertEqual(status, 0)
        self.assertIn("Rank  2", printed)


if __name__ == "__main__":
    unittest.main()
