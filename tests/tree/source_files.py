"""Which files of the tree its tests read."""
import pathlib

FOLDERS = (".", "bindings", "bootstrap", "docs", "examples", "include", "kernels", "lib", "packaging", "perf", "tests", "topology")


def paths(root, *suffixes):
    """The files with these suffixes, as paths from the root; of the root itself, those that lie right in it."""
    for folder in FOLDERS:
        found = (pathlib.Path(root) / folder).glob("*") if folder == "." else (pathlib.Path(root) / folder).rglob("*")
        for path in sorted(found):
            if path.is_file() and path.suffix in suffixes and "__pycache__" not in path.parts:
                yield path.relative_to(root).as_posix()
