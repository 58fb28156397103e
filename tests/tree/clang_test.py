"""A second compiler reads the library: clang 14 finds nothing to warn about in what the first one built. It compiles the
sources of the fuzzers with their sanitizers, and the fuzzers find nothing; it only looks at the rest. Exits 77 (skip) with a
word where clang 14 or libFuzzer is missing; without libFuzzer it looks at all sources first.

usage: clang_test.py SOURCE_ROOT BUILD_ROOT FUZZ_FOLDER MESON
"""
import json
import pathlib
import shlex
import shutil
import subprocess
import sys

import fuzz_build

ROOT, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
FUZZ_FOLDER, MESON = sys.argv[3:]
COMPILERS = {".c": "clang-14", ".cpp": "clang++-14"}
FOLDER = "tests/clang"
ROOMS = ("lib/", "bootstrap/", "topology/", "kernels/")
SKIP = 77
# What nearly every file includes is read once. Kernels, whose options differ, read it themselves.
HEADERS = ("algorithm array atomic chrono cmath cstdint cstdio cstdlib cstring deque functional map memory mutex optional set span string "
           "string_view thread utility vector").split()
# Options that have no warnings of their own, but with which the headers would have to be read alike.
NO_MATTER = ("-O", "-f", "-g", "-pthread")


def options_of(command):
    """Without compiler, source and outputs."""
    words = iter(shlex.split(command))
    for word in words:
        if word in ("-o", "-c", "-MF", "-MQ"):
            next(words)
        elif word == "-isystem":
            yield from (word, next(words))
        elif word.startswith("-") and word != "-MD":
            yield word


def look_of(source, options):
    """(command, what it needs beside the source)"""
    look = [COMPILERS[source.suffix], "-Werror", "-fsyntax-only"]
    if source.suffix != ".cpp" or source.is_relative_to(ROOT / "kernels"):
        return shlex.join([*look, *options]), ""
    options = [option for option in options if not option.startswith(NO_MATTER)]
    return shlex.join([*look, *options, "-include-pch", f"{FOLDER}/headers.pch"]), f" | {FOLDER}/headers.pch"


def rules(compiled):
    """A rule of ninja for each source that the fuzzers' build does not compile: compiled as Meson has it, but by clang and with
    -fsyntax-only."""
    seen = set()
    for row in json.loads((BUILD / "compile_commands.json").read_text()):
        source = (BUILD / row["file"]).resolve()
        if not source.is_relative_to(ROOT) or source in compiled:
            continue
        name = source.relative_to(ROOT).as_posix()
        if name in seen or not name.startswith(ROOMS):
            continue
        seen.add(name)
        look, needed = look_of(source, options_of(row["command"]))
        yield f"build {FOLDER}/{name.replace('/', '_')}.clean: look {source}{needed}\n  look = {look}\n"


def write_ninja(compiled):
    """What has been found clean is looked at again only when it, or what it includes, has changed."""
    found = list(rules(compiled))
    if len(found) + len(compiled) < 100:
        sys.exit(f"clang_test: only {len(found)} + {len(compiled)} sources")
    head = (f"builddir = {FOLDER}\n"
            "rule look\n  description = clang $in\n  command = $look -MD -MF $out.d -MT $out $in && touch $out\n"
            "  depfile = $out.d\n  deps = gcc\n"
            f"rule precompile\n  command = {COMPILERS['.cpp']} -std=c++20 -x c++-header $in -o $out\n"
            f"build {FOLDER}/headers.pch: precompile {FOLDER}/headers.hpp\n")
    target = BUILD / FOLDER / "build.ninja"
    target.parent.mkdir(exist_ok=True)
    headers = target.parent / "headers.hpp"
    if not headers.exists():
        headers.write_text("".join(f"#include <{header}>\n" for header in HEADERS))
    text = "\n".join([head, *found])
    if not target.exists() or target.read_text() != text:
        target.write_text(text)
    return target


def main():
    for tool in (*COMPILERS.values(), "ninja"):
        if shutil.which(tool) is None:
            print(f"clang_test: skipped, {tool} is not installed")
            sys.exit(SKIP)
    fuzz = fuzz_build.FuzzBuild(ROOT, FUZZ_FOLDER, MESON) if fuzz_build.is_possible() else None
    command = ["ninja", "-k", "0", "-j2", "-C", str(BUILD), "-f", str(write_ninja(fuzz.sources() if fuzz else set()))]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(1)
    if not fuzz:
        sys.exit(SKIP)
    fuzz.test()


main()
