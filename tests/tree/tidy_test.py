"""clang-tidy 14 finds nothing in the library and the tools; .clang-tidy has its checks. All files take minutes, so the test of every
commit names a few folders, whose sources it reads as one file each: most of the time goes into what they include. The nightly
script names none, which means all, file by file, because misc-unused-using-decls looks at no included file.

usage: tidy_test.py SOURCE_ROOT BUILD_DIR [FOLDER...]
"""
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

from compiled_files import compiled_files
from kept_files import write_if_new

ROOT, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
TOGETHER = [ROOT / folder for folder in sys.argv[3:]]
FOLDERS = TOGETHER or [ROOT / folder for folder in ("bootstrap", "kernels", "lib", "perf", "topology")]
COMMANDS = BUILD / "tests" / "tidy"
TOOL = "clang-tidy-14"  # other releases find other things


def as_one_file(folder, rows):
    """A row for a file that includes the folder's, which one command compiles but for their names."""
    inside = {row["file"]: row for row in rows if pathlib.Path(row["file"]).is_relative_to(folder)}
    together = COMMANDS / f"{folder.name}.cpp"
    write_if_new(together, "".join(f'#include "{file}"\n' for file in sorted(inside)))
    file, row = next(iter(inside.items()))
    return {**row, "file": str(together), "command": row["command"].replace(file, str(together))}


def files_to_check():
    """Those of the folders, with the commands that compile them written to where clang-tidy reads them."""
    rows = [row for row in compiled_files(BUILD) if row["file"].endswith(".cpp") and any(pathlib.Path(row["file"]).is_relative_to(folder) for folder in FOLDERS)]
    COMMANDS.mkdir(parents=True, exist_ok=True)
    rows = [as_one_file(folder, rows) for folder in TOGETHER] or rows
    (COMMANDS / "compile_commands.json").write_text(json.dumps(rows))
    return sorted({row["file"] for row in rows})


def check(file):
    """What is found, with the file's name; clang-tidy does not know where Meson's precompiled header is."""
    done = subprocess.run([TOOL, "--quiet", "-p", COMMANDS, f"--extra-arg=-I{ROOT / 'perf/precompiled'}", file],
                          cwd=ROOT, capture_output=True, text=True, check=False)
    return f"{file}:\n{done.stdout}{done.stderr}" if done.returncode != 0 or done.stdout else ""


class Tidy(unittest.TestCase):
    @unittest.skipIf(shutil.which(TOOL) is None, f"{TOOL} is not installed")
    def test_nothing_is_found(self):
        files = files_to_check()
        self.assertNotEqual(files, [])
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            found = [text for text in pool.map(check, files) if text]
        if found:
            self.fail("\n".join(found)[:8000])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
