"""The Python package as pip installs it, in clean environments: from this tree, and from the wheel of packaging/wheel.sh.

usage: pip_test.py   (exits 77, skipped, if pip cannot download; compiles the library twice, so it is a test of the night)
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import venv

from installed_tree import SOURCE, run

SKIPPED = 77
COMPILING = 3600
# Kernels for GPUs take most of a build, and other tests compile them.
OPTIONS = ["-Dcuda=disabled", "-Dhip=disabled"]


def readme_lines():
    """The Python program of the README, and what its comment says that it prints."""
    program, = re.findall(r"^```python\n(.*?)^```", (SOURCE / "README.md").read_text(), re.M | re.S)
    printed, = re.findall(r"#.*: (\[.*\])$", program, re.M)
    return program, printed


class Environment:
    def __init__(self, folder):
        venv.create(folder, with_pip=True, clear=True)
        self.programs = pathlib.Path(folder) / "bin"

    def run(self, program, *words, **options):
        return run(self.programs / program, *words, cwd="/", env={"PATH": f"{self.programs}:/usr/bin:/bin"}, **options)

    def install(self, *words):
        subprocess.run([self.programs / "pip", "--quiet", "install", *words], cwd="/", timeout=COMPILING, check=True)


class Pip(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="qccl_pip_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = Environment(self.folder / "venv")

    def check_package(self):
        program, printed = readme_lines()
        self.assertEqual(self.environment.run("python", "-c", program).strip(), printed)
        library = self.environment.run("python", "-c", "import qccl._library as library; print(library.library_path())").strip()
        self.assertTrue(library.startswith(str(self.folder)), library)
        for words in (["qccl-perf"], ["python", "-m", "qccl.perf"]):
            said = self.environment.run(*words, "all_reduce", "-b", "1K", "-e", "1K", "-n", "2", "--threads", "2", "--device", "emulated:0,emulated:0")
            self.assertRegex(said, r"(?m)^ *1024 ", said)
        self.assertIn("No broken requirements", self.environment.run("pip", "check"))

    def test_the_tree(self):
        self.environment.install("--upgrade", "pip")  # Debian's has no -C yet
        self.environment.install(*(f"-Csetup-args={option}" for option in OPTIONS), SOURCE)
        self.check_package()

    def test_the_wheel(self):
        made = subprocess.run([SOURCE / "packaging" / "wheel.sh", self.folder / "dist", *OPTIONS], stdout=subprocess.PIPE, text=True,
                              timeout=COMPILING, check=True).stdout.split()
        self.assertEqual(made, [str(path) for path in (self.folder / "dist").iterdir()])
        self.assertRegex(made[0], r"/qccl-[\d.]+-py3-none-manylinux_\w+\.whl$")
        self.environment.install(made[0])
        self.check_package()
        # Libraries that the wheel lacks are those of the C library, and those that the file of its module leaves to the system.
        inside = next((self.folder / "venv" / "lib").glob("python*/site-packages/qccl"))
        needed = run("ldd", inside / "lib" / "libqccl.so.0")
        for library in ("libhwloc", "libsodium"):
            self.assertRegex(needed, rf"{library}\S* => {self.folder}/\S+")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        reached = subprocess.run([Environment(name).programs / "pip", "--quiet", "download", "--no-deps", "--dest", name, "wheel"],
                                 capture_output=True, text=True, check=False)
    if reached.returncode != 0:
        print("skipped: pip cannot download:", reached.stderr.strip().splitlines()[-1])
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
