"""The examples that solve a linear system with an encoded exchange come to the same residual with each codec, in C and Fortran.

usage: cg_examples_test.py SOURCE_ROOT LIBRARY C_PROGRAM [FORTRAN_LIBRARY MODULES FC]
C_PROGRAM: the example in C; MODULES: the folder of the .mod files; FC: the compiler
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import launchers

ROOT, LIBRARY, C_PROGRAM = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
FORTRAN = sys.argv[4:]
SOURCE = (ROOT / "examples/cg.f90").read_text()
TOLERANCE = 1e-8  # both examples stop there
ROW = re.compile(r"^(\w+)(?::min=0)? +(\d+) +([\d.]+) +([\d.]+E[-+]\d+)$", re.M | re.I)
# The residual of what the ranks have as x: their own columns alone, gathered without a codec.
WITNESS = """z(:, a:e) = x(:, a:e); call qcclAllGather(QCCL_IN_PLACE, z(:, 1:n), comm)
w = capacity - diagonal * z(:, a:e) + z(:, a-1:e-1) + z(:, a+1:e+1) + eoshift(z(:, a:e), 1) + eoshift(z(:, a:e), -1)
s(1) = sum(w**2); call qcclAllReduce(QCCL_IN_PLACE, s(1), comm)
"""
END = "    call system_clock(now)"


def run_ranks(program, ranks):
    port = launchers.free_port()
    environments = [launchers.environment(RANK=rank, WORLD_SIZE=ranks, MASTER_ADDR="localhost", QCCL_PORT=port,
                                          LD_LIBRARY_PATH=LIBRARY.parent) for rank in range(ranks)]
    return launchers.start_by_hand([[program]] * ranks, environments, ends_with_first_failure=True)


class Example(unittest.TestCase):
    def compiled(self, source):
        if not FORTRAN:
            self.skipTest("no Fortran compiler")
        library, modules, compiler = FORTRAN
        folder = tempfile.TemporaryDirectory(prefix="qccl_cg_")
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name, "cg.f90")
        path.write_text(source)
        subprocess.run([compiler, "-std=f2018", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{modules}", path, "-o", path.with_suffix(""),
                        library, LIBRARY, f"-Wl,-rpath,{pathlib.Path(library).resolve().parent}"], check=True)
        return path.with_suffix("")

    def check_table(self, program, ranks):
        outcomes = run_ranks(program, ranks)
        for rank, (status, said, errors) in enumerate(outcomes):
            self.assertEqual(status, 0, errors)
            self.assertEqual(said == "", rank > 0)
        rows = {codec: (int(steps), float(residual)) for codec, steps, _, residual in ROW.findall(outcomes[0][1])}
        self.assertEqual(list(rows), ["none", "bf16", "int8"], outcomes[0][1])
        for codec, (steps, residual) in rows.items():
            self.assertTrue(0 < residual <= 1.001 * TOLERANCE, f"{codec}: {residual}")
            self.assertLessEqual(steps, 1.2 * rows["none"][0], f"{codec}: {rows}")
        for codec in ("bf16", "int8"):  # it was used
            self.assertEqual(rows[codec][0] > rows["none"][0], ranks > 1, rows)

    def test_fortran_converges_with_each_codec(self):
        self.assertEqual(SOURCE.count(END), 1)
        plain, with_witness = self.compiled(SOURCE), self.compiled(SOURCE.replace(END, WITNESS + END))
        for ranks in (1, 2, 4):
            self.check_table(plain, ranks)
            self.check_table(with_witness, ranks)

    def test_c_converges_with_each_codec(self):
        for ranks in (1, 2, 4):
            self.check_table(C_PROGRAM, ranks)

    def check_refused(self, program, why):
        outcomes = run_ranks(program, 7)  # the first that ends with an error ends the others
        self.assertNotIn(0, [status for status, _, _ in outcomes])
        self.assertTrue(any(why in errors for _, _, errors in outcomes), outcomes)

    def test_the_number_of_ranks_divides_the_points(self):
        self.check_refused(C_PROGRAM, "the number of ranks has to divide 240")
        self.check_refused(self.compiled(SOURCE), "recv has 57600 elements")

    def test_fortran_is_short(self):
        self.assertLessEqual(sum(not line.strip().startswith("!") for line in SOURCE.splitlines() if line.strip()), 25)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
