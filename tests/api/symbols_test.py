"""What the library exports: header == map == nm, and every function has its twin for tools.

usage: symbols_test.py SOURCE_ROOT LIBRARY
"""
import pathlib
import re
import subprocess
import sys
import unittest

ROOT, LIBRARY = pathlib.Path(sys.argv[1]), sys.argv[2]


def declared():
    """Functions of qccl.h."""
    header = re.sub(r"/\*.*?\*/", "", (ROOT / "include/qccl/qccl.h").read_text(), flags=re.S)
    return set(re.findall(r"^QCCL_API\b[^;(]*?\b(\w+)\(", header, flags=re.M))


def twins():
    return set(re.findall(r"^QCCL_TWIN_OF\((\w+)\);", (ROOT / "include/qccl/tools.h").read_text(), flags=re.M))


def mapped():
    """Symbol -> node of the version script."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "lib/qccl.map").read_text(), flags=re.S)
    symbols = {}
    for node, body in re.findall(r"(QCCL_[\d.]+)\s*\{(.*?)\}", text, flags=re.S):
        for symbol in re.findall(r"\b(\w+);", body.split("local:")[0].replace("global:", "")):
            if symbol in symbols:
                raise AssertionError(f"{symbol} stands in {symbols[symbol]} and {node}")
            symbols[symbol] = node
    return symbols


def exported():
    """Symbol -> node, as the dynamic linker sees them."""
    listing = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions", LIBRARY],
                             check=True, capture_output=True, text=True).stdout
    symbols = {}
    for line in listing.splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":  # the nodes themselves
            symbol, _, node = name.partition("@@")
            symbols[symbol] = node
    return symbols


class Symbols(unittest.TestCase):
    def test_there_is_a_header(self):
        self.assertGreater(len(declared()), 30)
        self.assertIn("qcclAllReduce", declared())

    def test_every_function_has_a_twin(self):
        self.assertEqual(twins(), declared())

    def test_map_is_header_and_twins(self):
        self.assertEqual(set(mapped()), declared() | {"p" + name for name in declared()})

    def test_library_is_map(self):
        self.assertEqual(exported(), mapped())

    def test_nothing_heavy_is_needed(self):
        dynamic = subprocess.run(["readelf", "-dW", LIBRARY], check=True, capture_output=True, text=True).stdout
        needed = re.findall(r"NEEDED.*\[(.*?)\]", dynamic)
        for library in needed:
            self.assertRegex(library, r"^(lib(c|m|gcc_s|stdc\+\+|pthread|sodium|hwloc|hwy|[a-z]*san)\.so|ld-linux)")
        self.assertRegex(dynamic, r"SONAME.*\[libqccl\.so\.0\]")
        self.assertIn("NODELETE", dynamic)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
