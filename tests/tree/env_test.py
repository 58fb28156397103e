"""Communicators from a launcher's variables: the example, started by hand and by every launcher that is here.

usage: env_test.py SOURCE_ROOT BUILD_FOLDER LIBRARY CC...
"""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

from launchers import LAUNCHERS, RANKS, environment, free_port, launch, start_by_hand

ROOT, BUILD, LIBRARY = (pathlib.Path(word) for word in sys.argv[1:4])
CC = sys.argv[4:]


class ByVariables(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="qccl_env_")
        cls.program = os.path.join(cls.folder.name, "sum_env")
        subprocess.run([*CC, "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include",
                        f"-I{BUILD}/include", ROOT / "examples/sum_env.c", "-o", cls.program, LIBRARY,
                        f"-Wl,-rpath,{LIBRARY.parent}"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def check_sums(self, text, ranks=RANKS):
        self.assertEqual(sorted(text.splitlines()), sorted(
            f"{what}: rank {rank} of {ranks} has 0 wrong values" for what in ("first", "second") for rank in range(ranks)))

    def by_hand(self, *environments):
        """(exit status, standard output, standard error) of one process for each."""
        return start_by_hand([[self.program]] * len(environments), environments)

    def check_by_hand(self, *environments):
        ended = self.by_hand(*environments)
        self.assertEqual([status for status, _, _ in ended], [0] * len(environments), ended)
        self.check_sums("".join(said for _, said, _ in ended), len(environments))

    def test_started_by_hand(self):
        port = free_port()
        for variables in ({"MASTER_ADDR": "localhost", "QCCL_PORT": port}, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port - 1}):
            self.check_by_hand(*(environment(RANK=rank, WORLD_SIZE=RANKS, **variables) for rank in range(RANKS)))

    def test_as_srun_starts_them(self):
        for number, nodes in enumerate(({"SLURM_NNODES": 1, "SLURM_JOB_NODELIST": "no-such-node[1-2]"},
                                        {"SLURM_NNODES": 2, "SLURM_STEP_NODELIST": f"{socket.gethostname()},other[1-3]"},
                                        {"SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1"})):
            self.check_by_hand(*(environment(SLURM_PROCID=rank, SLURM_NTASKS=3, SLURM_JOB_ID=os.getpid(), SLURM_STEP_ID=number,
                                             **nodes) for rank in range(3)))

    def test_with_a_secret_file(self):
        path = os.path.join(self.folder.name, "secret")
        with open(path, "wb") as file:
            file.write(os.urandom(32))
        variables = {"WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "QCCL_PORT": free_port(), "QCCL_SECRET_FILE": path}
        os.chmod(path, 0o600)
        self.check_by_hand(*(environment(RANK=rank, **variables) for rank in range(2)))
        os.chmod(path, 0o644)
        (status, _, said), = self.by_hand(environment(RANK=1, **variables))
        self.assertEqual(status, 1)
        self.assertIn(f"QCCL_SECRET_FILE: {path} can be read or written by others (mode 644), so it is not secret; chmod o= {path}", said)

    def test_what_is_missing_is_said(self):
        for variables, because in (({}, "no launcher has said which rank this is"), ({"RANK": 1}, "RANK is set, but not WORLD_SIZE"),
                                   ({"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "x"}, "neither QCCL_PORT nor MASTER_PORT"),
                                   ({"RANK": 0, "WORLD_SIZE": 2, "QCCL_PORT": 70000}, "QCCL_PORT=70000: expected a port"),
                                   ({"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "QCCL_PORT": free_port(), "QCCL_SOCKET_IFNAME": "nowhere0"},
                                    'QCCL_SOCKET_IFNAME: "nowhere0" is neither')):
            (status, _, said), = self.by_hand(environment(**variables))
            self.assertEqual((status, said.count(because)), (1, 1), said)

    def test_started_by_launchers(self):
        for name in LAUNCHERS:
            with self.subTest(name):
                done = launch(name, self.program)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.check_sums(done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
