"""The fuzzers build with their sanitizers, and find nothing in a short run; tests/nightly.sh gives them millions.
Their build is kept, so that only what changed is compiled again. Exits 77 (skip) with a word where clang 14 or its
runtime is missing.

usage: fuzz_test.py SOURCE_ROOT FOLDER MESON
"""
import os
import pathlib
import platform
import shutil
import subprocess
import sys

ROOT, FOLDER, MESON = sys.argv[1:]
SKIP = 77
OPTIONS = ["-Dfuzz=true", "-Dtests=false", "-Dperf=false", "-Dmpi=disabled", "-Dbuildtype=debugoptimized",
           "-Doptimization=1", "-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dcuda=disabled", "-Dhip=disabled"]
STOP = {"ASAN_OPTIONS": "abort_on_error=1", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}


def skip_where_missing():
    if shutil.which("clang++-14") is None:
        print("fuzz_test: skipped, clang++-14 is not installed")
        sys.exit(SKIP)
    runtime = subprocess.run(["clang++-14", f"-print-file-name=libclang_rt.fuzzer-{platform.machine()}.a"], capture_output=True,
                             text=True, check=True).stdout.strip()
    if not pathlib.Path(runtime).is_file():
        print("fuzz_test: skipped, libFuzzer (Debian: libclang-rt-14-dev) is not installed")
        sys.exit(SKIP)


def run(*command):
    environment = os.environ | STOP | {"CC": "clang-14", "CXX": "clang++-14"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    print("+", *command, done.stdout, done.stderr, sep="\n")
    if done.returncode != 0:
        sys.exit(1)


skip_where_missing()
if not (pathlib.Path(FOLDER) / "build.ninja").is_file():
    run(MESON, "setup", FOLDER, ROOT, *OPTIONS)
run("ninja", "-C", FOLDER, "smoke_fuzzers")
run(MESON, "test", "-C", FOLDER, "--no-rebuild", "--suite", "smoke", "--print-errorlogs")
