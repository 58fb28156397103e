"""What the Python package takes for an array, and what it refuses.

usage: python_arrays_test.py EMULATED_LIBRARY   (libqccl_emulated.so, or a path that does not exist: then its test is skipped)
"""
import array
import ctypes
import os
import sys
import unittest

import numpy as np
import qccl
from qccl import _buffers as buffers
from qccl import _declarations as declarations

EMULATED = sys.argv[1]

try:
    import torch
except ImportError:
    torch = None


class OnlyDlpack:
    """An array of NumPy that shows itself through DLPack alone. wanted: the version of the protocol that it has."""

    def __init__(self, values, versioned=True):
        self.values, self.versioned = values, versioned

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()

    def __dlpack__(self, **options):
        if not self.versioned and options:
            raise TypeError("an older protocol")
        return self.values.__dlpack__(**options)


class Tensorlike(OnlyDlpack):
    """As a tensor of PyTorch that requires grad."""
    requires_grad = True

    def __dlpack__(self, **options):
        raise BufferError("Can't export tensors that require gradient")


class OnGpu:
    """Memory of a GPU, through __cuda_array_interface__."""

    def __init__(self, address, shape, typestr, strides=None):
        self.__cuda_array_interface__ = {"data": (address, False), "shape": shape, "typestr": typestr, "version": 3, "strides": strides}


class Arrays(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.comm, = qccl.init_all(1)

    @classmethod
    def tearDownClass(cls):
        cls.comm.close()

    def two(self, body):
        return qccl.run_threads(2, body)

    def refused(self, pattern, call):
        with self.assertRaisesRegex(qccl.InvalidArgument, pattern):
            call()

    def test_python_own_buffers(self):
        def body(comm):
            numbers, raw, view = array.array("f", [1, 2, 3]), bytearray(b"\1\2\3"), memoryview(bytearray(6)).cast("H")
            self.assertIs(comm.all_reduce(numbers), numbers)
            comm.all_reduce(raw)
            comm.all_reduce(view)
            return list(numbers), bytes(raw), comm.all_gather(array.array("i", [comm.rank])).tolist()

        for numbers, raw, gathered in self.two(body):
            self.assertEqual((numbers, raw, gathered), ([2, 4, 6], b"\2\4\6", [0, 1]))

    def test_dlpack(self):
        for versioned in (True, False):
            def body(comm):
                values = np.arange(6, dtype=np.float32).reshape(2, 3)
                comm.all_reduce(OnlyDlpack(values, versioned))
                gathered = comm.all_gather(OnlyDlpack(values[:1], versioned))
                return values, gathered

            for values, gathered in self.two(body):
                np.testing.assert_array_equal(values, 2 * np.arange(6).reshape(2, 3))
                self.assertEqual(gathered.shape, (2, 3))

    def test_dlpack_keeps_its_memory(self):
        values = np.ones(1000, np.float32)
        before = sys.getrefcount(values)
        for _ in range(100):
            self.comm.all_reduce(OnlyDlpack(values))
        self.assertEqual(sys.getrefcount(values), before)

    def test_empty_arrays(self):
        self.assertEqual(self.comm.all_reduce(np.empty((0, 3), np.float32)).shape, (0, 3))
        self.assertEqual(self.comm.all_gather(OnlyDlpack(np.empty((0, 3)))).shape, (0, 3))

    def test_arrays_that_are_not_contiguous(self):
        square = np.ones((4, 4), np.float32)
        for wrong in (square[:, 1], square.T[:2], square[::2], OnlyDlpack(square[:, :2])):
            self.refused(r"x: the \w+ is not contiguous \(shape", lambda wrong=wrong: self.comm.all_reduce(wrong))
        self.comm.all_reduce(square[1:2].T)  # one column
        self.refused("out: the array is not contiguous", lambda: self.comm.all_reduce(np.ones(4, np.float32), out=square[:, 0]))

    def test_arrays_that_cannot_be_written(self):
        fixed = np.ones(3)
        fixed.flags.writeable = False
        for wrong in (fixed, np.float32(3)):
            self.refused("x: the array is read-only, and the call writes to it; pass out=, or a copy", lambda wrong=wrong: self.comm.all_reduce(wrong))
        self.refused("out: the array is read-only.*; pass one that can be written", lambda: self.comm.all_reduce(np.ones(3), out=fixed))
        self.refused("x: the array is read-only", lambda: self.comm.all_reduce(b"abc"))
        self.assertEqual(self.comm.all_reduce(fixed, out=np.empty(3))[0], 1)
        self.assertEqual(self.comm.all_gather(fixed).shape, (3,))

    def test_things_without_memory(self):
        for wrong in ([1, 2], 5, None, "text", {}):
            self.refused(r"x: a \w+ has no memory", lambda wrong=wrong: self.comm.all_reduce(wrong))

    def test_every_type_of_the_library_has_a_name(self):
        names = list(vars(declarations))
        types = {vars(declarations)[name] for name in names[names.index("qcclInt8"):names.index("qcclSum")]}
        self.assertEqual(types, {*buffers.TYPES.values(), *(pair for pair, _ in buffers.PAIRS.values())})
        self.assertEqual(set(buffers.TYPES), set(buffers.SIZES))

    def test_types_that_qccl_does_not_have(self):
        for wrong in (np.ones(2, ">f4"), np.array(["a"]), np.ones(2, "datetime64[s]"), np.ones(2, np.longdouble),
                      np.zeros(2, [("value", "f4"), ("index", "i8")]), np.zeros(2, [("a", "f4"), ("b", "i4")])):
            self.refused("x: QCCL has no type", lambda wrong=wrong: self.comm.all_reduce(wrong))
        self.refused(r'x: QCCL has no type >f4, whose bytes have another order .*; pass x\.astype\("=f4"\)', lambda: self.comm.all_reduce(np.ones(2, ">f4")))
        self.refused("out: its type is float64, and that of x is float32",
                     lambda: self.comm.all_reduce(np.ones(2, np.float32), out=np.ones(2)))

    def test_results_that_do_not_fit(self):
        def body(comm):
            x = np.ones(3)
            self.refused("out: it has 2 values, and the result needs 3", lambda: comm.all_reduce(x, out=np.ones(2)))
            self.refused("out: it has 5 values, and the result needs 6", lambda: comm.all_gather(x, out=np.ones(5)))
            self.refused("x: its first axis is cut into 2 blocks", lambda: comm.reduce_scatter(x))
            self.refused("x: its first axis is cut into 2 blocks", lambda: comm.all_to_all(x))
            self.refused("x: it has 3 values, and the call reads or writes 4", lambda: comm.reduce_scatter(x, out=np.ones(2)))
            self.refused("counts: it has an entry for each of the 2 ranks", lambda: comm.all_gather_v(x, [3]))
            self.refused("counts: its entries are 0 or more, and ints", lambda: comm.all_gather_v(x, [3, -1]))
            self.refused("x: it has 3 values, and the call reads or writes 4", lambda: comm.all_gather_v(x, [4, 4]))
            self.refused("send_counts", lambda: comm.all_to_all_v(x, None, [1, 1]))
            self.refused("op: 'mean' is none of sum", lambda: comm.all_reduce(x, "mean"))
            self.refused("stream: a str is no stream", lambda: comm.all_reduce(x, stream="fast"))
            if comm.rank == 1:
                self.refused("out: ranks other than the root pass an array for their part", comm.scatter)
                self.refused("out: ranks other than the root pass an array for their part", comm.scatter_v)
            with self.assertRaisesRegex(TypeError, "no option 'codek'"):
                comm.all_reduce(x, codek="int8")
            return comm.all_reduce(x)[0]  # the communicator is usable

        self.assertEqual(self.two(body), [2.0, 2.0])

    def test_tensors_that_require_grad(self):
        self.refused(r"x: the tensor requires grad.*x\.detach\(\)", lambda: self.comm.all_reduce(Tensorlike(np.ones(3))))

    def test_memory_of_another_device(self):
        gpu = OnGpu(4096, (3,), "<f4")
        self.refused("x: the array lies on gpu, and the communicator's device is host", lambda: self.comm.all_reduce(gpu))
        with self.assertRaisesRegex(qccl.InvalidArgument, "x: the array lies on gpu; codecs work"):
            qccl.Codec("int8").encode(gpu)
        self.refused("x: no memory has 18446744073709551616 values", lambda: self.comm.all_reduce(OnGpu(4096, (2**32, 2**32), "<f4")))

    @unittest.skipUnless(os.path.exists(EMULATED), "built without emulated GPUs")
    def test_memory_of_gpus(self):
        gpu = ctypes.CDLL(EMULATED)

        def allocate(device):
            pointer = ctypes.c_void_p()
            self.assertEqual(gpu.qcclEmulatedSetDevice(device), 0)
            self.assertEqual(gpu.qcclEmulatedMalloc(ctypes.byref(pointer), ctypes.c_size_t(64 * 4)), 0)
            return pointer.value

        def body(comm):
            address = allocate(comm.rank)
            mine = (ctypes.c_float * 64).from_address(address)  # the emulation's memory is the host's, too
            mine[:] = [comm.rank + 1.0] * 64
            x = OnGpu(address, (8, 8), "<f4")
            self.assertIs(comm.all_reduce(x, codec="bf16", stream=qccl.SYNC), x)
            self.refused("x: the array lies on host, and the communicator's device is emulated", lambda: comm.all_reduce(np.ones(3)))
            self.refused("x: the array is not contiguous",
                         lambda: comm.all_reduce(OnGpu(address, (8, 4), "<f4", (32, 4)), stream=qccl.SYNC))
            self.refused("out: QCCL cannot make a OnGpu", lambda: comm.all_gather(x))
            total = list(mine)
            gpu.qcclEmulatedFree(ctypes.c_void_p(address))
            return total

        for total in qccl.run_threads(2, body, devices=["emulated:0", "emulated:1"]):
            self.assertEqual(total, [3.0] * 64)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Torch(unittest.TestCase):
    def test_every_type(self):
        types = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.bfloat16,
                 torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2]

        def body(comm):
            flags = comm.all_reduce(torch.tensor([True, comm.rank == 1]), "logical_and")
            return [comm.all_reduce(torch.ones(2, 3).to(dtype)) for dtype in types], comm.all_gather(torch.ones(2, 3)), flags

        for sums, gathered, flags in qccl.run_threads(2, body):
            for dtype, total in zip(types, sums, strict=True):
                self.assertEqual((total.dtype, total.shape), (dtype, (2, 3)))
                self.assertTrue(bool((total.to(torch.complex128) == 2).all()), dtype)
            self.assertEqual((type(gathered), gathered.shape), (torch.Tensor, (4, 3)))
            self.assertEqual(flags.tolist(), [True, False])

    def test_tensors_that_are_refused(self):
        with qccl.init_all(1)[0] as comm:
            for pattern, wrong in (("requires grad", torch.ones(3, requires_grad=True)), ("not contiguous", torch.ones(3, 3).T),
                                   (r"; pass x\.to_dense\(\)", torch.ones(3).to_sparse()),
                                   (r"; pass x\.resolve_conj\(\)", torch.ones(3, dtype=torch.complex64).conj()),
                                   (r"; pass x\.resolve_neg\(\)", torch._neg_view(torch.ones(3)))):
                with self.assertRaisesRegex(qccl.InvalidArgument, pattern):
                    comm.all_reduce(wrong)
            with self.assertRaisesRegex(qccl.InvalidArgument, "op: the function gets NumPy arrays, and NumPy has no bfloat16"):
                comm.all_reduce(torch.ones(3, dtype=torch.bfloat16), qccl.RedOp(lambda accumulator, values: None))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
