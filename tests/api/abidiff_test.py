"""The ABI against the last release: nothing that it exported may change. Builds the release's tag anew, so that
nothing binary has to be kept; skipped where there is no release yet, no history or no abidiff.

usage: abidiff_test.py SOURCE_ROOT LIBRARY MESON
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
ROOT, LIBRARY, MESON = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
# abidiff's exit status is a set of bits; these alone say that programs may break.
ERRORS = 1 | 2 | 8


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def last_release():
    found = run("git", "-C", ROOT, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^")
    if found.returncode != 0:
        skip("no release is tagged before this commit")
    return found.stdout.strip()


def build(tag, folder):
    archive = subprocess.run(["git", "-C", ROOT, "archive", tag], check=True, capture_output=True).stdout
    source, objects = folder / "source", folder / "build"
    source.mkdir()
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    for command in ([MESON, "setup", objects, source, "-Dtests=false", "-Dperf=false", "-Dbuildtype=debugoptimized"],
                    ["ninja", "-C", objects]):
        done = run(*command)
        if done.returncode != 0:
            sys.exit(f"{tag} does not build:\n{done.stdout}{done.stderr}")
    return next(path for path in objects.rglob("libqccl.so.*") if path.is_file() and not path.is_symlink())


def main():
    if not shutil.which("abidiff"):
        skip("abidiff (Debian: abigail-tools) is not installed")
    tag = last_release()
    with tempfile.TemporaryDirectory(prefix="qccl_abi_") as folder:
        release = build(tag, pathlib.Path(folder))
        done = run("abidiff", "--no-added-syms", release, LIBRARY)
    print(f"against {tag}: abidiff says {done.returncode}\n{done.stdout}{done.stderr}")
    sys.exit(1 if done.returncode & ERRORS else 0)


if __name__ == "__main__":
    main()
