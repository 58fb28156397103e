"""`./quickstart.sh --user` where there is neither a package manager nor root: which tools and libraries are missing is said by name, and
the build uses what there is. Meson and Ninja are played by scripts, so nothing is downloaded.

usage: quickstart_user_test.py
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from installed_tree import SOURCE

# What a bare machine has.
BARE = ("cat", "chmod", "dirname", "head", "sed", "sh", "sort", "mkdir", "python3")
MESON = """#!/bin/sh
[ "$1" = --version ] && { echo VERSION; exit; }
echo "meson $*" >>"$CALLS"
[ FAILS = yes ] && exit 1
mkdir -p build/perf && echo >build/build.ninja
"""
NINJA = """#!/bin/sh
echo "ninja $*" >>"$CALLS"
mkdir -p build/perf
printf '#!/bin/sh\\necho "demonstration: $*"\\n' >build/perf/qccl-perf
chmod +x build/perf/qccl-perf
"""


class QuickstartOfUser(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="qccl_user_")
        self.addCleanup(folder.cleanup)
        self.root, self.programs = pathlib.Path(folder.name) / "tree", pathlib.Path(folder.name) / "bin"
        (self.root / "subprojects/packagecache").mkdir(parents=True)
        self.programs.mkdir()
        shutil.copy(SOURCE / "quickstart.sh", self.root)
        for wrap in (SOURCE / "subprojects").glob("*.wrap"):
            shutil.copy(wrap, self.root / "subprojects")
        for name in BARE:
            (self.programs / name).symlink_to(shutil.which(name, path="/usr/bin:/bin"))
        self.calls = pathlib.Path(folder.name) / "calls"

    def add(self, name, text="#!/bin/sh\n"):
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def add_tools(self, version="1.4.0", fails="no"):
        for name in ("cc", "c++", "make"):
            self.add(name)
        self.add("meson", MESON.replace("VERSION", version).replace("FAILS", fails))
        self.add("ninja", NINJA)

    def call(self, *words, expect=0):
        done = subprocess.run(["sh", self.root / "quickstart.sh", "--user", *words], capture_output=True, text=True, timeout=60, check=False,
                              env={"PATH": str(self.programs), "CALLS": str(self.calls)})
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def test_words(self):
        self.assertIn("--user", subprocess.run(["sh", self.root / "quickstart.sh", "--help"], capture_output=True, text=True, check=True).stdout)
        for words in (["test"], ["bild"], ["build", "more"], ["--user"]):
            self.assertIn(words[-1], self.call(*words, expect=2).stderr)
        self.assertFalse(self.calls.exists())

    def test_missing_tools_are_named(self):
        self.add_tools()
        for name in ("cc", "c++", "make"):
            (self.programs / name).rename(self.programs / "away")
            self.assertIn(f"there is no {name};", self.call("build", expect=1).stderr)
            (self.programs / "away").rename(self.programs / name)

    def test_the_build_uses_what_there_is(self):
        self.add_tools()
        self.assertEqual(self.call("--codec", "int8").stdout, "demonstration: demo --codec int8\n")
        setup, build = self.calls.read_text().splitlines()
        self.assertTrue(setup.startswith("meson setup build "), setup)
        self.assertEqual(build, "ninja -C build")
        self.assertIn(f"{self.programs}/meson install", self.call("build").stderr)
        self.assertEqual(self.calls.read_text().splitlines()[2:], ["ninja -C build"])

    def test_missing_libraries_are_named(self):
        """Those whose sources are not there either, with the place that they come from and the one where they belong."""
        self.add_tools(fails="yes")
        (self.root / "subprojects/pugixml-1.13").mkdir()
        (self.root / "subprojects/packagecache/json-3.11.2.tar.gz").write_text("")
        said = self.call("build", expect=1).stderr
        listed = set(re.findall(r"^    (\w+): https://\S+ as subprojects/packagecache/\S+$", said, re.M))
        self.assertEqual(listed, {"CLI11", "libhwy", "hwloc", "libsodium"}, said)
        self.assertIn("PKG_CONFIG_PATH", said)

    def test_old_tools_are_not_used(self):
        """Python then installs others, which this machine refuses."""
        self.add_tools(version="0.61.2")
        (self.programs / "python3").unlink()
        self.add("python3", "#!/bin/sh\nexit 1\n")
        self.assertIn("Meson 1.0.1", self.call("build", expect=1).stderr)
        self.assertFalse(self.calls.exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
