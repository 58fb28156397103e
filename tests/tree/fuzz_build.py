"""The fuzzers of a commit, built with their sanitizers by clang 14: a build of its own inside the build folder. It is kept, so that
only what changed is compiled again. Used by clang_test.py.
"""
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys

OPTIONS = ["-Dfuzz=true", "-Dtests=false", "-Dperf=false", "-Dmpi=disabled", "-Dbuildtype=plain", "-Dwerror=true",
           "-Doptimization=1", "-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dcuda=disabled", "-Dhip=disabled"]
# Of debug information lines are enough, which a finding is reported with. The checks left out take a quarter of the time
# to compile; the fuzzers of the night have them.
ALL_FILES = ["-gline-tables-only", "-fPIC", "-pthread", "-fno-sanitize=null,object-size,vptr"]
# What nearly every file includes is read once. Clang refuses a precompiled header that was made with other options than
# the file that includes it.
HEADERS = "".join(f"#include <{name}>\n" for name in (
    "algorithm array atomic chrono cmath cstdint cstdio cstdlib cstring functional map memory mutex optional set span string string_view "
    "thread utility vector").split())
COMPILE = ["clang++-14", "-std=c++20", "-O1", "-D_FILE_OFFSET_BITS=64", "-fno-omit-frame-pointer",
           "-fsanitize=address,undefined", "-fsanitize=fuzzer-no-link", "-ffp-contract=off", "-fno-fast-math",
           "-fvisibility=hidden", "-fno-semantic-interposition", *ALL_FILES]
MADE_WITH = repr((OPTIONS, ALL_FILES, HEADERS))
STOP = {"ASAN_OPTIONS": "abort_on_error=1", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}


def is_possible():
    """Says what is missing where the fuzzers cannot be built."""
    runtime = subprocess.run(["clang++-14", f"-print-file-name=libclang_rt.fuzzer-{platform.machine()}.a"], capture_output=True,
                             text=True, check=True).stdout.strip()
    if pathlib.Path(runtime).is_file():
        return True
    print("no fuzzers: libFuzzer (Debian: libclang-rt-14-dev) is not installed")
    return False


def run(*command, shown=True):
    environment = os.environ | STOP | {"CC": "clang-14", "CXX": "clang++-14"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if shown or done.returncode != 0:
        print("+", *command, done.stdout, done.stderr, sep="\n")
    if done.returncode != 0:
        sys.exit(1)
    return done.stdout


class FuzzBuild:
    def __init__(self, root, folder, meson):
        self.root, self.folder, self.meson = pathlib.Path(root), pathlib.Path(folder), meson
        if not self.is_usable():
            shutil.rmtree(self.folder, ignore_errors=True)
            self.set_up()

    def is_usable(self):
        """It has been set up with these options, and clang takes its precompiled header: it refuses it when a system header, or
        clang itself, is another one since."""
        options = self.folder / "options"
        if not options.is_file() or options.read_text() != MADE_WITH:
            return False
        tried = subprocess.run([*COMPILE, "-fsyntax-only", "-include-pch", self.folder / "fuzz_headers.hpp.pch", "-x", "c++", "/dev/null"],
                               capture_output=True, check=False)
        return tried.returncode == 0

    def set_up(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        headers = self.folder / "fuzz_headers.hpp"
        headers.write_text(HEADERS)
        run(*COMPILE, "-x", "c++-header", headers, "-o", f"{headers}.pch")
        words = " ".join(ALL_FILES)
        run(self.meson, "setup", self.folder, self.root, *OPTIONS, f"-Dc_args={words}", f"-Dcpp_args={words}",
            f"-Dfuzz_headers={headers}.pch")
        (self.folder / "options").write_text(MADE_WITH)

    def sources(self):
        """What the fuzzers of a short run are compiled from, with every warning an error."""
        run("ninja", "-C", self.folder, "build.ninja", shown=False)  # if a meson.build has changed
        commands = set(run("ninja", "-C", self.folder, "-t", "commands", "smoke_fuzzers", shown=False).splitlines())
        rows = json.loads((self.folder / "compile_commands.json").read_text())
        return {(self.folder / row["file"]).resolve() for row in rows if row["command"] in commands}

    def test(self):
        """The fuzzers find nothing in a short run; tests/nightly.sh gives them millions of inputs."""
        run("ninja", "-C", self.folder, "smoke_fuzzers")
        run(self.meson, "test", "-C", self.folder, "--no-rebuild", "--suite", "smoke", "--print-errorlogs")
