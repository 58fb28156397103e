"""The examples for GPUs, compiled as their first lines say and run on GPUs that the CPU plays.

usage: gpu_examples_test.py SOURCE_ROOT BUILD_FOLDER LIBRARY
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from launchers import environment, free_port, start_by_hand

ROOT, BUILD, LIBRARY = (pathlib.Path(word) for word in sys.argv[1:4])


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="qccl_examples_")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def compiled(self, source, *compiler):
        program = os.path.join(self.folder.name, pathlib.Path(source).stem)
        subprocess.run([*compiler, "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", f"-I{BUILD}/include",
                        ROOT / "examples" / source, "-o", program, LIBRARY, LIBRARY.parent / "libqccl_emulated.so",
                        f"-Wl,-rpath,{LIBRARY.parent}", "-pthread"], check=True)
        return program

    def test_processes_in_c(self):
        program, port = self.compiled("sum_gpu.c", "cc", "-std=c99", "-D_POSIX_C_SOURCE=200809L"), free_port()
        for devices, numbers in ((["emulated:0", "emulated:1"], ("RANK", "WORLD_SIZE")), (["emulated:1"], ("RANK", "WORLD_SIZE")),
                                 (["emulated:0", "emulated:1"], ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")),
                                 (["emulated:0", "emulated:1"], ("SLURM_PROCID", "SLURM_NTASKS"))):
            ended = start_by_hand([[program, *devices]] * 3,
                                  [environment(**dict(zip(numbers, (rank, 3))), MASTER_ADDR="localhost", QCCL_PORT=port)
                                   for rank in range(3)])
            self.assertEqual([status for status, _, _ in ended], [0] * 3, ended)
            self.assertEqual([said for _, said, _ in ended],
                             [f"rank {rank} of 3 on {devices[rank % len(devices)]} has 0 wrong values\n" for rank in range(3)])
        for devices in ([], ["host"], ["emulated:0", "host"], ["cuda:0"]):
            refused = subprocess.run([program, *devices], capture_output=True, text=True, env=environment(RANK=0, WORLD_SIZE=1))
            self.assertEqual(refused.returncode, 2, devices)
            self.assertIn("emulated:N...   (every device must be an emulated:N)\n", refused.stderr)
        self.assertEqual(subprocess.run([program, "emulated:0"], capture_output=True, env=environment()).returncode, 2)

    def test_threads_in_cpp(self):
        program = self.compiled("sum_threads.cpp", "c++", "-std=c++17")
        for devices in (["emulated:0", "emulated:1", "emulated:1"], ["emulated:4"]):
            for variables in ({}, {"QCCL_CODEC": "int8"}):
                done = subprocess.run([program, *devices], capture_output=True, text=True, timeout=100, env=environment(**variables))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(sorted(done.stdout.splitlines()),
                                 [f"rank {rank} on {device} has 0 wrong values" for rank, device in enumerate(devices)])
        for devices, because in ((["hots", "host"], '"hots"'), (["emulated:0", "emulated:99"], "emulated:99: this machine has 8 GPUs")):
            refused = subprocess.run([program, *devices], capture_output=True, text=True, timeout=100, env=environment())
            self.assertEqual(refused.returncode, 1, devices)
            self.assertIn(because, refused.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
