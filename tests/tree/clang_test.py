"""A second compiler reads the library: clang 14 finds nothing to warn about in what the first one built. It compiles the
sources of a commit's fuzzers with their sanitizers, and these fuzzers find nothing; it only looks at the rest, and at the
fuzzers of the night. Exits 77 (skip) with a word where clang 14 or libFuzzer is missing; without libFuzzer it looks at all
sources first.

usage: clang_test.py SOURCE_ROOT BUILD_ROOT FUZZ_FOLDER MESON
"""
import hashlib
import pathlib
import shlex
import shutil
import subprocess
import sys

import fuzz_build
from compiled_files import compiled_files
from kept_files import write_if_new

ROOT, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
FUZZ_FOLDER, MESON = sys.argv[3:]
COMPILERS = {".c": "clang-14", ".cpp": "clang++-14"}
FOLDER = "tests/clang"
ROOMS = ("lib/", "bootstrap/", "topology/", "kernels/", "tests/fuzz/")
SKIP = 77
# Options that have no warnings of their own, but with which the headers would have to be read alike.
NO_MATTER = ("-O", "-f", "-g", "-pthread")


def options_of(command):
    """Without compiler, source and outputs."""
    words = iter(shlex.split(command))
    for word in words:
        if word in ("-o", "-c", "-MF", "-MQ", "-include-pch"):
            next(words)
        elif word == "-isystem":
            yield from (word, next(words))
        elif word.startswith("-") and word != "-MD":
            yield word


def look_with(suffix, options, is_kernel):
    """(command, what it needs beside the sources). Headers that nearly all include are precompiled, but not for kernels, whose
    options differ."""
    look = [COMPILERS[suffix], "-Werror", "-fsyntax-only"]
    if suffix != ".cpp" or is_kernel:
        return shlex.join([*look, *options]), ""
    options = [option for option in options if not option.startswith(NO_MATTER)]
    return shlex.join([*look, *options, "-include-pch", f"{FOLDER}/headers.pch"]), f" | {FOLDER}/headers.pch"


def is_of_target(option):
    """Meson gives each target a folder of its own, in which sources do not include anything."""
    return option.startswith("-I") and option.endswith(".p")


def groups(compiled, fuzz_folder):
    """{(room, suffix, command, needed): [sources]} of the sources that the fuzzers' build does not compile. Those of a group are
    compiled by Meson in one room and with the same options. `fuzz_folder`: of the fuzzers' build, if there is one."""
    found, seen = {}, set()
    for row in [*compiled_files(BUILD), *(compiled_files(fuzz_folder) if fuzz_folder else [])]:
        source = pathlib.Path(row["file"])
        if not source.is_relative_to(ROOT) or source in compiled or source in seen:
            continue
        name = source.relative_to(ROOT).as_posix()
        if name.startswith(ROOMS):
            seen.add(source)
            folder = pathlib.Path(row["directory"])
            options = [f"-I{(folder / option[2:]).resolve()}" if option.startswith("-I") else option
                       for option in options_of(row["command"]) if not is_of_target(option)]
            # Fuzzers all have one function's name.
            room = source.stem if name.startswith("tests/") else "/".join(name.split("/")[:-1][:2])
            look = look_with(source.suffix, options, name.startswith("kernels/"))
            found.setdefault((room, source.suffix, *look), []).append(source)
    return found


def rule_of(key, sources):
    """A rule of ninja that looks at all sources of a group at once: what they include is read once for them all. Where names
    that files keep to themselves meet, it says so and looks at each source alone. A file that lacks an include which its
    neighbour has is found by the build of the night."""
    room, suffix, look, needed = key
    name = f"{FOLDER}/{room.replace('/', '_')}_{hashlib.sha256(look.encode()).hexdigest()[:8]}"
    together = BUILD / f"{name}{suffix}"
    # Not included: clang does not look for what a file does not use in what it includes.
    write_if_new(together, "".join(f'#line 1 "{source}"\n{source.read_text()}' for source in sources))
    return (f"build {name}.clean: look {name}{suffix}{needed}\n"
            f"  look = {look}\n  sources = {' '.join(map(str, sources))}\n  room = {room}\n")


def write_ninja(compiled, fuzz_folder):
    """What has been found clean is looked at again only when it, or what it includes, has changed."""
    folder = BUILD / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    found = groups(compiled, fuzz_folder)
    count = sum(len(sources) for sources in found.values()) + len(compiled)
    if count < 100:
        sys.exit(f"clang_test: only {count} sources")
    head = (f"builddir = {FOLDER}\n"
            "rule look\n  description = clang $room\n"
            "  command = { $look -ferror-limit=0 -MD -MF $out.d -MT $out $in 2>/dev/null || "
            "{ echo $room: not at once; for source in $sources; do $look $$source || exit; done; }; } && touch $out\n"
            "  depfile = $out.d\n  deps = gcc\n"
            f"rule precompile\n  command = {COMPILERS['.cpp']} -std=c++20 -x c++-header $in -o $out\n"
            f"build {FOLDER}/headers.pch: precompile {FOLDER}/headers.hpp\n")
    write_if_new(folder / "headers.hpp", fuzz_build.HEADERS)
    write_if_new(folder / "build.ninja", "\n".join([head, *(rule_of(*row) for row in found.items())]))
    return folder / "build.ninja"


def main():
    for tool in (*COMPILERS.values(), "ninja"):
        if shutil.which(tool) is None:
            print(f"clang_test: skipped, {tool} is not installed")
            sys.exit(SKIP)
    fuzz = fuzz_build.FuzzBuild(ROOT, FUZZ_FOLDER, MESON) if fuzz_build.is_possible() else None
    rules = write_ninja(fuzz.sources(), fuzz.folder) if fuzz else write_ninja(set(), None)
    command = ["ninja", "-k", "0", "-j2", "-C", str(BUILD), "-f", str(rules)]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(1)
    if not fuzz:
        sys.exit(SKIP)
    fuzz.test()


main()
