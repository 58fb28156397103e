"""What the library says where a module beside it is missing, or finds no GPU: what to install, and how to build it.

usage: modules_test.py LIBRARY GPULESS_MODULE
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from launchers import HERE_ALONE, environment, free_port, start_by_hand

LIBRARY, GPULESS = (os.path.realpath(path) for path in sys.argv[1:3])
del sys.argv[1:3]
INVALID_ARGUMENT = 4
NO_FOLDER = {"LD_LIBRARY_PATH": ""}  # a build's own modules are in one

ALONE = """import ctypes, json, sys
qccl = ctypes.CDLL(sys.argv[1])
qccl.qcclGetLastError.restype = ctypes.c_char_p
comm = (ctypes.c_void_p * 1)()
result = qccl.qcclCommInitAll(comm, 1, (ctypes.c_char_p * 1)(sys.argv[2].encode()))
print(json.dumps([result, qccl.qcclGetLastError(None).decode()]))
"""
FROM_ENVIRONMENT = """import ctypes, json, sys
qccl = ctypes.CDLL(sys.argv[1])
qccl.qcclGetLastError.restype = ctypes.c_char_p
comm = ctypes.c_void_p()
result = qccl.qcclCommInitEnv(ctypes.byref(comm), None)
print(json.dumps([result, qccl.qcclGetLastError(None).decode()]))
"""


class Modules(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.library = shutil.copy(LIBRARY, os.path.join(self.folder.name, "libqccl.so"))  # without its modules

    def create(self, device):
        done = subprocess.run([sys.executable, "-c", ALONE, self.library, device], env=environment(**NO_FOLDER), capture_output=True,
                              text=True, timeout=120, check=True)
        return json.loads(done.stdout)

    def test_a_device_without_module_is_refused_with_how_to_build_it(self):
        for vendor in ("cuda", "hip", "emulated"):
            result, sentence = self.create(vendor + ":0")
            self.assertEqual(result, INVALID_ARGUMENT, sentence)
            self.assertRegex(sentence, rf"^there is no libqccl_{vendor}\.so; build it with -D{vendor}=enabled \(needs \w.*\)$")

    def test_a_module_that_cannot_be_loaded_is_refused_with_the_reason(self):
        with open(os.path.join(self.folder.name, "libqccl_cuda.so"), "w") as file:
            file.write("no library")
        result, sentence = self.create("cuda:0")
        self.assertEqual(result, INVALID_ARGUMENT, sentence)
        self.assertRegex(sentence, r"^libqccl_cuda\.so cannot be loaded: .*/libqccl_cuda\.so: \w")
        self.assertNotIn("enabled", sentence)

    def test_a_device_of_a_machine_without_driver_is_refused(self):
        shutil.copy(GPULESS, os.path.join(self.folder.name, "libqccl_cuda.so"))
        self.assertEqual(self.create("cuda:0"), [INVALID_ARGUMENT, "cuda: there is no GPU: there is no driver"])

    def test_ranks_of_two_hosts_without_network_are_told_what_to_install(self):
        port = free_port()
        environments = [environment(RANK=rank, WORLD_SIZE=2, MASTER_ADDR="localhost", QCCL_PORT=port, QCCL_HOSTID=f"host {rank}",
                                    **HERE_ALONE, **NO_FOLDER) for rank in range(2)]
        for status, said, complaint in start_by_hand([[sys.executable, "-c", FROM_ENVIRONMENT, self.library]] * 2, environments):
            self.assertEqual(status, 0, complaint)
            result, sentence = json.loads(said)
            self.assertNotEqual(result, 0)
            for words in ("there is no libqccl_ucx.so", "libucx0", "libucx-dev; meson configure build -Ducx=enabled"):
                self.assertIn(words, sentence)


if __name__ == "__main__":
    unittest.main()
