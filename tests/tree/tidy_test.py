"""clang-tidy 14 finds nothing in the library and the tools; .clang-tidy has its checks. All files take minutes, so the test of every
commit names a few folders; the nightly script names none, which means all.

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

ROOT, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
FOLDERS = [ROOT / folder for folder in sys.argv[3:] or ("bootstrap", "kernels", "lib", "perf", "topology")]
TOOL = "clang-tidy-14"  # other releases find other things


def compiled_files():
    """Those of the folders, as the build compiles them."""
    files = {(pathlib.Path(entry["directory"]) / entry["file"]).resolve() for entry in json.loads((BUILD / "compile_commands.json").read_text())}
    return sorted(file for file in files if file.suffix == ".cpp" and any(file.is_relative_to(folder) for folder in FOLDERS))


def check(file):
    """What is found, with the file's name; clang-tidy does not know where Meson's precompiled header is."""
    done = subprocess.run([TOOL, "--quiet", "-p", BUILD, f"--extra-arg=-I{ROOT / 'perf/precompiled'}", file],
                          cwd=ROOT, capture_output=True, text=True, check=False)
    return f"{file}:\n{done.stdout}{done.stderr}" if done.returncode != 0 or done.stdout else ""


class Tidy(unittest.TestCase):
    @unittest.skipIf(shutil.which(TOOL) is None, f"{TOOL} is not installed")
    def test_nothing_is_found(self):
        files = compiled_files()
        self.assertNotEqual(files, [])
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            found = [text for text in pool.map(check, files) if text]
        if found:
            self.fail("\n".join(found)[:8000])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
