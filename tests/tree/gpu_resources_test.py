"""No kernel of a GPU has more values at hand than registers: what compilers say of each, read from their reports.

usage: gpu_resources_test.py REPORT...

A value that does not fit into registers goes to memory and back, at the cost of what the kernel is there for. A stack frame
may also be the only sign that nvcc takes the address of a constant of the host, which no GPU has. AMD's scalar
registers are another matter: they are kept in vector registers where they are too many, and touch no memory.
"""
import pathlib
import re
import sys
import unittest

KERNEL = re.compile(r"_ZN4qccl3gpu\d+(\w+?)ENS_5BatchE")
# One line for each kernel, beside it the lines that say what it needs.
NVIDIA = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'(.*?)(?=Compiling entry|\Z)", re.S)
NVIDIA_MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
AMD = re.compile(r"Function Name: (\w+)(.*?)(?=Function Name|\Z)", re.S)
AMD_SPILLS, AMD_FRAME = re.compile(r"VGPRs Spill: (\d+)"), re.compile(r"ScratchSize \[bytes/lane\]: (\d+)")
# Rare sums of theirs need more bits than there are registers; nothing else does.
WITH_FRAME = {"fold_exact_float", "fold_exact_double"}


def kernels_of(report):
    """Name of each kernel, its target, and the bytes or values that it keeps in memory: those of its frame first."""
    text = report.read_text()
    for name, target, rest in NVIDIA.findall(text):
        yield name, target, [int(number) for found in NVIDIA_MEMORY.findall(rest)[:1] for number in found]
    for name, rest in AMD.findall(text):
        yield name, report.stem.split("_")[-1], [int(number) for found in (AMD_FRAME, AMD_SPILLS) for number in found.findall(rest)]


class Resources(unittest.TestCase):
    def test_registers_suffice(self):
        for report in REPORTS:
            seen = set()
            for name, target, in_memory in kernels_of(report):
                self.assertGreater(len(in_memory), 1, f"{target}: nothing is said of {name}")
                self.assertRegex(name, KERNEL)
                kind = KERNEL.search(name).group(1)
                if kind in WITH_FRAME:
                    in_memory = in_memory[1:]
                self.assertEqual(sum(in_memory), 0, f"{target}: {name} keeps {in_memory} in memory")
                seen.add(kind)
            for kind in ("fold_float", "encode_integer_float", "encode_minmax_float", "measure_minmax_double"):
                self.assertIn(kind, seen, f"{report.name} says nothing of {kind}")


if __name__ == "__main__":
    REPORTS = [pathlib.Path(argument) for argument in sys.argv[1:]]
    unittest.main(argv=sys.argv[:1])
