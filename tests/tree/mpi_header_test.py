"""Communicators from MPI's: programs that include <qccl/mpi.h>, compiled and started with every MPI that is here.

usage: mpi_header_test.py SOURCE_ROOT BUILD_FOLDER LIBRARY
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD, LIBRARY = (pathlib.Path(word) for word in sys.argv[1:])
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror"]

# Name, compilers of C and C++, and what starts N processes.
FAMILIES = (
    ("Open MPI", "mpicc.openmpi", "mpicxx.openmpi", ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n"]),
    ("MPICH", "mpicc.mpich", "mpicxx.mpich", ["mpiexec.hydra", "-n"]),
)


# UCX looks at all interfaces and fails if one of them goes meanwhile, as those of other tests' hosts do.
ENVIRONMENT = os.environ | {"UCX_NET_DEVICES": "lo"}


def run(*command, timeout=300):
    done = subprocess.run([str(word) for word in command], env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


class MpiCommunicators(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="qccl_mpi_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def with_every_family(self, body):
        """body(cc, cxx, start) for each that is installed; that one is missing is said."""
        for name, cc, cxx, start in FAMILIES:
            with self.subTest(name):
                lacking = [tool for tool in (cc, cxx, start[0]) if shutil.which(tool) is None]
                if lacking:
                    self.skipTest(f"{name}: no {' and no '.join(lacking)}")
                body(cc, cxx, start)

    def compiled(self, compiler, source, *options):
        # MPI's own header is not under test.
        shown = run(compiler, "-show").stdout.split()
        system = [word for flag in shown if flag.startswith("-I") for word in ("-isystem", flag[2:])]
        program = self.folder / "program"
        run(compiler, *system, *STRICT, *options, f"-I{ROOT}/include", f"-I{BUILD}/include", source, "-o", program,
            LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}")
        return program

    def test_the_example_sums(self):
        def check(cc, _, start):
            program = self.compiled(cc, ROOT / "examples/sum_mpi.c", "-std=c99")
            for ranks in (1, 4):
                lines = run(*start, ranks, program).stdout.splitlines()
                said = {line.split(":")[0] for line in lines}
                self.assertEqual(said, {"world", "even", "odd"} if ranks > 1 else {"world", "even"})
                self.assertEqual(len(lines), 2 * ranks)
                self.assertTrue(all(line.endswith("has 0 wrong values") for line in lines), lines)

        self.with_every_family(check)

    def test_cpp_takes_the_header(self):
        def check(_, cxx, start):
            source = self.folder / "program.cpp"
            source.write_text((ROOT / "examples/sum_mpi.c").read_text())
            program = self.compiled(cxx, source, "-std=c++20", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX")
            self.assertEqual(run(*start, 2, program).stdout.count("has 0 wrong values"), 4)

        self.with_every_family(check)

    def test_misuse_ends_in_results(self):
        def check(cc, _, start):
            program = self.compiled(cc, ROOT / "tests/tree/mpi_misuse.c", "-std=c11")
            run(*start, 3, program, timeout=120)

        self.with_every_family(check)


if __name__ == "__main__":
    os.environ.pop("QCCL_CODEC", None)
    unittest.main(argv=sys.argv[:1], verbosity=1)
