"""qccl-info adapt from outside: the codecs of layers as table, JSON and picture, and what is refused.

usage: adapt_info_test.py QCCL_INFO
"""
import json
import pathlib
import random
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import tool
from npy_file import save

INFO = sys.argv.pop(1)
LAYERS = {"embedding": (4000, 100), "block.weight": (20000, 1), "block.bias & more": (50, 10), "head": (6000, 3)}  # values, strength
RANKS = 3


class Adapt(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.layers = self.folder / "layers.json"
        self.layers.write_text(json.dumps([{"name": name, "count": count} for name, (count, _) in LAYERS.items()]))
        for rank in range(RANKS):
            numbers = random.Random(rank)
            save(self.folder / f"rank{rank}.npy", [numbers.gauss(0, strength) for count, strength in LAYERS.values() for _ in range(count)])

    def adapt(self, *words, **more):
        return tool.run([INFO, "adapt", "--input", self.folder / "rank%r.npy", "--layers", self.layers, *words], **more)

    def told(self, *words):
        return json.loads(self.adapt("--json", "-", *words).stdout)

    def test_fewer_bits_at_the_error_of_one_codec(self):
        for uniform in ("int4", "int6", "minmax:bits=3,bucket=64"):
            said = self.told("--uniform", uniform)
            self.assertEqual((said["version"], said["uniform"]), (1, uniform))
            self.assertEqual([layer["name"] for layer in said["layers"]], list(LAYERS))
            self.assertLess(said["bits"], 0.8 * said["uniform_bits"])
            self.assertLessEqual(said["nmse"], said["uniform_nmse"])
            self.assertLessEqual(sum(layer["error"] for layer in said["layers"]),
                                 sum(layer["uniform_error"] for layer in said["layers"]) * (1 + 1e-9))
            self.assertAlmostEqual(sum(layer["bits"] * layer["count"] for layer in said["layers"]) / sum(count for count, _ in LAYERS.values()),
                                   said["bits"])
            self.assertGreater(said["layers"][0]["bits"], said["layers"][1]["bits"])

    def test_candidates_are_the_only_choice(self):
        said = self.told("--candidates", "int2,minmax:bits=8,bucket=64,none")
        self.assertLessEqual({layer["codec"] for layer in said["layers"]}, {"int2", "int4", "minmax:bucket=64", "none"})
        self.assertEqual({layer["codec"] for layer in self.told("--candidates", "int4")["layers"]}, {"int4"})

    def test_the_table_has_a_line_for_each_layer(self):
        lines, said = self.adapt().stdout.splitlines(), self.told()
        for line, layer in zip(lines[1:], said["layers"]):
            self.assertTrue(line.startswith(layer["name"]), line)
            self.assertIn(f" {layer['codec']} ", line)
            self.assertEqual(line.count("#"), round(4 * layer["bits"]))
        fewer = 100 * (1 - said["bits"] / said["uniform_bits"])
        self.assertEqual(lines[-1], f"The layers take {said['bits']:.3f} bits a value instead of {said['uniform_bits']:.3f} with int4 ({fewer:.1f} % fewer), and "
                                    f"lose {said['nmse']:.3e} instead of {said['uniform_nmse']:.3e} of their power.")

    def test_the_picture_has_a_bar_for_each_layer(self):
        path = self.folder / "layers.svg"
        self.assertEqual(self.adapt("--svg", path).stdout, self.adapt().stdout)
        for text in (path.read_text(), self.adapt("--svg", "-").stdout):
            picture = xml.etree.ElementTree.fromstring(text)
            texts = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
            self.assertLessEqual({"embedding", "block.bias & more", "dashed: int4 for all layers"}, set(texts))
            bars = [each for each in picture.iter("{http://www.w3.org/2000/svg}rect") if each.get("fill") == "#4dabf7"]
            self.assertEqual(len(bars), len(LAYERS))
            self.assertGreater(float(bars[0].get("height")), float(bars[1].get("height")))

    def refused(self, sentence, *words, status=2):
        done = self.adapt(*words, expect=status)
        self.assertEqual(done.stdout, "")
        self.assertIn(sentence, done.stderr)

    def test_what_is_wrong_is_named(self):
        self.refused("int99", "--uniform", "int99")
        self.refused("int99", "--candidates", "int4,int99")
        self.refused("auto:nmse=0.01 is no codec of layers", "--uniform", "auto:nmse=1e-2")
        self.refused("only one of --svg and --json", "--svg", "-", "--json", "-")
        self.refused("No such file or directory", "--svg", self.folder / "none" / "layers.svg", status=1)
        self.layers.write_text("embedding 4000\nblock 20000\n")
        self.refused("have 24000 values together, but each rank has 30050")
        self.layers.write_text("all 30050\n")
        self.assertEqual(len(self.told()["layers"]), 1)
        save(self.folder / "rank1.npy", [float("nan")] * 30050)
        self.refused("have values that are not finite")
        save(self.folder / "rank1.npy", [1.0] * 4)
        self.refused("rank1.npy holds 4 values, and that of rank 0 holds 30050")
        save(self.folder / "rank0.npy", [1] * 4, "<i4", "i")
        save(self.folder / "rank1.npy", [1] * 4, "<i4", "i")
        save(self.folder / "rank2.npy", [1] * 4, "<i4", "i")
        self.layers.write_text("all 4\n")
        self.refused("int32 values travel as they are")
        for rank in range(RANKS):
            (self.folder / f"rank{rank}.npy").unlink()
        self.refused("rank0.npy")


if __name__ == "__main__":
    unittest.main()
