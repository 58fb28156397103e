"""perf/report/plot.py on what the tools write: crossovers, pictures, and what is refused. Pictures are left out where there is no matplotlib.

usage: plot_test.py SOURCE_ROOT QCCL_PERF QCCL_INFO
"""
import importlib.util
import json
import pathlib
import re
import sys
import tempfile
import unittest

import tool

ROOT, PERF, INFO = sys.argv[1:4]
PLOT = str(pathlib.Path(ROOT) / "perf/report/plot.py")
JOB = ("--topology", "4 x node(2 core) net:tcp:1gbit", "--ranks", "8")
HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def plot(*words, **more):
    return tool.run([sys.executable, PLOT, *words], **more)


class Plots(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def explained(self, *words):
        path = self.folder / "explained.json"
        tool.run([INFO, "explain", "all_reduce", *JOB, "-b", "64", "-e", "16M", "-f", "4", *words, "--json", path])
        return path

    def simulated(self):
        path = self.folder / "simulated.json"
        tool.run([PERF, "simulate", "all_reduce", *JOB, "-b", "64", "-e", "4M", "-f", "8", "--algo", "ring,tree,hierarchy", "--json", path])
        return path

    def measured(self):
        path = self.folder / "measured.json"
        tool.run([PERF, "all_reduce", "-b", "1K", "-e", "64K", "-f", "8", "-n", "2", "-c", "0", "--algo", "ring,direct", "--codec", "none,int8",
                  "--json", path])
        return path

    def written(self, name, rows):
        path = self.folder / name
        path.write_text(json.dumps({"rows": rows}))
        return path

    def row(self, algorithm, size, time, **more):
        return {"collective": "all_reduce", "dtype": "float", "op": "sum", "ranks": 2, "used_codec": "none", "algorithm": algorithm,
                "bytes": size, "time_us": time, **more}

    def test_curves_cross_where_their_lines_in_logarithms_do(self):
        # 10 us at any size, and 1 us a KiB: they are equal at 10 KiB.
        rows = [self.row(*point) for size in (1, 4, 16, 64) for point in (("flat", size << 10, 10), ("steep", size << 10, size))]
        rows.append(self.row("steep", 16 << 10, 1000, in_place=True))  # no part of the curve
        said = plot("--text", self.written("rows.json", rows)).stdout
        self.assertEqual(said, "all_reduce of float, 2 ranks\n  from 1 KiB: steep\n  from 10 KiB: flat instead of steep\n")

    def test_crossovers_of_explanations_are_where_the_planner_changes_its_mind(self):
        path = self.explained("--codec", "none")
        said = plot("--text", path).stdout
        rows = json.loads(path.read_text())["rows"]
        fastest = []
        for row in rows:
            times = {each["algorithm"]: each["time_us"] for each in row["candidates"] if each["verdict"] in ("chosen", "lost")}
            fastest.append(min(times, key=times.get))
        changes = [name for before, name in zip(fastest, fastest[1:]) if before != name]
        self.assertGreater(len(changes), 0)
        self.assertEqual(re.findall(r"from .*: (\S+) instead", said), changes)

    def test_all_three_kinds_are_read(self):
        for path, words in ((self.explained("--codec", "int4"), "all_reduce of float, 8 ranks\n  from 64 B: "),
                            (self.simulated(), "all_reduce of float, 8 ranks\n  from 64 B: "), (self.measured(), "all_reduce of float, 2 ranks\n  from 1 KiB: ")):
            self.assertTrue(plot("--text", path).stdout.startswith(words), path)
        together = plot("--text", self.explained(), self.simulated()).stdout
        self.assertRegex(together, r"\(explained, explain\)\n(.*\n)+all_reduce of float, 8 ranks \(simulated, simulate\)")

    @unittest.skipUnless(HAS_MATPLOTLIB, "this Python has no matplotlib, which pictures need")
    def test_pictures(self):
        for path in (self.explained("--codec", "none,int4"), self.simulated(), self.measured()):
            self.assertIn(f"written: {path.with_suffix('.png')}", plot(path).stdout)
            picture = path.with_suffix(".png").read_bytes()
            self.assertTrue(picture.startswith(b"\x89PNG"))
            self.assertGreater(len(picture), 20000)
        picture = self.folder / "together.svg"
        plot(self.explained("--codec", "none,int4"), self.simulated(), "--output", picture)
        self.assertIn("<svg", picture.read_text())
        self.assertIn("cannot write", plot(self.simulated(), "--output", "/nowhere/x.png", expect=2).stderr)

    @unittest.skipIf(HAS_MATPLOTLIB, "this Python has matplotlib")
    def test_without_matplotlib_the_way_out_is_named(self):
        self.assertIn("--text does without", plot(self.simulated(), expect=2).stderr)

    def test_what_is_no_such_file_is_refused(self):
        other = self.folder / "other"
        other.write_text("time 5")
        explanation = json.loads(self.explained().read_text())["rows"][0]
        for path, because in (("/nowhere.json", "cannot read /nowhere.json: No such file"), (other, "is no JSON"),
                              (self.written("empty.json", []), "no row with a size and a time"),
                              (self.written("zero.json", [self.row("ring", 0, 1)]), "no row with a size and a time"),
                              (self.written("odd.json", [{"bytes": 4}]), "'collective' is missing or wrong"),
                              (self.written("list.json", [3]), "is missing or wrong"),
                              (self.written("later.json", [{**explanation, "version": 2}]), "has version 2; this plot.py knows 1")):
            said = plot("--text", path, expect=2).stderr
            self.assertIn(because, said)
            self.assertTrue(said.startswith("plot.py: ") and said.count("\n") == 1, said)
        other.write_text("[1]")
        self.assertIn("has no rows", plot("--text", other, expect=2).stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
