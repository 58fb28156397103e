"""tests/gpu.sh on a machine without a GPU: it says so; and, on one that the CPU plays, it tests, measures and keeps results.

usage: gpu_script_test.py SOURCE_ROOT BUILD_FOLDER
"""
import csv
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])


def script(*parts, tree=ROOT, **variables):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("QTEST_", "QCCL_"))}
    return subprocess.run([tree / "tests/gpu.sh", *parts], capture_output=True, text=True, timeout=500,
                          env={**clean, **{name: str(value) for name, value in variables.items()}})


def links_to_the_build(folder):
    """What the script builds lies here already; its own files go where nothing is kept."""
    build = pathlib.Path(folder) / "build"
    build.mkdir()
    for name in ("lib", "perf", "tests"):
        os.symlink(BUILD / name, build / name)
    return build


def write_tool(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def bare_path(self):
        """Without nvidia-smi, whatever this machine has."""
        tools = self.folder / "tools"
        tools.mkdir()
        for tool in ("dirname", "date", "grep"):
            os.symlink(f"/usr/bin/{tool}", tools / tool)
        return tools

    def test_without_a_gpu_it_says_so(self):
        done = script("tests", PATH=self.bare_path(), QTEST_ROOT=self.folder)
        self.assertEqual((done.returncode, done.stderr), (77, ""))
        self.assertIn("skipped, neither nvidia-smi", done.stdout)

    def test_a_gpu_is_found_where_path_does_not_lead_to_nvidia_smi(self):
        tools, root = self.bare_path(), self.folder / "root"
        (root / "dev").mkdir(parents=True)
        (root / "dev/nvidia0").touch()
        done = script("tests", PATH=tools, QTEST_ROOT=root, QTEST_BUILD=self.folder)
        self.assertIn("cuda:0: no nvidia-smi says more", done.stdout)
        self.assertEqual((done.returncode, done.stderr), (1, f"gpu.sh: {self.folder} is not built; run tests/gpu.sh build\n"))
        (root / "dev/nvidia0").unlink()
        write_tool(root / "usr/local/nvidia/bin/nvidia-smi", 'if [ "$1" = -L ]; then echo GPU 0: H9; else echo NVIDIA H9, "$@"; fi')
        done = script("tests", PATH=tools, QTEST_ROOT=root, QTEST_BUILD=self.folder)
        self.assertIn("NVIDIA H9, --query-gpu=name", done.stdout)
        self.assertIn("--id=0\n", done.stdout)
        self.assertIn("is not built", done.stderr)

    def test_a_packed_folder_is_found(self):
        tree = self.folder / "tree"
        (tree / "tests").mkdir(parents=True)
        shutil.copy(ROOT / "tests/gpu.sh", tree / "tests/gpu.sh")
        for name in ("gpu-packages/usr/lib/x86_64-linux-gnu", "elsewhere/usr"):
            (tree / name).mkdir(parents=True)
        for variables, used in (({}, tree / "gpu-packages"), ({"QCCL_PREFIX": tree / "elsewhere"}, tree / "elsewhere")):
            done = script("tests", tree=tree, QTEST_DEVICE="emulated:0", **variables)
            self.assertIn(f"packages of {used}\n", done.stdout)

    def test_no_part_hangs_at_the_cost_of_another(self):
        """The limits of all parts, which a `timeout` writes down that runs nothing."""
        tools, build = self.folder / "tools", links_to_the_build(self.folder)
        seconds = self.folder / "seconds"
        write_tool(tools / "timeout", f'case $1 in -*) shift ;; esac; echo "$*" >>{seconds}; echo $CUDA_DEVICE_MAX_CONNECTIONS')
        write_tool(tools / "compute-sanitizer")
        write_tool(tools / "nvidia-smi")
        (build / "build.ninja").touch()
        done = script(PATH=f"{tools}:{os.environ['PATH']}", QTEST_DEVICE="cuda:0", QTEST_BUILD=build, QTEST_RESULTS=self.folder)
        lines = seconds.read_text().splitlines()
        self.assertGreater(len(lines), 13, done.stdout + done.stderr)
        self.assertLessEqual(sum(int(line.split()[0]) for line in lines), 480)
        self.assertEqual({word for word in done.stdout.split() if word.isdigit()} & {"8", "32"}, {"32"})
        order = [next(word for word in ("ninja", "qccl-perf codec", "real_kernels", "qccl-perf all_reduce") if word in line)
                 for line in lines if "compute-sanitizer" not in line and "real_gpu_test emulated" not in line and "real_gpu_test cuda" not in line]
        self.assertEqual(list(dict.fromkeys(order)), ["ninja", "qccl-perf codec", "real_kernels", "qccl-perf all_reduce"])

    def test_what_is_misspelt_is_refused(self):
        done = script("codec")
        self.assertEqual(done.returncode, 2)
        self.assertIn("collectives", done.stderr)
        for name, value in (("QCCL_PREFIX", "/nowhere"), ("QTEST_SECONDS", "soon"), ("QTEST_VALUES", "1e9")):
            done = script("tests", QTEST_DEVICE="emulated:0", **{name: value})
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
            self.assertTrue(done.stderr.startswith(f"gpu.sh: {name}"), done.stderr)

    def test_what_is_not_built_is_said_once(self):
        with tempfile.TemporaryDirectory() as folder:
            done = script("collectives", QTEST_DEVICE="emulated:0", QTEST_BUILD=folder)
        self.assertEqual((done.returncode, done.stderr), (1, f"gpu.sh: {folder} is not built; run tests/gpu.sh build\n"))

    def test_tests_without_their_gpu_are_skipped_and_not_passed(self):
        with tempfile.TemporaryDirectory() as folder:
            done = script("tests", QTEST_DEVICE="emulated:9", QTEST_BUILD=links_to_the_build(folder), QTEST_RESULTS=folder)
        self.assertEqual(done.returncode, 77, done.stdout + done.stderr)
        self.assertIn("skipped: kernels, collectives, segments\n", done.stdout)
        self.assertNotIn("passed", done.stdout)

    def test_what_there_is_no_time_for_is_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            done = script("codecs", QTEST_DEVICE="emulated:0", QTEST_BUILD=links_to_the_build(folder), QTEST_RESULTS=folder,
                          QTEST_SECONDS=0)
        self.assertEqual(done.returncode, 77)
        self.assertIn("not run: codec_float, codec_bfloat16\n", done.stdout)
        self.assertNotIn("failed", done.stdout)

    def test_what_the_end_of_the_time_stops_has_not_failed(self):
        tools, build = self.folder / "tools", links_to_the_build(self.folder)
        write_tool(tools / "timeout", "exit 124")
        for allowed, said, status in ((9, "not run: codec_float (stopped when the time was up)", 77),
                                      (400, "failed: codec_float after 40 s", 1)):
            done = script("codecs", PATH=f"{tools}:{os.environ['PATH']}", QTEST_DEVICE="emulated:0", QTEST_BUILD=build,
                          QTEST_RESULTS=self.folder, QTEST_SECONDS=allowed)
            self.assertEqual(done.returncode, status)
            self.assertIn(said, done.stdout)

    def test_it_tests_measures_and_keeps(self):
        with tempfile.TemporaryDirectory() as folder:
            build = links_to_the_build(folder)
            done = script("tests", "sanitizer", "codecs", "collectives", QTEST_DEVICE="emulated:0", QTEST_BUILD=build,
                          QTEST_RESULTS=f"{folder}/results", QTEST_VALUES=50000, QTEST_EVERY=40, QTEST_SECONDS=2000)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("all parts passed", done.stdout)
            self.assertIn("sanitizer: skipped", done.stdout)
            table = pathlib.Path(f"{folder}/results/emulated-gpu-of-32-lanes.md").read_text()
            with open(f"{folder}/results/emulated-gpu-of-32-lanes.csv") as file:
                rows = list(csv.DictReader(file))
        self.assertEqual({row["what"] for row in rows}, {"codec", "all_reduce"})
        self.assertEqual({row["launch"] for row in rows if row["what"] == "all_reduce"}, {"threads", "processes"})
        self.assertEqual({row["device"] for row in rows}, {"emulated:0"})
        for row in rows:
            self.assertGreater(float(row["time_us"]), 0)
        for word in ("# emulated GPU of 32 lanes", "| `topk` |", "| processes | 2 | 65536 |"):
            self.assertIn(word, table)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
