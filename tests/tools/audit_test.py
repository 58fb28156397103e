"""QCCL_AUDIT from outside: the table and the files of whole jobs, against errors that are computed here.

usage: audit_test.py LIBQCCL, or audit_test.py LIBQCCL rank|threads KIND FOLDER
"""
import ctypes
import json
import os
import pathlib
import re
import sys
import tempfile
import threading
import unittest

import numpy as np

from launchers import HERE_ALONE, environment, free_port, start_by_hand

LIBRARY = sys.argv[1]
NETWORK = pathlib.Path(LIBRARY).with_name("libqccl_ucx.so")
RANKS, COUNT = 4, 1 << 18
PIECE = 4096  # values of a call of the job in pieces, which has a tag for each call
FLOAT32, INT32, SUM, AVG, MAX = 7, 2, 0, 4, 2
KINDS = ("independent", "correlated", "equal", "cancelling")


def values_of(kind, rank):
    """A rank's values: of ranks that have nothing in common, something, everything, or that cancel each other out."""
    own, common = np.random.default_rng(rank + 1), np.random.default_rng(0)
    scale = np.exp(np.repeat(common.normal(size=COUNT // 64), 64))
    shared, single = common.standard_normal(COUNT), own.standard_normal(COUNT)
    if kind == "gradients":  # heavy tails, some of it common to all ranks
        return (scale ** 0.7 * (0.6 * shared + 0.8 * own.standard_t(5, COUNT)))[:COUNT // 4].astype(np.float32)
    mixed = {"independent": single, "correlated": 0.7 * shared + 0.7 * single, "equal": shared,
             "cancelling": shared * (1 if rank % 2 else -1) + 0.2 * single}[kind]
    return (mixed * scale).astype(np.float32)


def nmse_of(kind, result):
    exact = sum(values_of(kind, rank).astype(np.float64) for rank in range(RANKS))
    return float(np.sum((result - exact) ** 2) / np.sum(exact ** 2))


class CollConfig(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("magic", ctypes.c_uint32), ("version", ctypes.c_uint32), ("codec", ctypes.c_void_p),
                ("algorithm", ctypes.c_char_p), ("timeout", ctypes.c_double), ("tag", ctypes.c_uint64), ("reserved", ctypes.c_uint64 * 8)]


class Rank:
    """The job's calls, as a program makes them."""

    def __init__(self, qccl, comm, rank):
        self.qccl, self.comm, self.rank = qccl, comm, rank

    def do(self, result):
        if result != 0:
            self.qccl.qcclGetLastError.restype = ctypes.c_char_p
            raise SystemExit(self.qccl.qcclGetLastError(self.comm).decode())

    def reduce(self, values, tag, op=SUM, number=FLOAT32, comm=None):
        config = CollConfig()
        self.do(self.qccl.qcclConfigInit(ctypes.byref(config), ctypes.c_size_t(ctypes.sizeof(config))))
        config.tag = tag
        sums = np.empty_like(values)
        self.do(self.qccl.qcclAllReduceConfig(values.ctypes.data_as(ctypes.c_void_p), sums.ctypes.data_as(ctypes.c_void_p),
                                              ctypes.c_size_t(values.size), number, op, comm or self.comm, None, ctypes.byref(config)))
        return sums

    def job(self, kind, folder):
        values = values_of(kind, self.rank)
        if kind == "gradients":
            pieces = [self.reduce(piece, 1 + tag) for tag, piece in enumerate(values.reshape(-1, PIECE))]
            np.save(folder / f"result-{self.rank}.npy", np.concatenate(pieces))
            self.do(self.qccl.qcclCommDestroy(self.comm))
            return
        for _ in range(4):
            sums = self.reduce(values, 1)
        np.save(folder / f"result-{self.rank}.npy", sums)
        self.reduce(values[:1000], 1)
        self.reduce(values, 9, op=AVG)
        self.reduce(np.zeros(5000, np.float32), 10)
        self.reduce(values, 0, op=MAX)
        self.reduce(np.arange(1000, dtype=np.int32), 0, number=INT32)
        self.do(self.qccl.qcclBarrier(self.comm, None))
        child = ctypes.c_void_p()
        self.do(self.qccl.qcclCommSplit(self.comm, self.rank % 2, 0, ctypes.byref(child), None))
        self.reduce(values, 1, comm=child)
        self.do(self.qccl.qcclCommDestroy(child))
        self.do(self.qccl.qcclCommDestroy(self.comm))


def run_threads(kind, folder):
    qccl = ctypes.CDLL(LIBRARY)
    comms = (ctypes.c_void_p * RANKS)()
    assert qccl.qcclCommInitAll(comms, RANKS, None) == 0
    ranks = [Rank(qccl, ctypes.c_void_p(comm), rank) for rank, comm in enumerate(comms)]
    threads = [threading.Thread(target=rank.job, args=(kind, folder)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run_rank(kind, folder):
    qccl = ctypes.CDLL(LIBRARY)
    comm = ctypes.c_void_p()
    if qccl.qcclCommInitEnv(ctypes.byref(comm), None) != 0:
        qccl.qcclGetLastError.restype = ctypes.c_char_p
        raise SystemExit(qccl.qcclGetLastError(None).decode())
    Rank(qccl, comm, int(os.environ["RANK"])).job(kind, folder)


class Audits(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def run_job(self, how, kind, expect=0, hosts=1, **settings):
        """What all ranks said."""
        command = [sys.executable, __file__, LIBRARY, how, kind, str(self.folder)]
        port = free_port()
        ranks = [{}] if how == "threads" else [
            {"RANK": rank, "WORLD_SIZE": RANKS, "MASTER_ADDR": "localhost", "QCCL_PORT": port, "QCCL_HOSTID": f"host{rank * hosts // RANKS}"}
            for rank in range(RANKS)]
        ended = start_by_hand([command] * len(ranks), [environment(**rank, **settings) for rank in ranks])
        for status, _, said in ended:
            self.assertEqual(status, expect, said)
        return "".join(said for _, _, said in ended)

    def audit(self, how, kind, codecs, **settings):
        """What was said, and each rank's file."""
        said = self.run_job(how, kind, QCCL_AUDIT=codecs, QCCL_AUDIT_FILE=self.folder / f"{how}-{kind}.json", **settings)
        return said, [json.loads((self.folder / f"{how}-{kind}-{rank}.json").read_text()) for rank in range(RANKS)]

    def result(self):
        results = [np.load(self.folder / f"result-{rank}.npy") for rank in range(RANKS)]
        for result in results:
            self.assertEqual(result.tobytes(), results[0].tobytes())
        return results[0]

    @staticmethod
    def row_of(file, **fields):
        rows = [row for row in file["rows"] if all(row[name] == value for name, value in fields.items())]
        assert len(rows) == 1, (fields, file["rows"])
        return rows[0]

    def test_the_table_of_a_job(self):
        for how in ("threads", "processes"):
            with self.subTest(how):
                said, files = self.audit(how if how == "threads" else "rank", "independent", "int8,int4,topk", QCCL_ALGO="direct")
                self.assertLess(nmse_of("independent", self.result()), 1e-13)  # the job is as it was
                # One rank speaks for all, once.
                self.assertEqual(said.count("QCCL_AUDIT of rank 0 of 4"), 1)
                self.assertEqual(said.count("QCCL_AUDIT of"), 1)
                table = re.findall(r"(init|split), (\d) ranks +(\S+) +(\d+) +\S+ \w+ +int8", said)
                self.assertEqual(table, [("init", "4", "1", "5"), ("init", "4", "9", "1"), ("init", "4", "10", "1"), ("split", "2", "1", "1")])
                self.assertIn("3 other calls are not in it", said)
                # Of tag 10 nothing is known: its values are zeros.
                for line in ("NMSE up to 1e-01: int4\n", "NMSE up to 1e-02: int8\n", "NMSE up to 1e-05: none of them\n"):
                    self.assertIn(line, said)
                for rank, file in enumerate(files):
                    self.assertEqual((file["qccl_audit"], file["rank"], file["ranks"], file["other_calls"]), (1, rank, RANKS, 3))
                    self.assertEqual(len(file["rows"]), 5)
                    row = self.row_of(file, communicator="init, 4 ranks", tag=1, count=COUNT)
                    self.assertEqual((row["collective"], row["type"], row["op"], row["bytes"], row["calls"]),
                                     ("all_reduce", "float", "sum", 4 * COUNT, 4))
                    self.assertGreaterEqual(row["samples"], 1)
                    self.assertEqual([codec["codec"] for codec in row["codecs"]], ["int8", "int4", "topk"])
                    self.assertEqual([codec["bits"] for codec in row["codecs"]][:2], [8.5, 4.5])
                    for codec in row["codecs"]:
                        self.assertGreater(codec["predicted_ns"], 0)
                        self.assertGreaterEqual(codec["worst_nmse"], 0.9 * codec["nmse"])
                    zeros = self.row_of(file, tag=10)
                    self.assertEqual([codec["nmse"] for codec in zeros["codecs"]], [0, 0, 0])

    def test_errors_are_those_of_the_codecs(self):
        """The job is run with a codec that the audit has tried: its result errs as was said, and by hardly more."""
        for algorithm, kind in ((algorithm, kind) for algorithm in ("direct", "ring") for kind in KINDS):
            _, files = self.audit("threads", kind, "int8,int4,terngrad", QCCL_ALGO=algorithm)
            rows = [self.row_of(file, communicator="init, 4 ranks", tag=1, count=COUNT) for file in files]
            for number, codec in enumerate(("int8", "int4", "terngrad")):
                if codec == "terngrad" and algorithm == "ring":
                    continue
                with self.subTest(algorithm=algorithm, kind=kind, codec=codec):
                    self.run_job("threads", kind, QCCL_CODEC=f"{codec}:min=0", QCCL_ALGO=algorithm)
                    measured = nmse_of(kind, self.result())
                    for row in rows:
                        found = row["codecs"][number]
                        self.assertEqual(found["algorithm"], algorithm)
                        self.assertGreater(found["worst_nmse"], 0.95 * measured)
                        # What is taken for granted of ranks that resemble each other, or cancel each other out.
                        too_high = {"independent": 1.4, "correlated": 2, "equal": 3.5, "cancelling": 8}
                        self.assertLess(found["worst_nmse"], too_high[kind] * measured)
            for file in self.folder.glob("*.json"):
                file.unlink()

    def test_errors_of_gradients_are_expected(self):
        """The expected error of a job, all its pieces together, is near the one that the codec makes, and the cautious one is not."""
        exact = sum(values_of("gradients", rank).astype(np.float64) for rank in range(RANKS))
        weights = np.square(exact).reshape(-1, PIECE).sum(axis=1)
        codecs = ("int8", "int4", "minmax:bits=4", "mxfp8e4m3", "onebit", "topk:ratio=0.1")
        for algorithm in ("direct", "ring"):
            _, files = self.audit("threads", "gradients", ",".join(codecs), QCCL_ALGO=algorithm)
            for number, codec in enumerate(codecs):
                with self.subTest(algorithm=algorithm, codec=codec):
                    self.run_job("threads", "gradients", QCCL_CODEC=f"{codec}:min=0" if ":" not in codec else f"{codec},min=0", QCCL_ALGO=algorithm)
                    measured = float(np.sum((self.result() - exact) ** 2) / np.sum(exact ** 2))
                    rows = [[self.row_of(file, tag=1 + tag)["codecs"][number] for tag in range(weights.size)] for file in files]
                    expected, worst = (np.average([[row[name] for row in of_rank] for of_rank in rows], axis=0) @ weights / weights.sum()
                                       for name in ("nmse", "worst_nmse"))
                    self.assertLess(abs(expected / measured - 1), 0.15)
                    if codec == "int4":
                        self.assertGreater(worst, 1.2 * measured)
            for file in self.folder.glob("*.json"):
                file.unlink()

    @unittest.skipUnless(NETWORK.exists(), "no network between hosts")
    def test_the_gain_is_that_of_the_network(self):
        gains = []
        for rate in ("1gbit", "100gbit"):
            self.audit("rank", "independent", "int4", QCCL_LINK_RATE=rate, hosts=2, **HERE_ALONE)
            row = self.row_of(json.loads((self.folder / "rank-independent-3.json").read_text()), communicator="init, 4 ranks", tag=1, count=COUNT)
            gains.append(row["codecs"][0]["lossless_predicted_ns"] / row["codecs"][0]["predicted_ns"])
            for file in self.folder.glob("*.json"):
                file.unlink()
            self.assertTrue(row["rate_known"])
        self.assertGreater(gains[0], 2)
        self.assertGreater(gains[0], 1.3 * gains[1])

    def test_what_cannot_be_is_refused(self):
        for settings, sentence in (({"QCCL_AUDIT": "int7"}, 'QCCL_AUDIT: codec is "int7"; possible are none, fp16'),
                                   ({"QCCL_AUDIT": "int8,none"}, "QCCL_AUDIT: none loses nothing of its own; expected codecs such as int8,int4"),
                                   ({"QCCL_AUDIT": "shared"}, "QCCL_AUDIT: what shared loses depends on scales on which ranks agree"),
                                   ({"QCCL_AUDIT": "auto:bits=4"}, "QCCL_AUDIT: auto:bits=4 loses nothing of its own"),
                                   ({"QCCL_AUDIT": ",".join(["int8"] * 9)}, "QCCL_AUDIT: 9 codecs; at most 8 are possible"),
                                   ({"QCCL_AUDIT": "int8", "QCCL_AUDIT_FILE": "a%q"}, 'QCCL_AUDIT_FILE "a%q": %h is the host')):
            said = self.run_job("rank", "equal", expect=1, **settings)
            self.assertIn(sentence, said)

    def test_a_file_that_cannot_be_written_is_told(self):
        said = self.run_job("threads", "equal", QCCL_AUDIT="int8", QCCL_AUDIT_FILE=self.folder / "no" / "a.json")
        self.assertIn("QCCL_AUDIT_FILE: ", said)
        self.assertIn("No such file or directory", said)
        self.assertEqual(said.count("QCCL_AUDIT of rank 0"), 1)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        {"rank": run_rank, "threads": run_threads}[sys.argv[2]](sys.argv[3], pathlib.Path(sys.argv[4]))
    else:
        unittest.main(argv=sys.argv[:1])
