"""An installation that has been moved to another place, and how the tests of this folder run commands on it."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def readme_program():
    """The example of the README, as it is printed: two ranks, of which each prints the average that it has."""
    program, = re.findall(r"^```c\n(.*?)^```", (SOURCE / "README.md").read_text(), re.M | re.S)
    return program


README_LINES = ["rank 0: 8", "rank 1: 8"]


def run(*command, expect=0, **options):
    """What the command says on both streams, after it has ended with the status that is expected."""
    words = [str(word) for word in command]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False, **options)
    assert done.returncode == expect, f"{' '.join(words)}: {done.returncode}\n{done.stdout}"
    return done.stdout


def forget_libraries_of(build):
    """Meson lets the loader of a test find the libraries of the build folder, where the installed ones are meant."""
    folders = os.environ.pop("LD_LIBRARY_PATH", "").split(":")
    if kept := [folder for folder in folders if folder and not pathlib.Path(folder).resolve().is_relative_to(pathlib.Path(build).resolve())]:
        os.environ["LD_LIBRARY_PATH"] = ":".join(kept)


class InstalledTree:
    """What `meson install` installs of a build folder, moved away from the place that the build was configured for."""

    def __init__(self, meson, build):
        forget_libraries_of(build)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="qccl_installed_"))
        run(meson, "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", self.folder / "first")
        self.root = self.folder / "moved"
        next(self.folder.rglob("qccl/qccl.h")).parents[2].rename(self.root)
        shutil.rmtree(self.folder / "first")
        self.libraries = next(self.root.rglob("qccl.pc")).parents[1]
        self.headers = self.root / "include"

    def remove(self):
        shutil.rmtree(self.folder)

    def has(self, library):
        return (self.libraries / library).exists()

    def pkg_config(self, *arguments, package="qccl", root=None):
        """The words that pkg-config prints. root: of a copy of the tree, if it is asked instead."""
        libraries = (root or self.root) / self.libraries.relative_to(self.root)
        return run("pkg-config", *arguments, package, env=dict(os.environ, PKG_CONFIG_PATH=str(libraries / "pkgconfig"))).split()

    def with_library(self, **more):
        """An environment in which the loader finds the shared libraries."""
        others = os.environ.get("LD_LIBRARY_PATH")
        return dict(os.environ, LD_LIBRARY_PATH=f"{self.libraries}:{others}" if others else str(self.libraries), **more)


def needed_by(program):
    """The names of the shared libraries that the program asks the loader for."""
    return re.findall(r"NEEDED.*\[(.*?)\]", run("readelf", "-dW", program))
