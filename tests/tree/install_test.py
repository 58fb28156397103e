"""What is installed is enough: the README's example is compiled with pkg-config's flags and runs, and so do the tools.

usage: install_test.py MESON BUILD_FOLDER CC
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

MESON, BUILD, CC = sys.argv[1], sys.argv[2], sys.argv[3:]

# The example of the README, as it is printed.
README = pathlib.Path(__file__).resolve().parents[2] / "README.md"
PROGRAM, = re.findall(r"^```c\n(.*?)^```", README.read_text(), re.M | re.S)


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="qccl_install_"))
        run(MESON, "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", cls.root)
        cls.pc = next(cls.root.rglob("qccl.pc"))
        cls.environment = dict(os.environ, PKG_CONFIG_PATH=str(cls.pc.parent), PKG_CONFIG_SYSROOT_DIR=str(cls.root))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root)

    def pkg_config(self, *arguments):
        return run("pkg-config", *arguments, "qccl", env=self.environment).split()

    def test_the_example_of_the_readme(self):
        source = self.root / "program.c"
        source.write_text(PROGRAM)
        program = self.root / "program"
        run(*CC, "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", source, "-o", program,
            *self.pkg_config("--cflags", "--libs"))
        lines = run(program, env=self.with_library(), timeout=60).splitlines()
        self.assertEqual(sorted(lines), ["rank 0: 8", "rank 1: 8"])
        body = PROGRAM[PROGRAM.index("{") + 2:PROGRAM.rindex("}")]
        self.assertLessEqual(len(body.splitlines()), 10)

    def with_library(self):
        library = next(self.root.rglob("libqccl.so.0")).parent
        return dict(os.environ, LD_LIBRARY_PATH=str(library))

    @unittest.skipUnless((pathlib.Path(BUILD) / "perf").is_dir(), "built without the tools")
    def test_the_tools(self):
        folder = next(self.root.rglob("qccl-perf")).parent
        self.assertTrue(run(folder / "qccl-perf", "--version", env=self.with_library()).startswith("qccl-perf "))
        self.assertIn("shm", run(folder / "qccl-info", env=self.with_library()))
        for name in ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "gather", "scatter", "all_to_all", "scan", "exscan"):
            self.assertFalse((folder / f"{name}_perf").exists())  # the name is nccl-tests'
            link = next(self.root.rglob(f"libexec/qccl/{name}_perf"))
            self.assertTrue(link.samefile(folder / "qccl-perf"))
            table = run(link, "-b", "1K", "-e", "1K", "-n", "3", env=self.with_library())
            self.assertIn(f"# Collective test starting: {name}_perf", table)
        self.assertEqual({path.name.removesuffix(".gz") for path in self.root.rglob("man1/*")},
                         {"qccl-perf.1", "qccl-info.1"})

    def test_the_library_is_found_by_its_names(self):
        library = next(self.root.rglob("libqccl.so.0"))
        self.assertTrue((library.parent / "libqccl.so").is_symlink())
        self.assertTrue(library.is_symlink())
        self.assertEqual(list(self.root.rglob("libqccl_*.a")), [])

    def test_the_modules(self):
        """What is loaded lies beside the library."""
        folder = next(self.root.rglob("libqccl.so.0")).parent
        for built in pathlib.Path(BUILD).glob("lib/libqccl_*.so"):
            self.assertTrue((folder / built.name).is_file(), built.name)

    def test_the_headers(self):
        names = {path.name for path in self.root.rglob("*.h")}
        self.assertLessEqual({"emulated.h", "mpi.h", "qccl.h", "tools.h", "version.h"}, names)

    def test_versions_agree(self):
        version = self.pkg_config("--modversion")[0]
        header = next(self.root.rglob("version.h")).read_text()
        for name, number in zip(("MAJOR", "MINOR", "PATCH"), version.split(".")):
            self.assertIn(f"#define QCCL_VERSION_{name} {number}\n", header)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
