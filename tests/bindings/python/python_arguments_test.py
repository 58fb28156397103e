"""What the Python package says about arguments that are no arrays: numbers, names, options of calls, and its own source.

usage: python_arguments_test.py PACKAGE_SOURCE   (the folder of the package in the source tree)
"""
import inspect
import os
import subprocess
import sys
import threading
import unittest

import numpy as np
import qccl
from qccl import _comm

SOURCE = sys.argv[1]


class Refusals(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.comm, = qccl.init_all(1)

    @classmethod
    def tearDownClass(cls):
        cls.comm.close()

    def refused(self, sentence, call, *arguments, **options):
        with self.assertRaises(qccl.InvalidArgument) as caught:
            call(*arguments, **options)
        self.assertIn(sentence, str(caught.exception))

    def test_ranks(self):
        def body(comm):
            x, ones = np.ones(4, np.float32), np.ones(4, np.float32)
            self.refused("dest: 1.0 is no rank; pass an int from 0 to 1", comm.send, x, 1.0)
            self.refused("dest: 2 is no rank; pass an int from 0 to 1", comm.send, x, 2)
            self.refused("source: None is no rank", comm.recv, x, None)
            self.refused("source: '1' is no rank", comm.send_recv, x, 1, ones, "1")
            for method in (comm.broadcast, comm.reduce, comm.gather, comm.scatter, comm.gather_v, comm.scatter_v):
                for root in ("0", -1, 2**32):
                    self.refused(f"root: {root!r} is no rank; pass an int from 0 to 1", method, x, root=root)
            self.refused("exclude: 'a' is no rank", comm.shrink, ["a"])
            self.refused("exclude: a sequence of ranks is expected, not 1", comm.shrink, 1)
            return comm.broadcast(x * comm.rank, root=np.int64(1))[0]

        self.assertEqual(qccl.run_threads(2, body), [1.0, 1.0])

    def test_numbers(self):
        comm, x = self.comm, np.ones(2)
        self.refused("color: 'a' is no color; pass an int of 0 or more, or None", comm.split, "a")
        self.refused("color: -5 is no color", comm.split, -5)
        self.refused("key: 'a' is no key; pass an int", comm.split, 1, "a")
        self.refused("size: 'a' is no number of ranks; pass an int of 1 or more", comm.grow, "a")
        self.refused("stride: '3' is no number of values; pass an int of 0 or more", comm.all_gather, x, stride="3")
        self.refused("stride: -3 is no number of values", comm.all_to_all, x, stride=-3)
        self.refused("stride: 2.5 is no number of values", comm.barrier, stride=2.5)
        self.refused("counts: its entries are 0 or more, and ints, and [1.0] has others", comm.all_gather_v, x, [1.0])
        self.refused("counts: it has an entry for each of the 1 ranks, and 5 has not", comm.all_gather_v, x, 5)

    def test_options(self):
        comm, x = self.comm, np.ones(2)
        for tag in ("a", 1.5, -1):
            self.refused(f"tag: {tag!r} is no tag; pass an int of 0 or more", comm.all_reduce, x, tag=tag)
        self.refused("tag: 18446744073709551616 is no tag; pass an int from 0 to 18446744073709551615", comm.all_reduce, x, tag=2**64)
        self.refused("timeout: '3' is no number of seconds; pass an int or a float", comm.all_reduce, x, timeout="3", tag=1)
        for name in ("algorithm", "codec"):
            self.refused(rf"{name}: 'a\x00b' has a character with the number 0", comm.all_reduce, x, **{name: "a\0b"})
        self.refused("algorithm: a text is expected, not 4", comm.all_reduce, x, algorithm=4)
        self.refused('codec: 4 is no codec; pass a text such as "int8", or a qccl.Codec', comm.all_reduce, x, codec=4)
        self.refused("codec: [] is no codec", comm.all_reduce, x, codec=[])
        self.refused("codec: 'int4@bytes>=1M' has a condition. Conditions belong to QCCL_CODEC", comm.all_reduce, x, codec="int4@bytes>=1M")
        self.refused("op: [] is none of sum, prod", comm.all_reduce, x, [])
        self.refused("collective: a text is expected, not 4", comm.prepare, 4)
        comm.all_reduce(x, tag=np.uint64(2**64 - 1), timeout=np.float32(3), codec=None, algorithm=None, stream=None)

    def test_making_communicators(self):
        id = qccl.unique_id()
        self.refused("rank: '0' is no rank; pass an int", qccl.init, rank="0", size=1, id=id)
        self.refused("size: '1' is no number of ranks; pass an int", qccl.init, rank=0, size="1", id=id)
        self.refused("timeout: '3' is no number of seconds", qccl.init, rank=0, size=1, id=id, timeout="3")
        self.refused("fusion: '3' is no number of bytes; pass an int", qccl.init, rank=0, size=1, id=id, fusion="3")
        self.refused("codec: 'int4@bytes>=1M' has a condition", qccl.init, rank=0, size=1, id=id, codec="int4@bytes>=1M")
        self.refused("log: a function is expected, not 3", qccl.init, rank=0, size=1, id=id, log=3)
        self.refused("allgather: a function is expected, not 3", qccl.init, rank=0, size=1, allgather=3)
        self.refused("size: '2' is no number of ranks; pass an int of 1 or more", qccl.init_all, "2")
        self.refused("size: 0 is no number of ranks", qccl.init_all, 0)
        self.refused("devices: a list with a name for each rank is expected, not 'host'", qccl.init_all, 4, "host")
        self.refused("pass an int of 1 or more, before the function", qccl.run_threads, print, 2)
        self.refused("function: a function is expected, not 2", qccl.run_threads, 2, 2)
        comm, = qccl.init_all(np.int32(1))
        comm.close()

    def test_sentences_have_the_names_of_python(self):
        x = np.ones(8, np.float32)
        self.refused("possible are max, min, bit_and, bit_or, bit_xor, logical_and, logical_or, logical_xor", self.comm.all_reduce, np.array([True]))
        self.refused("possible are min_loc, max_loc", self.comm.all_reduce, np.zeros(3, qccl.pair_dtype("float32")))
        with self.assertRaisesRegex(qccl.InvalidArgument, r"^x \(16 bytes at .*\) and out \(16 bytes at .*\) overlap"):
            self.comm.all_reduce(x[:4], out=x[2:6])
        self.refused("rank 0 is this rank itself; send_recv copies values within a rank", self.comm.send, x, 0)
        for op in ("bit_and", "bitand"):
            self.assertIn("all_reduce", self.comm.explain(f"all_reduce count=8 type=int32 op={op}"))


class Settings(unittest.TestCase):
    def test_settings_reach_the_library(self):
        """It refuses ranks with different ones, by name."""
        for name, value in (("codec", "int8"), ("algorithm", "ring"), ("reproducible", True), ("fusion", 4096)):
            sentences, id = [], qccl.unique_id()

            def join(rank, name=name, value=value, sentences=sentences, id=id):
                try:
                    qccl.init(rank=rank, size=2, id=id, **({name: value} if rank else {}))
                except qccl.Mismatch as error:
                    sentences.append(str(error))

            threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for sentence in sentences:
                self.assertIn(f'{name}: rank 1 has "{int(value) if value is True else value}"', sentence)
            self.assertEqual(len(sentences), 2, name)

    def test_a_child_has_the_settings_of_its_parent(self):
        with qccl.init(rank=0, size=1, id=qccl.unique_id(), name="parent", timeout=7, peer_timeout=5) as comm:
            with comm.dup() as child, comm.dup(timeout=9) as other:
                for each, timeout in ((comm, 7), (child, 7), (other, 9)):
                    config, _ = _comm.make_config(each)
                    self.assertEqual((config.name, config.timeout, config.peer_timeout), (b"parent", timeout, 5))


class Documentation(unittest.TestCase):
    def test_the_docstring_explains_every_option(self):
        text = inspect.getdoc(qccl.CallOptions)
        for option in qccl.CallOptions.__annotations__:
            self.assertIn(f"- `{option}`: ", text)
            self.assertIn(option, qccl.Comm.__doc__)

    def test_the_source_says_that_it_cannot_be_imported(self):
        done = subprocess.run([sys.executable, "-c", "import qccl"], env={**os.environ, "PYTHONPATH": os.path.dirname(SOURCE)}, capture_output=True,
                              text=True, check=False)
        self.assertIn(f"ImportError: {SOURCE} is the source of the package; use build/bindings/python, or pip install .", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
