"""The library from Python's ctypes, without a header and without a macro: what every other language has.

usage: ctypes_test.py LIBRARY
"""
import ctypes
import sys
import threading
import unittest
from ctypes import c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

LIBRARY = sys.argv[1]
FLOAT32, SUM, SUCCESS, INVALID_ARGUMENT = 7, 0, 0, 4
RANKS = 2


class Callback(ctypes.Structure):
    _fields_ = [("function", c_void_p), ("context", c_void_p)]


class Config(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("magic", c_uint32), ("version", c_uint32), ("device", c_char_p), ("codec", c_char_p),
                ("algorithm", c_char_p), ("timeout", c_double), ("peer_timeout", c_double), ("idle", Callback),
                ("log", Callback), ("name", c_char_p), ("reproducible", c_int32), ("nonblocking", c_int32),
                ("fusion", c_int64),
                ("reserved", c_uint64 * 6)]


class CollConfig(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("magic", c_uint32), ("version", c_uint32), ("codec", c_void_p), ("algorithm", c_char_p),
                ("timeout", c_double), ("tag", c_uint64), ("stride", c_uint64), ("state", c_void_p),
                ("layers", c_void_p), ("nlayers", c_size_t), ("layer_min_size", c_uint64), ("reserved", c_uint64 * 3)]


def load():
    qccl = ctypes.CDLL(LIBRARY)
    qccl.qcclConfigInit.argtypes = [c_void_p, c_size_t]
    qccl.qcclCommInitAll.argtypes = [ctypes.POINTER(c_void_p), c_int, c_void_p]
    qccl.qcclCommInitRankConfig.argtypes = [ctypes.POINTER(c_void_p), c_int, c_void_p, c_int, c_void_p]
    qccl.qcclAllReduceConfig.argtypes = [c_void_p, c_void_p, c_size_t, c_int32, c_int32, c_void_p, c_void_p, c_void_p]
    qccl.qcclCommDestroy.argtypes = [c_void_p]
    qccl.qcclStreamDestroy.argtypes = [c_void_p]
    qccl.qcclRequestRecord.argtypes = [c_void_p, ctypes.POINTER(c_void_p)]
    qccl.qcclWaitAll.argtypes = [c_int, ctypes.POINTER(c_void_p)]
    qccl.qcclGetLastError.argtypes = [c_void_p]
    qccl.qcclGetLastError.restype = c_char_p
    return qccl


QCCL = load()


def filled(kind):
    config = kind()
    ctypes.memset(ctypes.byref(config), 0xAA, ctypes.sizeof(config))
    assert QCCL.qcclConfigInit(ctypes.byref(config), ctypes.sizeof(config)) == SUCCESS
    return config


def on_every_rank(body):
    """Results of body(rank), each on a thread: ctypes lets go of the interpreter's lock."""
    results = [None] * RANKS

    def run(rank):
        results[rank] = body(rank)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def reduce(comm, rank, config):
    values = (ctypes.c_float * 100)(*[rank + i for i in range(100)])
    result = QCCL.qcclAllReduceConfig(values, values, 100, FLOAT32, SUM, comm, None, ctypes.byref(config) if config else None)
    return result, list(values)


class FromCtypes(unittest.TestCase):
    def test_a_config_is_filled(self):
        config = filled(Config)
        self.assertEqual(config.size, ctypes.sizeof(Config))
        self.assertEqual(config.magic.to_bytes(4, "little"), b"QCCL")
        self.assertIsNone(config.codec)
        self.assertEqual(config.timeout, 0)
        self.assertEqual(list(config.reserved), [0] * 6)

    def test_one_thread_waits_for_requests_of_all_ranks(self):
        comms, requests = (c_void_p * RANKS)(), (c_void_p * RANKS)()
        self.assertEqual(QCCL.qcclCommInitAll(comms, RANKS, None), SUCCESS)
        streams = [c_void_p() for _ in range(RANKS)]
        values = [(ctypes.c_float * 100)(*[rank + 1.0] * 100) for rank in range(RANKS)]
        for rank in range(RANKS):
            self.assertEqual(QCCL.qcclStreamCreate(ctypes.byref(streams[rank])), SUCCESS)
            self.assertEqual(QCCL.qcclAllReduceConfig(values[rank], values[rank], 100, FLOAT32, SUM, comms[rank],
                                                      streams[rank], None), SUCCESS)
            request = c_void_p()
            self.assertEqual(QCCL.qcclRequestRecord(streams[rank], ctypes.byref(request)), SUCCESS)
            requests[rank] = request.value
        self.assertEqual(QCCL.qcclWaitAll(RANKS, requests), SUCCESS)
        self.assertEqual(list(requests), [None] * RANKS)
        for rank in range(RANKS):
            self.assertEqual(list(values[rank]), [sum(range(1, RANKS + 1))] * 100)
            self.assertEqual(QCCL.qcclCommDestroy(comms[rank]), SUCCESS)
            self.assertEqual(QCCL.qcclStreamDestroy(streams[rank]), SUCCESS)

    def test_ranks_of_one_process(self):
        comms = (c_void_p * RANKS)()
        self.assertEqual(QCCL.qcclCommInitAll(comms, RANKS, None), SUCCESS)
        config = filled(CollConfig)
        config.algorithm = b"ring"
        config.tag = 5
        for result, values in on_every_rank(lambda rank: reduce(comms[rank], rank, config)):
            self.assertEqual(result, SUCCESS)
            self.assertEqual(values, [2 * i + 1 for i in range(100)])
        for comm in comms:
            self.assertEqual(QCCL.qcclCommDestroy(comm), SUCCESS)

    def test_ranks_that_meet_by_an_id(self):
        unique_id = ctypes.create_string_buffer(128)
        self.assertEqual(QCCL.qcclGetUniqueId(unique_id), SUCCESS)
        config = filled(Config)
        config.codec = b"bf16"
        config.timeout = 60
        comms = (c_void_p * RANKS)()

        def join(rank):
            comm = c_void_p()
            result = QCCL.qcclCommInitRankConfig(ctypes.byref(comm), RANKS, unique_id, rank, ctypes.byref(config))
            comms[rank] = comm.value
            return result

        self.assertEqual(on_every_rank(join), [SUCCESS] * RANKS)
        for result, values in on_every_rank(lambda rank: reduce(comms[rank], rank, None)):
            self.assertEqual(result, SUCCESS)
            self.assertEqual(values, [2 * i + 1 for i in range(100)])  # small whole numbers survive bf16
        for comm in comms:
            self.assertEqual(QCCL.qcclCommDestroy(comm), SUCCESS)

    def test_an_unfilled_config_is_refused_with_a_hint(self):
        comm = c_void_p()
        config = Config()
        unique_id = ctypes.create_string_buffer(128)
        self.assertEqual(QCCL.qcclCommInitRankConfig(ctypes.byref(comm), 1, unique_id, 0, ctypes.byref(config)), INVALID_ARGUMENT)
        self.assertIn(b"qcclConfigInit", QCCL.qcclGetLastError(None))
        self.assertIsNone(comm.value)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
