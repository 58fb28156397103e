"""Which GPUs of NVIDIA the kernels are compiled for: those that the nvcc at hand makes code for. Each nvcc here only says what it knows.

usage: gpu_targets_test.py SOURCE_ROOT MESON
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT, MESON = sys.argv[1:]
LEAST = [f"-D{name}=disabled" for name in ("hip", "emulated", "ucx", "mpi", "python", "fortran", "docs")] + ["-Dtests=false", "-Dperf=false"]


class Targets(unittest.TestCase):
    def configure(self, known, *options, compiles=True):
        """(exit status, what meson says, the targets in the build file) with an nvcc that knows those."""
        with tempfile.TemporaryDirectory() as folder:
            nvcc = pathlib.Path(folder) / "nvcc"
            listed = "\\n".join(f"compute_{target}" for target in known)
            nvcc.write_text(f"#!/bin/sh\n[ \"$*\" != --list-gpu-arch ] || {{ printf '{listed}\\n'; exit 0; }}\n"
                            + ("" if compiles else "echo 'unsupported GNU version!' >&2; exit 1\n"))
            nvcc.chmod(0o755)
            done = subprocess.run([MESON, "setup", f"{folder}/build", ROOT, *LEAST, *options], capture_output=True, text=True,
                                  timeout=250, env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
            build = pathlib.Path(folder) / "build/build.ninja"
            text = build.read_text() if build.exists() else ""
        line = next((line for line in text.splitlines() if "codec_kernels_cuda.txt" in line and "-gencode" in line), "")
        return done.returncode, done.stdout, re.findall(r"-gencode '?arch=(\S+?)'? ", line)

    def test_all_that_it_knows(self):
        status, said, targets = self.configure([75, 80, 86, 90, 100, 120])
        self.assertEqual(status, 0, said)
        self.assertEqual(targets, ["compute_80,code=sm_80", "compute_90,code=sm_90", "compute_100,code=[sm_100,compute_100]"])

    def test_an_older_one_leaves_newer_gpus_to_ptx(self):
        status, said, targets = self.configure([50, 80, 90], "-Dcuda=enabled")
        self.assertEqual(status, 0, said)
        self.assertEqual(targets, ["compute_80,code=sm_80", "compute_90,code=[sm_90,compute_90]"])

    def test_those_that_are_asked_for(self):
        self.assertEqual(self.configure([80, 90, 100], "-Dnvidia_targets=90")[2], ["compute_90,code=[sm_90,compute_90]"])

    def test_one_that_is_of_no_use_is_left_out_unless_it_is_insisted_on(self):
        for known, compiles, why in (([35, 50], True, "nvcc makes code for none of 80, 90, 100"),
                                     ([80, 90], False, "nvcc does not work: unsupported GNU version!")):
            status, said, targets = self.configure(known, compiles=compiles)
            self.assertEqual((status, targets), (0, []), said)
            self.assertIn(f"NVIDIA GPUs: {why}; their kernels are not compiled", said)
            status, said, _ = self.configure(known, "-Dcuda=enabled", compiles=compiles)
            self.assertNotEqual(status, 0)
            self.assertIn(f"cuda: {why}", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
