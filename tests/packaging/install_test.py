"""What is installed is enough, also in another place: the tools run there, and nothing else gets in the way of other packages.

usage: install_test.py MESON BUILD_FOLDER CC...
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from installed_tree import SOURCE, InstalledTree, readme_program, run

MESON, BUILD, CC = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
NCCL_NAMES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "scan", "exscan")


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = InstalledTree(MESON, BUILD)
        cls.addClassCleanup(cls.tree.remove)
        cls.root, cls.libraries = cls.tree.root, cls.tree.libraries

    def needs_tools(self):
        if not (BUILD / "perf").is_dir():
            self.skipTest("configured without the tools")
        return self.root / "bin"

    def test_the_example_of_the_readme_is_short_and_strict(self):
        source = self.tree.folder / "strict.c"
        source.write_text(readme_program())
        run(*CC, "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{self.tree.headers}", "-fsyntax-only", source)
        program = readme_program()
        body = program[program.index("{") + 2:program.rindex("}")]
        self.assertLessEqual(len(body.splitlines()), 10)

    def test_the_tools(self):
        programs = self.needs_tools()
        self.assertTrue(run(programs / "qccl-perf", "--version").startswith("qccl-perf "))
        self.assertIn("shm", run(programs / "qccl-info"))
        for name in NCCL_NAMES:
            link = self.root / "libexec/qccl" / f"{name}_perf"
            self.assertTrue(link.samefile(programs / "qccl-perf"))
            self.assertIn(f"# Collective test starting: {name}_perf", run(link, "-b", "1K", "-e", "1K", "-n", "3"))
        self.assertEqual({path.name.removesuffix(".gz") for path in self.root.rglob("man1/*")}, {"qccl-perf.1", "qccl-info.1"})

    def test_the_tools_alone_are_programs_for_all(self):
        """nccl-tests' names, among others, belong to nccl-tests."""
        programs = self.needs_tools()
        self.assertEqual({path.name for path in programs.iterdir()}, {"qccl-perf", "qccl-info"})

    def test_the_tools_find_the_module_over_mpi(self):
        programs = self.needs_tools()
        if not list(self.root.rglob("qccl_perf_mpi.so")) or shutil.which("mpirun") is None:
            self.skipTest("configured without MPI")
        said = run("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", programs / "qccl-perf", "all_reduce", "-b", "1K", "-e",
                   "1K", "-n", "3", "--baseline", "mpi")
        self.assertRegex(said, r"#  Rank  1 ")
        self.assertRegex(said, r"speedup +mpi +over it")

    def test_python_looks_where_its_package_is(self):
        options = json.loads((BUILD / "meson-info/intro-buildoptions.json").read_text())
        prefix = next(option["value"] for option in options if option["name"] == "prefix")
        packages = list(self.root.rglob("qccl/_library.py"))
        if prefix not in ("/usr", "/usr/local") or not packages:
            self.skipTest("configured for a place of which Python does not know, or without the package")
        folder = pathlib.Path(prefix) / packages[0].parents[1].relative_to(self.root)
        self.assertIn(str(folder), run("/usr/bin/python3", "-c", "import site; print(*site.getsitepackages(), sep='\\n')").splitlines())

    def test_the_library_is_found_by_its_names(self):
        if self.tree.has("libqccl.so"):
            version = self.tree.pkg_config("--modversion")[0]
            self.assertEqual(os.readlink(self.libraries / "libqccl.so"), "libqccl.so.0")
            self.assertEqual(os.readlink(self.libraries / "libqccl.so.0"), f"libqccl.so.{version}")
            self.assertIn("[libqccl.so.0]", run("readelf", "-dW", self.libraries / "libqccl.so"))
        self.assertLessEqual({path.name for path in self.root.rglob("*.a")}, {"libqccl.a"})

    def test_the_modules(self):
        """They lie beside the library."""
        for built in BUILD.glob("lib/libqccl_*.so"):
            self.assertTrue(self.tree.has(built.name), built.name)

    def test_the_headers(self):
        names = {path.name for path in self.tree.headers.rglob("*.h")}
        self.assertLessEqual({"emulated.h", "mpi.h", "qccl.h", "qccl_cffi.h", "tools.h", "version.h"}, names)

    def test_versions_agree(self):
        version = self.tree.pkg_config("--modversion")[0]
        header = (self.tree.headers / "qccl/version.h").read_text()
        for name, number in zip(("MAJOR", "MINOR", "PATCH"), version.split(".")):
            self.assertIn(f"#define QCCL_VERSION_{name} {number}\n", header)

    def test_no_text_names_the_place(self):
        """Paths of what other build systems read follow from where it lies."""
        for path in (*self.libraries.rglob("*.pc"), *self.libraries.rglob("*.cmake")):
            text = path.read_text()
            for place in (BUILD, SOURCE, "/usr/"):
                self.assertNotIn(str(place), text, path)


class SourceArchive(unittest.TestCase):
    FEW_PARTS = [f"-D{part}=disabled" for part in ("cuda", "hip", "mpi", "ucx", "emulated")] + ["-Dtests=false", "-Dperf=false"]

    def test_a_release_is_complete(self):
        """`meson dist` packs what the last commit holds, and a build can be configured from that, for one kind of library or the other."""
        if subprocess.run(["git", "-C", SOURCE, "rev-parse", "HEAD"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no history")
        with tempfile.TemporaryDirectory(prefix="qccl_dist_") as folder:
            here, again = pathlib.Path(folder) / "here", pathlib.Path(folder) / "again"
            run(MESON, "setup", here, SOURCE, *self.FEW_PARTS, "-Ddefault_library=shared")
            run(MESON, "dist", "-C", here, "--no-tests", "--allow-dirty", "--formats", "gztar")
            archive, = (here / "meson-dist").glob("qccl-*.tar.gz")
            run("tar", "-xf", archive, "-C", folder)
            run(MESON, "setup", again, pathlib.Path(folder) / archive.name.removesuffix(".tar.gz"), *self.FEW_PARTS,
                "-Ddefault_library=static")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
