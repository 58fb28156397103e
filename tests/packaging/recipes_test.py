"""The recipes of packaging and the wraps of subprojects agree with what the build asks for and installs.

usage: recipes_test.py MESON BUILD_FOLDER CC...
"""
import ast
import fnmatch
import pathlib
import re
import subprocess
import sys
import unittest

from installed_tree import SOURCE, InstalledTree

MESON, BUILD = sys.argv[1], pathlib.Path(sys.argv[2])
PACKAGING, WRAPS = SOURCE / "packaging", SOURCE / "subprojects"
# Left out by some configurations.
OPTIONAL = re.compile(r".*/(libqccl\.a|libqccl_ucx\.so|libqccl_emulated\.so|qccl_perf_mpi\.so|.*fortran.*|python3.*)")
# Made where there are compilers that Debian's main archive does not have.
NOT_IN_DEBIAN = {"libqccl_cuda.so", "libqccl_hip.so"}


def version():
    return re.search(r"^    version: '(.*)',$", (SOURCE / "meson.build").read_text(), re.M)[1]


class Recipes(unittest.TestCase):
    def test_versions(self):
        for path, pattern in (("debian/changelog", r"^qccl \((.*?)-"), ("spack/package.py", r'version\("(.*?)"\)'),
                              ("conda/recipe/meta.yaml", r'set version = "(.*?)"')):
            found = re.search(pattern, (PACKAGING / path).read_text(), re.M)
            self.assertEqual(found[1], version(), path)

    def test_scripts_can_be_parsed(self):
        ast.parse((PACKAGING / "spack/package.py").read_text())
        subprocess.run(["bash", "-n", PACKAGING / "conda/recipe/conda_build.sh"], check=True)

    def test_debian_knows_the_nodes_of_the_library(self):
        symbols = (PACKAGING / "debian/libqccl0.symbols").read_text()
        nodes = re.findall(r"^(QCCL_[\d.]+)", (SOURCE / "lib/qccl.map").read_text(), re.M)
        self.assertEqual(re.findall(r"\(symver\)(\S+)", symbols), nodes)
        self.assertTrue(symbols.startswith("libqccl.so.0 libqccl0 "))

    def test_debian_installs_each_file_once(self):
        tree = InstalledTree(MESON, BUILD)
        self.addCleanup(tree.remove)
        there = self.debian_names(tree)
        patterns = {pattern: path.stem for path in (PACKAGING / "debian").glob("*.install") for pattern in path.read_text().split()}
        self.assertGreater(len(patterns), 10)
        for name in there:
            packages = [package for pattern, package in patterns.items()
                        if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, pattern + "/*")]
            self.assertEqual(len(packages), 1, f"{name} is in {packages}")
        for pattern in patterns:
            if not any(fnmatch.fnmatchcase(name, pattern) or name.startswith(pattern + "/") for name in there):
                found = any(fnmatch.fnmatchcase(name, pattern + "/*") for name in there)
                self.assertTrue(found or OPTIONAL.fullmatch(pattern), f"nothing is {pattern}")

    @staticmethod
    def debian_names(tree):
        """The paths that the files of the tree would have in Debian's packages."""
        libraries = str(tree.libraries.relative_to(tree.root))
        names = (str(path.relative_to(tree.root)) for path in tree.root.rglob("*") if path.is_symlink() or path.is_file())
        names = ("lib/machine" + name.removeprefix(libraries) 
                 if name.startswith(libraries + "/") and not name.startswith("lib/python") else name for name in names)
        return ["usr/" + name for name in names if pathlib.PurePath(name).name not in NOT_IN_DEBIAN]


class Wraps(unittest.TestCase):
    @staticmethod
    def wraps():
        for path in sorted(WRAPS.glob("*.wrap")):
            text = path.read_text()
            keys = dict(re.findall(r"^(\w+) = (.*)$", text.split("[provide]")[0], re.M))
            provided, = re.findall(r"^(\w+) = (\w+)$", text.split("[provide]")[1], re.M)
            yield path.stem, keys, *provided

    def test_they_serve_what_the_build_needs(self):
        """A library that has to be there has a wrap, and a wrap has a library that has to be there."""
        text = "".join((SOURCE / path).read_text() for path in ("meson.build", "topology/meson.build", "perf/meson.build"))
        needed = set(re.findall(r"dependency\('(\w+)'(?:, version: '[^']*')?\)", text)) - {"threads"}
        self.assertEqual({dependency for *_, dependency, _ in self.wraps()}, needed)

    def test_they_are_complete(self):
        for name, keys, dependency, variable in self.wraps():
            with self.subTest(name):
                self.assertRegex(keys["source_hash"], r"^[0-9a-f]{64}$")
                self.assertTrue(keys["source_url"].startswith("https://"))
                recipe = (WRAPS / "packagefiles" / keys["patch_directory"] / "meson.build").read_text()
                self.assertIn(f"{variable} = declare_dependency(", recipe)
                number = re.search(r"version: '(.*?)'", recipe)[1]
                for key in ("directory", "source_url", "source_filename"):
                    self.assertIn(number, keys[key])
                self.assertNotRegex(keys["source_url"], r"/(main|master|HEAD)\b")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
