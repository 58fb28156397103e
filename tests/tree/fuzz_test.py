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
OPTIONS = ["-Dfuzz=true", "-Dtests=false", "-Dperf=false", "-Dmpi=disabled", "-Dbuildtype=plain",
           "-Doptimization=1", "-Db_sanitize=address,undefined", "-Db_lundef=false", "-Dcuda=disabled", "-Dhip=disabled"]
# Of debug information lines are enough, which a finding is reported with.
ALL_FILES = ["-gline-tables-only", "-fPIC", "-pthread"]
# What nearly every file includes is read once. Clang refuses a precompiled header that was made with other options than
# the file that includes it.
HEADERS = ("algorithm array atomic chrono cmath cstdint cstdio cstdlib cstring functional map memory mutex optional set span string "
           "string_view thread utility vector").split()
COMPILE = ["clang++-14", "-std=c++20", "-O1", *ALL_FILES, "-D_FILE_OFFSET_BITS=64", "-fno-omit-frame-pointer",
              "-fsanitize=address,undefined", "-fsanitize=fuzzer-no-link", "-ffp-contract=off", "-fno-fast-math",
              "-fvisibility=hidden", "-fno-semantic-interposition"]
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


def set_up(folder):
    folder.mkdir(parents=True, exist_ok=True)
    headers = folder / "fuzz_headers.hpp"
    headers.write_text("".join(f"#include <{header}>\n" for header in HEADERS))
    run(*COMPILE, "-x", "c++-header", headers, "-o", f"{headers}.pch")
    words = " ".join(ALL_FILES)
    run(MESON, "setup", folder, ROOT, *OPTIONS, f"-Dc_args={words}", f"-Dcpp_args={words}", f"-Dfuzz_headers={headers}.pch")


def is_usable(folder):
    """Clang refuses a precompiled header when a system header, or clang itself, is another one since."""
    if not (folder / "build.ninja").is_file():
        return False
    tried = subprocess.run([*COMPILE, "-fsyntax-only", "-include-pch", folder / "fuzz_headers.hpp.pch", "-x", "c++", "/dev/null"],
                           capture_output=True, check=False)
    return tried.returncode == 0


skip_where_missing()
if not is_usable(pathlib.Path(FOLDER)):
    shutil.rmtree(FOLDER, ignore_errors=True)
    set_up(pathlib.Path(FOLDER))
run("ninja", "-C", FOLDER, "smoke_fuzzers")
run(MESON, "test", "-C", FOLDER, "--no-rebuild", "--suite", "smoke", "--print-errorlogs")
