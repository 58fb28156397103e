"""Includes point down only, vendors' words stay in their rooms, and a type's name stands once.

usage: layers_test.py SOURCE_ROOT [--picture]   --picture prints the picture for README.md
"""
import collections
import pathlib
import re
import sys
import unittest

import source_files

ROOT = pathlib.Path(sys.argv[1])
MOST_FILES = 25  # in a folder
SOURCES = (".c", ".cpp", ".cu", ".h", ".hpp", ".in")

# What the files of each room may include beside their own room and the standard library: rooms, or single files.
BELOW_FAULT = ["lib/base", "lib/net", "lib/memory", "lib/trace"]
PURE_ROOMS = ["lib/base", "lib/schedule", "lib/coll", "lib/codec"]
BELOW_COMM = [*BELOW_FAULT, *PURE_ROOMS, "lib/plan", "lib/device", "lib/fault", "lib/transport", "lib/engine"]
BELOW_TOOLS = [*BELOW_COMM, "include", "kernels", "topology", "topology/sources", "topology/formats"]
MAY_INCLUDE = {
    "include": [],
    "lib/base": [],
    "lib/codec": ["lib/base"],
    "lib/schedule": ["lib/base"],
    "lib/coll": ["lib/base", "lib/schedule"],
    "lib/plan": PURE_ROOMS,
    "lib/plan/simulator": [*PURE_ROOMS, "lib/plan"],
    "lib/net": ["lib/base"],
    "lib/memory": ["lib/base"],
    "lib/trace": ["lib/base"],
    "lib/fault": BELOW_FAULT,
    "lib/transport": [*BELOW_FAULT, "lib/fault"],
    "lib/transport/ucx": ["lib/transport"],
    "lib/device": ["lib/base", "lib/codec"],
    "lib/engine/compile": ["lib/base", "lib/schedule", "lib/codec", "lib/device", "lib/transport"],
    "lib/engine/gpu": ["lib/base", "lib/codec", "lib/device", "lib/engine/compile"],
    "lib/engine/run": [*BELOW_FAULT, "lib/schedule", "lib/codec", "lib/device", "lib/transport", "lib/engine/compile", "lib/engine/gpu"],
    "lib/comm": [*BELOW_COMM, "include"],
    "lib/comm/creation": [*BELOW_COMM, "lib/comm", "include"],
    "lib/api/call": [*BELOW_COMM, "lib/comm", "lib/comm/creation", "include"],
    "lib/api/group": [*BELOW_COMM, "lib/comm", "lib/api/call", "include"],
    "lib/api": [*BELOW_COMM, "lib/comm", "lib/comm/creation", "lib/api/call", "lib/api/group", "include"],
    "kernels/codec": ["lib/base", "lib/codec", "lib/device"],
    "kernels/cpu": ["lib/base", "lib/codec", "lib/device", "kernels/codec"],
    "kernels/gpu": ["lib/base", "lib/codec", "lib/device", "kernels/codec"],
    "kernels/runtime": ["lib/base", "lib/codec", "lib/device", "kernels/gpu", "include"],
    "bootstrap": ["lib/base", "lib/net"],
    "topology": [*PURE_ROOMS, "lib/plan"],
    "topology/sources": [*PURE_ROOMS, "lib/plan", "lib/net", "lib/comm/implementations.hpp", "topology"],
    "topology/formats": [*PURE_ROOMS, "lib/plan", "lib/plan/simulator", "topology"],
    "perf/cli": BELOW_TOOLS,
    "perf/report": [*BELOW_TOOLS, "lib/plan/simulator", "perf/cli"],
    "perf/run": [*BELOW_TOOLS, "lib/plan/simulator", "bootstrap", "perf/cli", "perf/report"],
    "perf/info": [*BELOW_TOOLS, "lib/plan/simulator", "bootstrap", "perf/cli", "perf/report", "perf/run"],
    "perf/commands": [*BELOW_TOOLS, "lib/plan/simulator", "bootstrap", "perf/cli", "perf/report", "perf/run", "perf/info"],
    "perf/precompiled": [],
    "perf/hosts": [],
    "bindings/fortran": ["include"],
    "bindings/python/qccl/torch/core": ["include"],
    "bindings/python/qccl/torch/messages": ["include", "bindings/python/qccl/torch/core"],
    "bindings/python/qccl/torch": ["include", "bindings/python/qccl/torch/core", "bindings/python/qccl/torch/messages"],
    "packaging": [],
    "examples": ["include"],
    "tests": ["include", "lib", "kernels", "bootstrap", "topology", "topology/sources", "topology/formats", "perf"],
}
# The composition root, which names what implements the interfaces of lib.
ROOT_OF_COMPOSITION = ("lib/api/assemble.hpp", "lib/api/assemble.cpp")
IMPLEMENTATIONS = ["kernels", "bootstrap", "topology"]
# No threads, clocks, environment, sockets or devices: their tests need nothing else.
PURE = ["lib/base/call_descriptor", "lib/schedule", "lib/coll", "lib/plan", "lib/codec", "lib/trace/call_log", "lib/trace/call_summary", "lib/trace/rank_record", "topology/graph", "topology/machine_graph", "topology/job_graph",
        "topology/rank_order", "topology/formats/topology_xml", "topology/formats/graph_fabric"]
IMPURE = re.compile(r"<(thread|mutex|condition_variable|atomic|future|semaphore|latch|barrier|stop_token|chrono|ctime|time\.h|"
                    r"pthread\.h|unistd\.h|sched\.h|fcntl\.h|poll\.h|sys/.*|netinet/.*|arpa/.*|linux/.*|hwloc.*|cuda.*|hip.*|ucp/.*|mpi\.h)>|"
                    r"\b(getenv|environ|clock_gettime)\b")
VENDOR = re.compile(r"\b(cuda|hip|rocm|hsa|cu|nv)_?[A-Z]\w*|\b(CUDA|HIP|CU|ROCM)_\w+|\b(cuda|hip|rocm)\b")
VENDOR_ROOMS = ("kernels/gpu/port.hpp", "kernels/runtime/module.cu", "kernels/runtime/runtime_cuda.hpp", "kernels/runtime/runtime_hip.hpp", "lib/device/loader.cpp")
PORT = "kernels/gpu/port.hpp"
BIT_COUNTS = re.compile(r"\bstd::(count[lr]_(zero|one)|popcount|bit_(width|floor|ceil)|has_single_bit|rot[lr])\b|\b__builtin_(ctz|clz|popcount|ffs)\w*")
LIBRARY = ("lib/", "kernels/", "bootstrap/", "topology/")
ENDS = re.compile(r"(?<![\w.>])(std::)?(abort|exit|_exit|quick_exit|atexit|signal|sigaction)\s*\(")
EXCEPTION = re.compile(r"\b(try\s*\{|throw\b|catch\s*\()")
SCOPE = re.compile(r"\n|\{|\}|\bnamespace\b([\w\s:]*)\{|"
                   r"\b(?:struct|class|union|enum(?:\s+class)?)\s+(?:alignas\([^()]*\)\s*)?(\w+)\s*(?:final\s*)?"
                   r"(?::(?!:)[^;{}()=]*)?\{")
CLASS = re.compile(r"(?<!enum )\b(?:struct|class|union)\s+(?:alignas\([^()]*\)\s*|__attribute__\(\(\w+\)\)\s*)?(?:\w+::)*(\w+)\s*"
                   r"(?:final\s*)?(?::(?!:)[^;{}()=]*)?\{")
# Classes that may have one name: generic code names these member types of the traits of every codec.
ALIKE = {("kernels/gpu/gpu_codec_traits.hpp", "Extremes"), ("kernels/gpu/gpu_codec_traits.hpp", "Step")}
HWLOC = re.compile(r"#\s*include\s*[<\"]hwloc(\.h|/)")
HWLOC_ROOM = "topology/sources/hwloc_source.cpp"
MPI = re.compile(r"\bP?MPI_[A-Z]\w*|<mpi\.h>")
MPI_ROOMS = ("include/qccl/mpi.h", "bindings/mpi/", "bindings/fortran/fortran_mpi.c", "perf/run/baseline_mpi.cpp", "perf/hosts/comparison/allreduce_mpi.c", "examples/",
             "tests/")


def sources():
    return source_files.paths(ROOT, *SOURCES)


def text_of(path):
    return (ROOT / path).read_text(errors="replace")


def code_of(path):
    """Without comments and string literals, line by line."""
    blank = lambda match: "\n" * match.group(0).count("\n")
    text = re.sub(r"/\*.*?\*/", blank, text_of(path), flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r'(?<!include )"(\\.|[^"\\\n])*"', '""', text)


def lines_with(pattern, paths, read=code_of):
    """Each line of the files in which the pattern is found, with its place."""
    return [f"{path}:{number} {line.strip()}" for path in paths for number, line in enumerate(read(path).splitlines(), 1) if pattern.search(line)]


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


def classes_in(code):
    """(line number, name) of each class that `code` defines, also in functions and in other classes; no specialisations."""
    return [(code.count("\n", 0, match.start()) + 1, match.group(1)) for match in CLASS.finditer(code)]


def doubled(classes):
    """A line for each of the (path, line number, name) whose name an earlier one has."""
    first, found = {}, []
    for path, number, name in classes:
        if name in first:
            found.append(f"{path}:{number} {name}, as in {first[name]}")
        first.setdefault(name, path)
    return found


def room_of(path):
    """The room with the longest name that holds the path, or None. An entry of the table that is a room means that room alone."""
    return max((room for room in MAY_INCLUDE if path.startswith(room + "/")), key=len, default=None)


def is_allowed(path, target):
    room = room_of(path)
    allowed = [*MAY_INCLUDE[room], *([*IMPLEMENTATIONS, "topology/sources"] if path in ROOT_OF_COMPOSITION else [])]
    reaches = lambda entry: room_of(target) == entry if entry in MAY_INCLUDE else target == entry or target.startswith(entry + "/")
    return room_of(target) == room or any(reaches(entry) for entry in allowed)


def folders_below(room):
    """What the files of a top-level folder, or of a folder of lib, may include, as such folders."""
    short = lambda name: "/".join(name.split("/")[:2 if name.startswith("lib/") else 1])
    entries = {short(entry) for name, allowed in MAY_INCLUDE.items() if short(name) == room for entry in allowed if not entry.endswith(".hpp")}
    return entries - {room, "include", "lib"}


def picture():
    """The folders of the library, each above all that it may include."""
    folders = {"lib/" + name.split("/")[1] for name in MAY_INCLUDE if name.startswith("lib/")} | set(IMPLEMENTATIONS)
    heights = {}
    while len(heights) < len(folders):
        for folder in folders - heights.keys():
            below = folders_below(folder) | (set(IMPLEMENTATIONS) if folder == "lib/api" else set())
            if below <= heights.keys():
                heights[folder] = 1 + max((heights[other] for other in below), default=-1)
    rows = [sorted(folder for folder in folders if heights[folder] == height) for height in range(max(heights.values()), -1, -1)]
    return "\n".join(["include/qccl/qccl.h", *("   ".join(row) for row in rows)])


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
            self.assertIsNotNone(room_of(path), f"{path} is in no room of the table")
            for number, target in included_by(path):
                if not is_allowed(path, target):
                    found.append(f"{path}:{number} includes {target}")
        self.complain(found, "includes that do not point down")

    def test_the_table_names_what_is_there(self):
        entries = {*MAY_INCLUDE, *(entry for allowed in MAY_INCLUDE.values() for entry in allowed), *ROOT_OF_COMPOSITION, *PURE, *VENDOR_ROOMS}
        missing = [entry for entry in entries if not (ROOT / entry).exists() and not list((ROOT / entry).parent.glob(pathlib.PurePath(entry).name + ".*"))]
        self.complain(missing, "names in the tables of this test that are nowhere")

    def test_no_two_rooms_include_each_other(self):
        rooms = {room: {entry for entry in allowed if entry in MAY_INCLUDE} for room, allowed in MAY_INCLUDE.items()}
        done = set()
        while free := {room for room, below in rooms.items() if below <= done} - done:
            done |= free
        self.complain(sorted(rooms.keys() - done), "rooms of a cycle, or above one")

    def test_folders_are_small(self):
        held = collections.Counter(str(pathlib.PurePosixPath(path).parent) for path in sources())
        self.complain([f"{folder}: {count}" for folder, count in held.items() if count > MOST_FILES], f"folders of more than {MOST_FILES} sources")

    def test_rooms_say_what_they_are(self):
        rooms = [room for room in MAY_INCLUDE if room not in ("include", "perf/precompiled", "tests")]
        self.complain([room for room in rooms if not (ROOT / room / "README.md").is_file()], "rooms without a README.md")

    def test_the_readme_shows_the_table(self):
        self.assertTrue("```text\n" + picture() + "\n```" in (ROOT / "README.md").read_text(), "`layers_test.py . --picture` prints another picture")

    def test_the_pure_half_is_pure(self):
        found = lines_with(IMPURE, (path for path in sources() if path.startswith(tuple(PURE))))
        self.complain(found, "the pure half knows of the world")

    def test_vendors_stay_in_their_rooms(self):
        both = ("tests/", "examples/")  # programs that use both
        found = lines_with(VENDOR, (path for path in sources() if path not in VENDOR_ROOMS and not path.startswith(both)))
        self.complain(found, "vendors' words")

    def test_mpi_stays_in_its_rooms(self):
        found = lines_with(MPI, (path for path in sources() if not path.startswith(MPI_ROOMS)))
        self.complain(found, "MPI outside its rooms")

    def test_hwloc_stays_in_its_room(self):
        found = lines_with(HWLOC, (path for path in sources() if path != HWLOC_ROOM), text_of)
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

    def test_class_names_are_unique(self):
        """Also of nested and file-local classes: a reader who finds a name has found the class."""
        classes = [(path, *found) for path in sources() if path.startswith(("include/", *LIBRARY)) for found in classes_in(code_of(path))]
        self.assertGreater(len(classes), 500)
        self.complain([f"{path}: {name}" for path, name in ALIKE if not any(c[0] == path and c[2] == name for c in classes)], "exceptions that are nowhere")
        self.complain(doubled(entry for entry in classes if (entry[0], entry[2]) not in ALIKE), "classes of one name")

    def test_kernels_of_gpus_count_no_bits_by_the_standard_library(self):
        """nvcc compiles std::countr_zero and its kin for a GPU without a word, and into something else."""
        read = {"kernels/gpu/codec_kernels.cu"}
        todo = list(read)
        while todo:
            path = todo.pop()
            for _, target in included_by(path):
                if target not in read:
                    read.add(target)
                    todo.append(target)
        self.assertIn(PORT, read)
        found = lines_with(BIT_COUNTS, sorted(read - {PORT}))
        self.complain(found, f"not for GPUs; what {PORT} has is")

    def test_nobody_ends_the_process(self):
        found = lines_with(ENDS, (path for path in sources() if path.startswith(LIBRARY)))
        self.complain(found, "the library neither ends the process nor handles its signals")

    def test_exceptions_are_caught_in_one_place(self):
        found = lines_with(EXCEPTION, (path for path in sources() if path.startswith(LIBRARY) and path != "lib/base/exception_boundary.hpp"))
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
        code = ("struct A { class B final : public C<D> {}; };\nenum class E { e };\ntemplate <class F> struct G<F> {};\nstruct A::H {\n"
                "struct stat s{};\n};\nclass I;\nunion alignas(8) J\n{};")
        self.assertEqual(classes_in(code), [(1, "A"), (1, "B"), (4, "H"), (8, "J")])
        self.assertEqual(doubled([("a", 1, "A"), ("a", 2, "B"), ("b", 3, "A")]), ["b:3 A, as in a"])
        self.assertEqual(room_of("lib/engine/run/engine.hpp"), "lib/engine/run")
        self.assertEqual(room_of("tests/kit/qtest.hpp"), "tests")
        self.assertIsNone(room_of("quickstart.sh"))
        self.assertTrue(is_allowed("lib/api/assemble.cpp", "kernels/cpu/cpu_tiers.hpp"))
        for path, target in (("lib/api/collectives.cpp", "kernels/cpu/cpu_tiers.hpp"), ("lib/codec/codec.cpp", "lib/plan/cost.hpp"),
                             ("topology/graph.cpp", "topology/formats/read_topology.hpp"), ("bootstrap/launcher.cpp", "lib/comm/comm.hpp")):
            self.assertFalse(is_allowed(path, target))


if __name__ == "__main__":
    if sys.argv[2:] == ["--picture"]:
        print(picture())
        sys.exit()
    unittest.main(argv=sys.argv[:1], verbosity=1)
