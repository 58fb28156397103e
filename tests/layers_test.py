"""Includes point down only, vendors' words stay in their rooms, and a type's name stands once.

usage: layers_test.py SOURCE_ROOT
"""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1])
SOURCES = (".c", ".cpp", ".cu", ".h", ".hpp", ".in")

# What each layer may know beside itself and the standard library. A layer that is not named may include nothing.
MAY_KNOW = {
    "lib/base": [],
    "lib/schedule": ["lib/base"],
    "lib/coll": ["lib/base", "lib/schedule"],
    "lib/codec": ["lib/base"],
    "lib/plan": ["lib/base", "lib/schedule", "lib/coll", "lib/codec"],
    "kernels": ["lib/base", "lib/codec", "include/qccl/emulated.h"],
    "lib/device": ["lib/base", "lib/codec", "kernels"],
    "lib/record": ["lib/base"],
    "lib/trace": ["lib/base", "lib/record"],
    "lib/transport": ["lib/base", "lib/record"],
    "lib/engine": ["lib/base", "lib/schedule", "lib/codec", "lib/device", "lib/record", "lib/trace", "lib/transport", "kernels"],
    "bootstrap": ["lib/base"],
    "topology": ["lib/base", "lib/schedule", "lib/coll", "lib/plan"],
    "lib/api": ["lib/base", "lib/schedule", "lib/coll", "lib/codec", "lib/plan", "lib/device", "lib/record", "lib/trace", "lib/transport",
                "lib/engine", "kernels", "bootstrap", "topology", "include"],
    "include": ["include"],
}
# No threads, clocks, environment, sockets or devices: their tests need nothing else.
PURE = ["lib/schedule", "lib/coll", "lib/plan", "lib/codec", "lib/record", "topology/graph", "topology/gpu_links", "topology/cpu_set", "topology/hwloc_tree", "topology/hwloc_xml"]
IMPURE = re.compile(r"<(thread|mutex|condition_variable|atomic|future|semaphore|latch|barrier|stop_token|chrono|ctime|time\.h|"
                    r"pthread\.h|unistd\.h|sched\.h|fcntl\.h|poll\.h|sys/.*|netinet/.*|arpa/.*|linux/.*|hwloc.*|cuda.*|hip.*|ucp/.*|mpi\.h)>|"
                    r"\b(getenv|environ|clock_gettime)\b")
VENDOR = re.compile(r"\b(cuda|hip|rocm|hsa|cu|nv)_?[A-Z]\w*|\b(CUDA|HIP|CU|ROCM)_\w+|\b(cuda|hip|rocm)\b")
VENDOR_ROOMS = ("kernels/port.hpp", "kernels/module.cu", "kernels/runtime_cuda.hpp", "kernels/runtime_hip.hpp", "lib/device/loader.cpp")
PORT = "kernels/port.hpp"
BIT_COUNTS = re.compile(r"\bstd::(count[lr]_(zero|one)|popcount|bit_(width|floor|ceil)|has_single_bit|rot[lr])\b|\b__builtin_(ctz|clz|popcount|ffs)\w*")
SCOPE = re.compile(r"\n|\{|\}|\bnamespace\b([\w\s:]*)\{|"
                   r"\b(?:struct|class|union|enum(?:\s+class)?)\s+(?:alignas\([^()]*\)\s*)?(\w+)\s*(?:final\s*)?"
                   r"(?::(?!:)[^;{}()=]*)?\{")
HWLOC = re.compile(r"#\s*include\s*[<\"]hwloc(\.h|/)")
HWLOC_ROOM = "topology/hwloc_source.cpp"
MPI = re.compile(r"\bP?MPI_[A-Z]\w*|<mpi\.h>")
MPI_ROOMS = ("include/qccl/mpi.h", "bindings/mpi/", "perf/baseline_mpi.cpp", "perf/comparison/allreduce_mpi.c", "examples/",
             "tests/")


def sources():
    for folder in ("include", "lib", "kernels", "bootstrap", "topology", "bindings", "perf", "examples", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in SOURCES:
                yield path.relative_to(ROOT).as_posix()


def text_of(path):
    return (ROOT / path).read_text(errors="replace")


def code_of(path):
    """Without comments and string literals, line by line."""
    blank = lambda match: "\n" * match.group(0).count("\n")
    text = re.sub(r"/\*.*?\*/", blank, text_of(path), flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r'(?<!include )"(\\.|[^"\\\n])*"', '""', text)


def types_in(code):
    """(line number, name with its namespace) of each type that `code` defines outside functions and other types.

    What one file alone can see (in an anonymous namespace) is left out.
    """
    opened, number = [], 1  # opened: a name for each brace that a named namespace opened, None for others
    for match in SCOPE.finditer(code):
        text, namespace, name = match.group(0), match.group(1), match.group(2)
        if text == "}":
            del opened[-1:]
        elif name and all(opened):
            yield number, "::".join(opened + [name])
        if text.endswith("{"):
            opened.append(namespace.strip() or None if namespace is not None else None)
        number += text.count("\n")


def layer_of(path):
    for layer in sorted(MAY_KNOW, key=len, reverse=True):
        if path.startswith(layer + "/"):
            return layer
    return None


def included_by(path):
    """(line number, path from the root) of each of the project's files that `path` includes."""
    for number, line in enumerate(text_of(path).splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*["<]([^">]+)[">]', line)
        if not match:
            continue
        for root in ("", "lib/", "include/", str(pathlib.PurePosixPath(path).parent) + "/"):
            if (ROOT / (root + match.group(1))).is_file():
                yield number, root + match.group(1)
                break


class Layers(unittest.TestCase):
    def complain(self, found, what):
        self.assertFalse(found, what + ":\n  " + "\n  ".join(found))

    def test_there_are_sources(self):
        self.assertGreater(len(list(sources())), 20)

    def test_includes_point_down(self):
        found = []
        for path in sources():
            layer = layer_of(path)
            if layer is None:
                continue
            for number, target in included_by(path):
                known = layer_of(target)
                allowed = MAY_KNOW[layer] + [layer]
                if known is not None and not any(target.startswith(room) for room in allowed):
                    found.append(f"{path}:{number} includes {target}")
        self.complain(found, "includes that do not point down")

    def test_the_pure_half_is_pure(self):
        found = []
        for path in sources():
            if not any(path.startswith(room) for room in PURE):
                continue
            for number, line in enumerate(code_of(path).splitlines(), 1):
                if IMPURE.search(line):
                    found.append(f"{path}:{number} {line.strip()}")
        self.complain(found, "the pure half knows of the world")

    def test_vendors_stay_in_their_rooms(self):
        found = []
        for path in sources():
            if path in VENDOR_ROOMS or path.startswith(("tests/", "examples/")):  # programs that use both
                continue
            for number, line in enumerate(code_of(path).splitlines(), 1):
                if VENDOR.search(line):
                    found.append(f"{path}:{number} {line.strip()}")
        self.complain(found, "vendors' words")

    def test_mpi_stays_in_its_rooms(self):
        found = []
        for path in sources():
            if path.startswith(MPI_ROOMS):
                continue
            for number, line in enumerate(code_of(path).splitlines(), 1):
                if MPI.search(line):
                    found.append(f"{path}:{number} {line.strip()}")
        self.complain(found, "MPI outside its rooms")

    def test_hwloc_stays_in_its_room(self):
        found = []
        for path in sources():
            if path == HWLOC_ROOM:
                continue
            for number, line in enumerate(text_of(path).splitlines(), 1):
                if HWLOC.search(line):
                    found.append(f"{path}:{number} {line.strip()}")
        self.complain(found, "hwloc outside its room")
        self.assertRegex(text_of(HWLOC_ROOM), HWLOC)

    def test_type_names_are_unique_per_namespace(self):
        """One library cannot hold two: the linker takes one's functions for the other's."""
        seen, found = {}, []
        for path in sources():
            if not path.startswith(("include/", "lib/", "kernels/", "bootstrap/", "topology/", "bindings/")):
                continue
            for number, name in types_in(code_of(path)):
                if name in seen:
                    found.append(f"{path}:{number} {name}, as in {seen[name]}")
                seen[name] = path
        self.assertIn("qccl::Transport", seen)
        self.complain(found, "types that stand twice")

    def test_kernels_of_gpus_count_no_bits_by_the_standard_library(self):
        """nvcc compiles std::countr_zero and its kin for a GPU without a word, and into something else."""
        read, found = {"kernels/codec_kernels.cu"}, []
        todo = list(read)
        while todo:
            path = todo.pop()
            for _, target in included_by(path):
                if target not in read:
                    read.add(target)
                    todo.append(target)
            if path == PORT:
                continue
            for number, line in enumerate(code_of(path).splitlines(), 1):
                if BIT_COUNTS.search(line):
                    found.append(f"{path}:{number} {line.strip()}")
        self.assertIn(PORT, read)
        self.complain(found, f"not for GPUs; what {PORT} has is")

    def test_nobody_ends_the_process(self):
        found = []
        for path in sources():
            if not path.startswith(("lib/", "kernels/", "bootstrap/", "topology/")):
                continue
            for number, line in enumerate(code_of(path).splitlines(), 1):
                if re.search(r"(?<![\w.>])(std::)?(abort|exit|_exit|quick_exit|atexit|signal|sigaction)\s*\(", line):
                    found.append(f"{path}:{number} {line.strip()}")
        self.complain(found, "the library neither ends the process nor handles its signals")

    def test_exceptions_are_caught_in_one_place(self):
        found = []
        for path in sources():
            if path.startswith(("lib/", "kernels/", "bootstrap/", "topology/")) and path != "lib/base/exception_boundary.hpp":
                for number, line in enumerate(code_of(path).splitlines(), 1):
                    if re.search(r"\b(try\s*\{|throw\b|catch\s*\()", line):
                        found.append(f"{path}:{number} {line.strip()}")
        self.complain(found, "exceptions outside lib/base/exception_boundary.hpp")


class TheTestItself(unittest.TestCase):
    """The patterns find what they are for."""

    def test_patterns(self):
        for text in ("cudaMalloc(x)", "hipStream_t s;", "cuMemAlloc(p)", "#include <cuda.h>"):
            self.assertRegex(text, VENDOR)
        self.assertNotRegex("cut(layout, chip, current, nvme)", VENDOR)
        for text in ("#include <mutex>", "#include <sys/mman.h>", 'getenv("X")', "#include <chrono>"):
            self.assertRegex(text, IMPURE)
        self.assertRegex("MPI_Init(a, b)", MPI)
        code = "namespace a {\nstruct B { struct C {}; };\nnamespace {\nclass D {};\n}\nenum class E : int {};\nclass F;\n}"
        self.assertEqual(list(types_in(code)), [(2, "a::B"), (6, "a::E")])
        self.assertEqual(layer_of("lib/engine/engine.hpp"), "lib/engine")
        self.assertIsNone(layer_of("tests/qtest.hpp"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
