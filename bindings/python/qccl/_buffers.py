"""Where the values of an array lie, and what they are: NumPy arrays and everything with DLPack, `__cuda_array_interface__` or
Python's buffer protocol (PyTorch, CuPy, JAX, array.array, ...).

The communicators and the codecs describe every argument with it. Nothing here copies values or blocks; any thread may call it.
"""
import ctypes
import dataclasses
import functools
import math
import sys
from typing import Any

import numpy as np

from . import _declarations as c
from . import _errors

# The C types by the names that NumPy, ml_dtypes and PyTorch have for them.
TYPES = {"int8": c.qcclInt8, "uint8": c.qcclUint8, "int16": c.qcclInt16, "uint16": c.qcclUint16, "int32": c.qcclInt32,
         "uint32": c.qcclUint32, "int64": c.qcclInt64, "uint64": c.qcclUint64, "float16": c.qcclFloat16, "float32": c.qcclFloat32,
         "float64": c.qcclFloat64, "bfloat16": c.qcclBfloat16, "float8_e4m3fn": c.qcclFloat8e4m3, "float8_e5m2": c.qcclFloat8e5m2,
         "complex64": c.qcclComplex64, "complex128": c.qcclComplex128, "bool": c.qcclBool}
SIZES = {"int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "float16": 2, "float32": 4,
         "float64": 8, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "complex64": 8, "complex128": 16, "bool": 1}
# A value and an index, for min_loc and max_loc: (C type, size) by the name of the value.
PAIRS = {"float32": (c.qcclFloatInt, 8), "float64": (c.qcclDoubleInt, 16), "int64": (c.qcclLongInt, 16), "int32": (c.qcclIntInt, 8),
         "int16": (c.qcclShortInt, 8)}


def pair_dtype(value):
    """Returns the NumPy dtype of pairs for min_loc and max_loc: fields `value`, of the given dtype, and `index`, int32."""
    name = np.dtype(value).name
    if name not in PAIRS:
        raise _errors.InvalidArgument(f"a pair's value is one of {', '.join(PAIRS)}, not {name}")
    return np.dtype([("value", name), ("index", np.int32)], align=True)


@dataclasses.dataclass
class Buffer:
    """The values of an array, all of them side by side."""
    address: int | None  # None if there are no values
    count: int
    dtype: str  # "float32", or "float32 pair"
    type: int  # of C
    itemsize: int
    device: str  # "host", "cuda:0", "hip:1"
    shape: tuple[int, ...]
    array: Any  # the caller's; keeps the memory
    export: Any = None  # what keeps the description valid


def refuse(name, sentence):
    return _errors.InvalidArgument(f"{name}: {sentence}")


def read_only(name, kind="array"):
    advice = "pass out=, or a copy" if name == "x" else "pass one that can be written"
    return refuse(name, f"the {kind} is read-only, and the call writes to it; {advice}")


def describe(array, name, *, writable):
    """The Buffer of `array`. name: the argument's, for errors. The errors are InvalidArgument."""
    if isinstance(array, np.ndarray):
        return describe_numpy(array, name, writable, array)
    interface = getattr(array, "__cuda_array_interface__", None) if not needs_dlpack(array) else None
    if interface is not None:
        return describe_interface(array, interface, name, writable)
    if hasattr(array, "__dlpack__"):
        return describe_dlpack(array, name, writable)
    try:
        memory = memoryview(array)
    except TypeError:
        raise refuse(name, f"a {type(array).__name__} has no memory that other ranks could read; pass a NumPy array, a tensor, or "
                           "another object with DLPack or the buffer protocol") from None
    return describe_numpy(np.asarray(memory), name, writable, array)


def needs_dlpack(array):
    """Whether to ask for the interface of CUDA is an error: for tensors that are not on a GPU, or require grad."""
    return hasattr(array, "__dlpack_device__") and hasattr(array, "requires_grad")


# ---- NumPy

@functools.lru_cache
def known_type(dtype):
    """(name, C type, size), or None."""
    if dtype.fields:
        value = dtype.fields["value"][0].name if set(dtype.fields) == {"value", "index"} else ""
        return (f"{value} pair", *PAIRS[value]) if value in PAIRS and dtype == pair_dtype(value) else None
    return (dtype.name, TYPES[dtype.name], dtype.itemsize) if dtype.name in TYPES and dtype.isnative else None


def type_of_numpy(dtype, name):
    """(name, C type, size)"""
    found = known_type(dtype)
    if not found:
        if not dtype.isnative and not dtype.fields and known_type(dtype.newbyteorder("=")):
            raise refuse(name, f"QCCL has no type {dtype.str}, whose bytes have another order than this machine's; pass "
                               f'{name}.astype("={dtype.str[1:]}"), and copy the result back if there is one')
        raise refuse(name, f"QCCL has no type {dtype if dtype.fields or dtype.isnative else dtype.str}; it has {', '.join(TYPES)}, and "
                           "pairs as qccl.pair_dtype makes them")
    return found


def describe_numpy(values, name, writable, array):
    dtype, number, size = type_of_numpy(values.dtype, name)
    if not values.flags.c_contiguous:
        raise refuse(name, f"the array is not contiguous (shape {values.shape}, strides {values.strides}); pass "
                           "numpy.ascontiguousarray(x), and copy the result back if there is one")
    if writable and not values.flags.writeable:
        raise read_only(name)
    address = values.__array_interface__["data"][0] if values.size else None
    return Buffer(address, values.size, dtype, number, size, "host", values.shape, array, values)


# ---- __cuda_array_interface__

def describe_interface(array, interface, name, writable):
    dtype, number, size = type_of_numpy(np.dtype(interface["typestr"]), name)
    shape = tuple(interface["shape"])
    if not is_contiguous(shape, interface.get("strides"), size):
        raise refuse(name, f"the array is not contiguous (shape {shape}, strides {interface['strides']})")
    address, is_read_only = interface["data"]
    if writable and is_read_only:
        raise read_only(name)
    count = math.prod(shape)
    if count * size > sys.maxsize:
        raise refuse(name, f"no memory has {count} values (shape {shape})")
    # The interface does not say which GPU it is. The library checks the address itself.
    return Buffer(address if count else None, count, dtype, number, size, "gpu", shape, array)


def is_contiguous(shape, strides, step):
    """strides: in the unit of `step`, the distance of neighbours; None: contiguous."""
    if strides is None or 0 in shape:
        return True
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != step:
            return False
        step *= length
    return True


# ---- DLPack. The structs are those of dlpack.h, https://dmlc.github.io/dlpack/latest/c_api.html

class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", Tensor)]


READ_ONLY = 1  # a flag of ManagedVersioned
CODES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool", 10: "float8_e4m3fn", 12: "float8_e5m2"}
DEVICES = {1: "host", 2: "cuda", 3: "host", 10: "hip", 11: "host", 13: "cuda"}
get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
has_name = ctypes.pythonapi.PyCapsule_IsValid
has_name.restype, has_name.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


def export_of(array, name):
    """The capsule of the array's __dlpack__. The capsule's own end calls its deleter."""
    try:
        if needs_stream(array):
            return array.__dlpack__(stream=-1)  # the caller orders the streams
        try:
            return array.__dlpack__(max_version=(1, 0))
        except TypeError:  # an older protocol
            return array.__dlpack__()
    except (BufferError, RuntimeError, ValueError, TypeError) as error:
        if getattr(array, "requires_grad", False):
            raise refuse(name, "the tensor requires grad, and a collective is no operation that gradients go through; "
                               "pass x.detach(), or make the call under torch.no_grad() on x.data") from None
        raise refuse(name, f"the {type(array).__name__} gives no memory: {error}{advice_for(array)}") from None


def advice_for(tensor):
    """What to do with a tensor of PyTorch whose values do not lie in memory as they are."""
    if str(getattr(tensor, "layout", "torch.strided")) != "torch.strided":
        return "; pass x.to_dense()"
    if asks(tensor, "is_conj"):
        return "; pass x.resolve_conj()"
    return "; pass x.resolve_neg()" if asks(tensor, "is_neg") else ""


def asks(tensor, question):
    return hasattr(tensor, question) and bool(getattr(tensor, question)())


def needs_stream(array):
    return DEVICES.get(int(array.__dlpack_device__()[0])) in ("cuda", "hip")


def dtype_of_dlpack(tensor, name):
    code = CODES.get(tensor.code)
    dtype = code if code in ("bool", "float8_e4m3fn", "float8_e5m2") else f"{code}{tensor.bits}"
    if dtype not in TYPES or tensor.lanes != 1 or SIZES[dtype] * 8 != tensor.bits:
        raise refuse(name, f"QCCL has no type of DLPack's code {tensor.code} with {tensor.bits} bits; it has {', '.join(TYPES)}")
    return dtype


def describe_dlpack(array, name, writable):
    if asks(array, "is_neg"):  # PyTorch gives its memory without a word
        raise refuse(name, f"the {type(array).__name__} keeps its values negated in memory{advice_for(array)}")
    capsule = export_of(array, name)
    if has_name(capsule, b"dltensor_versioned"):
        managed = ManagedVersioned.from_address(get_pointer(capsule, b"dltensor_versioned"))
        is_read_only = bool(managed.flags & READ_ONLY)
    else:
        managed = Managed.from_address(get_pointer(capsule, b"dltensor"))
        is_read_only = False
    tensor = managed.tensor
    dtype = dtype_of_dlpack(tensor, name)
    shape = tuple(tensor.shape[:tensor.ndim])
    strides = tuple(tensor.strides[:tensor.ndim]) if tensor.strides else None
    if not is_contiguous(shape, strides, 1):
        raise refuse(name, f"the {type(array).__name__} is not contiguous (shape {shape}, strides {strides} elements); pass "
                           "x.contiguous(), and copy the result back if there is one")
    if writable and is_read_only:
        raise read_only(name, type(array).__name__)
    if tensor.device_type not in DEVICES:
        raise refuse(name, f"the {type(array).__name__} lies on a device that QCCL does not know (DLPack's number {tensor.device_type})")
    device = DEVICES[tensor.device_type]
    count = math.prod(shape)
    return Buffer(tensor.data + tensor.byte_offset if count else None, count, dtype, TYPES[dtype], SIZES[dtype],
                  device if device == "host" else f"{device}:{tensor.device_id}", shape, array, capsule)


# ---- Views and new arrays

def as_numpy(buffer):
    """The values of a buffer of the host in one dimension."""
    if not buffer.count:
        return np.empty(0, buffer.dtype)
    memory = (ctypes.c_char * (buffer.count * buffer.itemsize)).from_address(buffer.address)
    return np.frombuffer(memory, buffer.dtype)


def make_like(buffer, shape):
    """A new array of this shape, of the library, type and device of the one that `buffer` describes."""
    array = buffer.array
    if hasattr(array, "new_empty"):  # PyTorch
        return array.new_empty(shape)
    if isinstance(array, np.ndarray):
        return np.empty(shape, array.dtype)
    if hasattr(array, "__array_namespace__") and buffer.device != "host":
        return array.__array_namespace__().empty(shape, dtype=array.dtype, device=array.device)
    if buffer.device == "host" and isinstance(buffer.export, np.ndarray):
        return np.empty(shape, buffer.export.dtype)
    if buffer.device == "host" and buffer.dtype in np.sctypeDict:
        return np.empty(shape, buffer.dtype)
    raise refuse("out", f"QCCL cannot make a {type(array).__name__} for the result; pass one")
