"""What is installed is enough: a ten-line program is compiled with pkg-config's flags and runs.

usage: install_test.py MESON BUILD_FOLDER CC
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

MESON, BUILD, CC = sys.argv[1], sys.argv[2], sys.argv[3:]

PROGRAM = r"""
#include <qccl/qccl.h>
#include <stdio.h>
int main(void) {
    float gradient[3] = {1, 2, 3};
    qcclUniqueId id;
    qcclComm_t comm;
    if (qcclGetUniqueId(&id) || qcclCommInitRank(&comm, 1, &id, 0)) return puts(qcclGetLastError(NULL));
    if (qcclAllReduce(gradient, gradient, 3, qcclFloat32, qcclSum, comm, NULL)) return puts(qcclGetLastError(comm));
    printf("%g %g %g\n", gradient[0], gradient[1], gradient[2]);
    return (int)qcclCommDestroy(comm);
}
"""


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

    def test_a_program_of_ten_lines(self):
        source = self.root / "program.c"
        source.write_text(PROGRAM)
        program = self.root / "program"
        run(*CC, "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", source, "-o", program,
            *self.pkg_config("--cflags", "--libs"))
        library = next(self.root.rglob("libqccl.so.0")).parent
        self.assertEqual(run(program, env=dict(os.environ, LD_LIBRARY_PATH=str(library))), "1 2 3\n")

    def test_the_library_is_found_by_its_names(self):
        library = next(self.root.rglob("libqccl.so.0"))
        self.assertTrue((library.parent / "libqccl.so").is_symlink())
        self.assertTrue(library.is_symlink())
        self.assertEqual(list(self.root.rglob("libqccl_*.a")), [])

    def test_the_headers(self):
        names = {path.name for path in self.root.rglob("*.h")}
        self.assertLessEqual({"qccl.h", "tools.h", "version.h"}, names)

    def test_versions_agree(self):
        version = self.pkg_config("--modversion")[0]
        header = next(self.root.rglob("version.h")).read_text()
        for name, number in zip(("MAJOR", "MINOR", "PATCH"), version.split(".")):
            self.assertIn(f"#define QCCL_VERSION_{name} {number}\n", header)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
