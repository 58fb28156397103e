"""Ranks in Python on several hosts fork, and their children make communicators of their own.

usage: forks_ctypes_test.py LIBRARY
"""
import ctypes
import os
import sys
import unittest
from ctypes import c_char_p, c_int32, c_size_t, c_void_p

import launchers

FLOAT32, SUM = 7, 0
RANKS, COUNT = 2, 1000


def load(library):
    qccl = ctypes.CDLL(library)
    qccl.qcclCommInitEnv.argtypes = [ctypes.POINTER(c_void_p), c_void_p]
    qccl.qcclAllReduce.argtypes = [c_void_p, c_void_p, c_size_t, c_int32, c_int32, c_void_p, c_void_p]
    qccl.qcclCommDestroy.argtypes = [c_void_p]
    qccl.qcclGetLastError.argtypes = [c_void_p]
    qccl.qcclGetLastError.restype = c_char_p
    return qccl


def check(qccl, result):
    if result != 0:
        sys.exit(qccl.qcclGetLastError(None).decode())


def join(qccl, port):
    os.environ["QCCL_PORT"] = str(port)
    comm = c_void_p()
    check(qccl, qccl.qcclCommInitEnv(ctypes.byref(comm), None))
    return comm


def reduce(qccl, comm):
    values = (ctypes.c_float * COUNT)(*range(COUNT))
    check(qccl, qccl.qcclAllReduce(values, values, COUNT, FLOAT32, SUM, comm, None))
    if list(values) != [RANKS * i for i in range(COUNT)]:
        sys.exit("the sum is wrong")


def be_rank(library, port, scope):
    """A rank whose child joins at the next port; `scope`: of UCX's symbols."""
    qccl = load(library)
    comm = join(qccl, port)
    if scope == "global":
        ctypes.CDLL("libucp.so.0", mode=ctypes.RTLD_GLOBAL)
    child = os.fork()
    own = comm if child else join(qccl, port + 1)
    reduce(qccl, own)
    check(qccl, qccl.qcclCommDestroy(own))
    if child and os.waitpid(child, 0)[1] != 0:
        sys.exit("the child has failed")


class ForksOfPython(unittest.TestCase):
    def run_ranks(self, scope):
        port = launchers.free_port()
        command = [sys.executable, __file__, sys.argv[1], str(port), scope]
        environments = [launchers.environment(RANK=rank, WORLD_SIZE=RANKS, MASTER_ADDR="127.0.0.1",
                                              QCCL_HOSTID=f"host{rank}", QCCL_TIMEOUT=20, **launchers.HERE_ALONE)
                        for rank in range(RANKS)]
        for status, said, complained in launchers.start_by_hand([command] * RANKS, environments):
            self.assertEqual((status, said), (0, ""), complained)

    def test_ucx_is_the_librarys_alone(self):
        self.run_ranks("local")

    def test_ucx_is_for_all_to_see(self):
        self.run_ranks("global")


if __name__ == "__main__":
    if sys.argv[2:]:
        be_rank(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    else:
        unittest.main(argv=sys.argv[:1], verbosity=1)
