"""The examples for PyTorch on two ranks. The sharded training has the numbers over QCCL without a codec that it has over Gloo.

usage: torch_examples_test.py SOURCE_ROOT   (exits 77, skipped, without PyTorch; PYTHONPATH names the package and tests/support)
"""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from launchers import free_port, start_by_hand

EXAMPLES = pathlib.Path(sys.argv[1]) / "examples"
RANKS = 2
SKIPPED = 77


def environments():
    port = free_port()
    return [{**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"} for rank in range(RANKS)]


class Examples(unittest.TestCase):
    def run_ranks(self, *words, patience=90):
        """What rank 0 prints."""
        ended = start_by_hand([[sys.executable, *map(str, words)]] * RANKS, environments(), patience, ends_with_first_failure=True)
        self.assertEqual([status for status, _, _ in ended], [0] * RANKS, "\n".join(errors for _, _, errors in ended))
        return ended[0][1]

    def test_sharded_training(self):
        words = [EXAMPLES / "fsdp2.py", "--steps", 60, "--width", 128, "--backend"]
        over_gloo = self.run_ranks(*words, "gloo")
        first, last, mine, total = re.search(r"loss (\S+) at first, (\S+) in the last steps; rank 0 of 2 holds (\d+) of (\d+)", over_gloo).groups()
        self.assertLess(float(last), float(first))
        self.assertLess(int(mine), 0.6 * int(total))
        # The first run compiles the extension.
        self.assertEqual(self.run_ranks(*words, "qccl", patience=600), over_gloo.replace("gloo", "qccl"))
        encoded = self.run_ranks(*words, "qccl", "--codec", "int4")
        self.assertIn(f"loss {first} at first", encoded)
        self.assertNotIn(f"{last} in the last", encoded)

    @unittest.skipUnless(importlib.util.find_spec("sklearn"), "scikit-learn, which has the digits, is not installed")
    def test_replicated_training(self):
        """As the file's first lines have it, under torchrun."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "results.json"
            done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--master-port", str(free_port()),
                                   EXAMPLES / "train_digits.py", "--codec", "int4", "--error-feedback", "--steps", "40", "--json", path],
                                  capture_output=True, text=True, timeout=90, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            results = json.loads(path.read_text())
        self.assertIn("2 ranks, int4: accuracy", done.stdout)
        self.assertEqual((results["ranks"], results["steps"]), (RANKS, 40))
        self.assertGreater(results["accuracy"], 0.5)
        self.assertLess(results["sent_bytes"], 40 * 4 * results["parameters"] / 5)


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print("skipped: PyTorch is not installed")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1], verbosity=1)
