"""Communicators of MPI's in Fortran: the sources that QCCL installs for that, compiled and started with every MPI that is here.

usage: fortran_mpi_test.py SOURCE_ROOT BUILD_ROOT MODULES LIBRARY FORTRAN_LIBRARY
MODULES: the folder of the .mod files
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD, MODULES, LIBRARY, FORTRAN_LIBRARY = (pathlib.Path(word).resolve() for word in sys.argv[1:])
BINDING, TESTS = ROOT / "bindings/fortran", ROOT / "tests/bindings/fortran"
STRICT = ["-Wall", "-Wextra", "-Werror"]

# Name, compilers of C and Fortran, and what starts N processes.
FAMILIES = (
    ("Open MPI", "mpicc.openmpi", "mpifort.openmpi", ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"]),
    ("MPICH", "mpicc.mpich", "mpifort.mpich", ["mpiexec.hydra", "-n"]),
)


class FortranCommunicators(unittest.TestCase):
    def run_in(self, folder, *command):
        environment = dict(os.environ, LD_LIBRARY_PATH=f"{LIBRARY.parent}:{FORTRAN_LIBRARY.parent}")
        done = subprocess.run([str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
                              check=False)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout}{done.stderr}")
        return done.stdout

    def check_family(self, cc, fc, start, *options):
        with tempfile.TemporaryDirectory(prefix="qccl_fortran_mpi_") as folder:
            self.run_in(folder, cc, *STRICT, f"-I{ROOT}/include", f"-I{BUILD}/include", "-c", BINDING / "fortran_mpi.c")
            self.run_in(folder, fc, *STRICT, "-std=f2018", *options, f"-I{MODULES}", BINDING / "qccl_mpi.F90", TESTS / "fortran_checks.f90",
                        TESTS / "fortran_mpi_world.F90", "fortran_mpi.o", "-o", "program", FORTRAN_LIBRARY, LIBRARY)
            for ranks in (1, 3):
                said = self.run_in(folder, *start, ranks, "./program")
                self.assertEqual(said.count(" checks, 0 failed\n"), ranks, said)

    def check_every_family(self, *options):
        """That a family is missing is said."""
        for name, cc, fc, start in FAMILIES:
            with self.subTest(name):
                lacking = [tool for tool in (cc, fc, start[0]) if shutil.which(tool) is None]
                if lacking:
                    self.skipTest(f"{name}: no {' and no '.join(lacking)}")
                self.check_family(cc, fc, start, *options)

    def test_handles_of_mpi_f08(self):
        self.check_every_family()

    def test_handles_that_are_integers(self):
        self.check_every_family("-DOLDER_MPI", "-DQCCL_NO_MPI_F08")


if __name__ == "__main__":
    os.environ.pop("QCCL_CODEC", None)
    unittest.main(argv=sys.argv[:1], verbosity=1)
