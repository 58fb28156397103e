"""The benchmark: runs qccl-perf, and gives its results as records.

    python -m qccl.perf all_reduce -b 8 -e 64M --codec int8     # the options are those of `man qccl-perf`

    import pandas, qccl.perf
    pandas.DataFrame(qccl.perf.measure("all_reduce", "-b", "8", "-e", "64M", "--codec", "int8"))
"""
from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any

from . import _errors
from ._library import PACKAGE, library_path

NAME = "qccl-perf"


def program() -> str:
    """Returns the path of qccl-perf: the one inside the package, the one of the library's installation or build, or that of PATH."""
    library = pathlib.Path(library_path())
    folders = [PACKAGE / "bin", *(parent / name for parent in library.parents[1:3] for name in ("bin", "perf"))]
    found = next((str(folder / NAME) for folder in folders if (folder / NAME).exists()), None) or shutil.which(NAME)
    if found is None:
        raise _errors.LibraryError(f"there is no {NAME}: neither beside {library} nor in PATH. It is installed with the library's tools")
    return found


def environment() -> dict[str, str]:
    """The program loads the library that this package uses."""
    folder = os.path.dirname(library_path())
    paths = [folder, os.environ.get("LD_LIBRARY_PATH")]
    return dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, paths))) if folder else dict(os.environ)


def measure(*arguments: str) -> list[dict[str, Any]]:
    """Runs qccl-perf with these arguments, and returns its measurements as records. A row of its table gives one for
    out of place and one for in place (`in_place`). Times are in microseconds, sizes in bytes.

    A rank that is not rank 0 of a launcher's job gets an empty list. Raises SystemFailure with what qccl-perf said if it fails.
    """
    with tempfile.TemporaryDirectory(prefix="qccl_perf_") as folder:
        output = pathlib.Path(folder) / "rows.json"
        command = [program(), *map(str, arguments), "--json", str(output)]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise _errors.SystemFailure(f"qccl-perf ended with status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
        return json.loads(output.read_text())["rows"] if output.exists() else []


def main() -> None:
    """Becomes qccl-perf with the arguments of the command line."""
    path = program()
    os.execve(path, [NAME, *sys.argv[1:]], environment())


if __name__ == "__main__":
    main()
