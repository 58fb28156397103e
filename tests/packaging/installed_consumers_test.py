"""What other build systems make of an installation: programs that pkg-config and CMake link against it, with the shared library and
with libqccl.a, are built in a moved tree and run.

usage: installed_consumers_test.py MESON BUILD_FOLDER CC...
"""
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

from installed_tree import README_LINES, SOURCE, InstalledTree, needed_by, readme_program, run
from launchers import HERE_ALONE, environment, free_port, start_by_hand

MESON, BUILD, CC = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
CONSUMER = pathlib.Path(__file__).parent / "consumer"
# A tool between program and library: it counts calls, and passes them on.
TOOL = """
#include <qccl/tools.h>
int calls_seen;
qcclResult_t qcclAllReduce(const void *send, void *recv, size_t count, qcclDataType_t type, qcclRedOp_t op, qcclComm_t comm,
                           qcclStream_t stream)
{
    calls_seen++;
    return pqcclAllReduce(send, recv, count, type, op, comm, stream);
}
"""
TOOL_PROGRAM = """
#include <qccl/qccl.h>
extern int calls_seen;
/* A name that the library has inside. */
int clash __asm__("_ZN4qccl14find_in_moduleEPKcS1_") = 1;
int main(void)
{
    qcclComm_t comm;
    float value = 3;
    if (qcclCommInitAll(&comm, 1, NULL) != qcclSuccess) return 1;
    if (qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, comm, NULL) != qcclSuccess) return 2;
    if (qcclCommDestroy(comm) != qcclSuccess) return 3;
    return calls_seen == 1 && value == 3 && clash == 1 ? 0 : 4;
}
"""


def mapped():
    """The functions that libqccl.so exports."""
    text = re.sub(r"/\*.*?\*/", "", (SOURCE / "lib/qccl.map").read_text(), flags=re.S)
    return set(re.findall(r"\b(p?qccl\w+);", text))


class Consumers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = InstalledTree(MESON, BUILD)
        cls.source = cls.tree.folder / "program.c"
        cls.source.write_text(readme_program())
        cls.has_archive = cls.tree.has("libqccl.a")

    @classmethod
    def tearDownClass(cls):
        cls.tree.remove()

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="q")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check_readme_program(self, program, **options):
        self.assertEqual(sorted(run(program, **options).splitlines()), README_LINES)

    def compiled(self, *words, name="program"):
        run(*CC, "-Wall", "-Werror", *words[:-1], "-o", self.folder / name, *words[-1])
        return self.folder / name

    def needs_archive(self):
        if not self.has_archive:
            self.skipTest("configured without libqccl.a (default_library=both makes it)")

    def static_program(self, source, name="program"):
        self.needs_archive()
        return self.compiled(source, self.tree.pkg_config("--cflags", "--libs", package="qccl_static"), name=name)


class PkgConfig(Consumers):
    def test_paths_are_those_of_the_moved_tree(self):
        flags = self.tree.pkg_config("--cflags", "--libs")
        paths = {os.path.realpath(flag[2:]) for flag in flags if flag[:2] in ("-I", "-L")}
        self.assertEqual(paths, {os.path.realpath(self.tree.headers), os.path.realpath(self.tree.libraries)})

    def test_shared(self):
        if not self.tree.has("libqccl.so"):
            self.skipTest("configured without the shared library")
        flags = self.tree.pkg_config("--cflags", "--libs")
        self.assertEqual([flag for flag in flags if flag.startswith("-l")], ["-lqccl"])
        program = self.compiled(self.source, flags)
        self.assertIn("libqccl.so.0", needed_by(program))
        self.check_readme_program(program, env=self.tree.with_library())

    def test_static_beside_the_shared_library(self):
        program = self.static_program(self.source)
        self.assertEqual([name for name in needed_by(program) if "qccl" in name], [])
        self.check_readme_program(program)

    def test_static_without_the_shared_library(self):
        """--static names everything that the archive needs."""
        self.needs_archive()
        root = self.folder / "tree"
        shutil.copytree(self.tree.root, root, symlinks=True, ignore=shutil.ignore_patterns("libqccl.so*", "*_perf", "bin"))
        program = self.compiled(self.source, self.tree.pkg_config("--cflags", "--static", "--libs", root=root))
        self.assertEqual([name for name in needed_by(program) if "qccl" in name], [])
        self.check_readme_program(program)


class Archive(Consumers):
    """libqccl.a in programs."""

    def test_the_c_api_alone_is_global(self):
        self.needs_archive()
        listed = [line.split()[-2:] for line in run("nm", "-g", "--defined-only", self.tree.libraries / "libqccl.a").splitlines()
                  if line.count(" ") == 2]
        self.assertEqual({name for _, name in listed}, mapped())
        self.assertEqual({kind for kind, name in listed if name.startswith("qccl")}, {"W"})

    def test_tools_stand_between_and_names_do_not_clash(self):
        for name, text in (("tool.c", TOOL), ("program.c", TOOL_PROGRAM)):
            (self.folder / name).write_text(text)
        self.needs_archive()
        program = self.compiled(self.folder / "program.c", self.folder / "tool.c",
                                self.tree.pkg_config("--cflags", "--libs", package="qccl_static"))
        run(program)

    def sums_between_hosts(self, program, **more):
        """Two ranks that count as on two hosts. Whether they found the network, and what they said."""
        port = free_port()
        ended = start_by_hand([[program]] * 2, [
            environment(RANK=rank, WORLD_SIZE=2, MASTER_ADDR="localhost", QCCL_PORT=port, QCCL_HOSTID=f"h{rank}", **HERE_ALONE, **more)
            for rank in range(2)])
        said = "".join(out + errors for _, out, errors in ended)
        for _, out, _ in ended:
            self.assertIn(len(re.findall("has 0 wrong values", out)), (0, 2), said)
        return [status for status, _, _ in ended] == [0, 0], said

    def test_a_static_program_finds_the_network(self):
        """Beside itself, where the loader looks, and where the module was installed."""
        if not self.tree.has("libqccl_ucx.so"):
            self.skipTest("configured without UCX")
        program = self.static_program(SOURCE / "examples/sum_env.c")
        if any((folder / "libqccl_ucx.so").exists() for folder in (self.built_for(program), pathlib.Path("/usr/local/lib"))):
            self.skipTest("another QCCL is installed on this machine")
        has_network, said = self.sums_between_hosts(program)
        self.assertFalse(has_network)
        self.assertIn("there is no libqccl_ucx.so", said)

        for place, more in (("loader", {"LD_LIBRARY_PATH": self.tree.libraries}), ("installed", {}), ("beside", {})):
            with self.subTest(place):
                if place == "installed":
                    self.move_installed_folder(program)
                elif place == "beside":
                    (self.folder / "lib").unlink()
                    shutil.copy(self.tree.libraries / "libqccl_ucx.so", self.folder)
                has_network, said = self.sums_between_hosts(program, **more)
                self.assertTrue(has_network, said)

    def built_for(self, program):
        """The folder that the build was configured to install libraries into, as the program has it inside."""
        options = run(MESON, "introspect", "--buildoptions", BUILD)
        prefix, libdir = (re.search(rf'"name": "{name}", "value": "(.*?)"', options)[1] for name in ("prefix", "libdir"))
        folder = os.path.join(prefix, libdir)
        self.assertEqual(program.read_bytes().count(b"\0" + folder.encode() + b"\0"), 1)
        return pathlib.Path(folder)

    def move_installed_folder(self, program):
        """Puts another folder into the program, as package managers do that move what others have built."""
        old, new = str(self.built_for(program)).encode(), str(self.folder / "lib").encode()
        if len(new) > len(old):
            self.skipTest("the build's folder for libraries has too short a name")
        program.write_bytes(program.read_bytes().replace(b"\0" + old + b"\0", b"\0" + new.ljust(len(old) + 1, b"\0")))
        (self.folder / "lib").symlink_to(self.tree.libraries)


@unittest.skipIf(shutil.which("cmake") is None, "cmake is not installed")
class CMake(Consumers):
    def configured(self, *arguments, source=CONSUMER, **options):
        return run("cmake", "-S", source, "-B", self.folder / "objects", f"-DCMAKE_PREFIX_PATH={self.tree.root}",
                   f"-DCMAKE_C_COMPILER={CC[-1]}", "-DCMAKE_C_COMPILER_WORKS=1", "--no-warn-unused-cli", *arguments, **options)

    def project(self, text):
        (self.folder / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.12)\nproject(asks C)\n" + text)
        return self.folder

    def test_programs(self):
        kinds = {"shared": "libqccl.so", "static": "libqccl.a", "emulated": "libqccl_emulated.so",
                 "fortran": "libqccl_fortran.so"}
        kinds = [kind for kind, library in kinds.items() if self.tree.has(library)]
        self.configured(f"-DCOMPONENTS={';'.join(kinds)}", f"-DPROGRAM={self.source}")
        run("cmake", "--build", self.folder / "objects")
        for kind in kinds:
            program = self.folder / "objects" / f"program_{kind}"
            if kind != "fortran":  # the library behind the module needs it
                self.assertEqual("libqccl.so.0" in needed_by(program), kind == "shared")
            # CMake's run path names the moved tree.
            if kind in ("shared", "static"):
                self.check_readme_program(program)
            else:
                self.assertRegex(run(program), {"emulated": r"^8 GPUs\n$", "fortran": r"^version \d+\n$"}[kind])

    def test_programs_with_mpi(self):
        if not all(map(shutil.which, ("mpicc", "mpirun"))):
            self.skipTest("MPI is not installed")
        self.configured("-DCOMPONENTS=mpi", f"-DMPI_PROGRAM={SOURCE / 'examples/sum_mpi.c'}")
        run("cmake", "--build", self.folder / "objects")
        root = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
        said = run("mpirun", "-n", "2", self.folder / "objects/program_mpi", env=root)
        self.assertEqual({line.split(":")[0] for line in said.splitlines()}, {"world", "even", "odd"}, said)

    def test_versions(self):
        """Before 1.0 another minor version is another API."""
        serves = {"0.1": 1, "0.1.0": 1, "0.1.1": 0, "0.2": 0, "0.0.9": 0, "1.0": 0, "0.1...0.3": 1, "0.1...<0.2": 1, "0.0...<0.1": 0,
                  "0.2...1.0": 0, "0.1.0 EXACT": 1, "0.1 EXACT": 1, "0.1.1 EXACT": 0}
        version = self.tree.pkg_config("--modversion")[0]
        self.assertTrue(version.startswith("0.1."), "the table above is that of 0.1")
        said = self.configured(source=self.project("".join(
            f'find_package(QCCL {asked} QUIET)\nmessage("{asked}: ${{QCCL_FOUND}} ${{QCCL_VERSION}}")\nunset(QCCL_DIR CACHE)\n'
            for asked in serves)))
        for asked, is_served in serves.items():
            if version == "0.1.0" or asked not in ("0.1.1", "0.1.0 EXACT", "0.1.1 EXACT"):
                self.assertIn(f"{asked}: {is_served} {version}\n", said)

    def test_what_is_not_there_is_said(self):
        said = " ".join(self.configured(source=self.project("find_package(QCCL 0.1 REQUIRED COMPONENTS shared fast)\n"), expect=1).split())
        self.assertIn('The component "fast" is unknown', said)
        said = self.configured(source=self.project("find_package(QCCL 0.1 QUIET OPTIONAL_COMPONENTS fast)\n"
                                                   'message("${QCCL_FOUND} ${QCCL_fast_FOUND}")\n'))
        self.assertIn("1 FALSE", said)
        for library, component in (("libqccl.a", "static"), ("libqccl_emulated.so", "emulated")):
            away = self.tree.libraries / "away"
            if self.tree.has(library):
                (self.tree.libraries / library).rename(away)
            try:
                asks = self.project(f"find_package(QCCL 0.1 REQUIRED COMPONENTS {component})\n")
                said = " ".join(self.configured(source=asks, expect=1).split())
            finally:
                if away.exists():
                    away.rename(self.tree.libraries / library)
            self.assertIn(f'The component "{component}" is not installed', said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
