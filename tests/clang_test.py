"""A second compiler reads the library: clang 14 finds nothing to warn about in what the first one built.
Exits 77 (skip) with a word where it is missing.

usage: clang_test.py SOURCE_ROOT BUILD_ROOT
"""
import json
import pathlib
import shlex
import shutil
import subprocess
import sys

ROOT, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
COMPILERS = {".c": "clang-14", ".cpp": "clang++-14"}
FOLDER = "tests/clang"
ROOMS = ("lib/", "bootstrap/", "topology/", "kernels/")
SKIP = 77


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


def rules():
    """A line of ninja for each source: as Meson has it compiled, but by clang, and only looked at."""
    seen = set()
    for row in json.loads((BUILD / "compile_commands.json").read_text()):
        source = (BUILD / row["file"]).resolve()
        if not source.is_relative_to(ROOT):
            continue
        name = source.relative_to(ROOT).as_posix()
        if name in seen or not name.startswith(ROOMS):
            continue
        seen.add(name)
        look = shlex.join([COMPILERS[source.suffix], *options_of(row["command"]), "-Werror", "-fsyntax-only"])
        yield f"build {FOLDER}/{name.replace('/', '_')}.clean: look {source}\n  look = {look}\n"


def write_ninja():
    """What has been found clean is looked at again only when it, or what it includes, has changed."""
    found = list(rules())
    if len(found) < 50:
        sys.exit(f"clang_test: only {len(found)} sources")
    head = (f"builddir = {FOLDER}\n"
            "rule look\n  description = clang $in\n  command = $look -MD -MF $out.d -MT $out $in && touch $out\n"
            "  depfile = $out.d\n  deps = gcc\n")
    target = BUILD / FOLDER / "build.ninja"
    target.parent.mkdir(exist_ok=True)
    text = "\n".join([head, *found])
    if not target.exists() or target.read_text() != text:
        target.write_text(text)
    return target


def main():
    for tool in (*COMPILERS.values(), "ninja"):
        if shutil.which(tool) is None:
            print(f"clang_test: skipped, {tool} is not installed")
            sys.exit(SKIP)
    command = ["ninja", "-k", "0", "-j2", "-C", str(BUILD), "-f", str(write_ninja())]
    sys.exit(subprocess.run(command, check=False).returncode)


main()
