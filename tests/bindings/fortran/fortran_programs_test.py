"""The test programs of the Fortran binding, as ranks that are started by hand, and what a program without ierror does.

usage: fortran_programs_test.py BUILD_FOLDER   the folder of the programs
"""
import pathlib
import sys
import unittest

import launchers

PROGRAMS = pathlib.Path(sys.argv[1])


def run_ranks(program, ranks, *arguments, **more):
    """(exit status, standard output, standard error) of each rank."""
    port = launchers.free_port()
    environments = [launchers.environment(RANK=rank, WORLD_SIZE=ranks, MASTER_ADDR="localhost", QCCL_PORT=port, **more)
                    for rank in range(ranks)]
    return launchers.start_by_hand([[PROGRAMS / program, *arguments]] * ranks, environments, ends_with_first_failure=True)


class FortranPrograms(unittest.TestCase):
    def pass_all_checks(self, program, ranks, **more):
        for status, said, errors in run_ranks(program, ranks, **more):
            self.assertEqual(status, 0, f"{program}, {ranks} ranks\n{said}{errors}")
            self.assertRegex(said, r"(?m)^[1-9]\d* checks, 0 failed$")

    def test_every_collective_of_every_type(self):
        for ranks in (2, 3, 4):
            self.pass_all_checks("fortran_collectives", ranks)

    def test_refusals(self):
        for ranks in (2, 3):
            self.pass_all_checks("fortran_refusals", ranks)

    def test_settings(self):
        for ranks in (2, 3):
            self.pass_all_checks("fortran_settings", ranks, QCCL_DEBUG="info")

    def test_objects(self):
        for ranks in (3, 4):
            self.pass_all_checks("fortran_objects", ranks)


class WithoutIerror(unittest.TestCase):
    def check_stop(self, which, sentence):
        (status, said, errors), = run_ranks("fortran_stop", 1, which)
        self.assertEqual(status, 1, errors)
        self.assertRegex(errors, rf"(?m)^ERROR STOP {sentence}")
        self.assertEqual(said, "")

    def test_errors_stop_the_program(self):
        self.check_stop("binding", "qcclAllReduce: recv has 6 elements, and the call needs 5")
        self.check_stop("library", "qcclCodecCreate: .*abacus")
        self.check_stop("creation", "qcclCommInitEnv: .*abacus:0")

    def test_no_error_stops_nothing(self):
        (status, said, errors), = run_ranks("fortran_stop", 1, "nothing")
        self.assertEqual((status, said), (0, "the program went on\n"), errors)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
