"""QCCL from Python: collectives with compression built in, on NumPy arrays and on tensors of PyTorch, CuPy and JAX.

    import numpy, qccl

    with qccl.init() as comm:                     # under torchrun, mpirun, mpiexec or srun
        gradient = numpy.full(1000, comm.rank, numpy.float32)
        comm.all_reduce(gradient, codec="int8")   # gradient has the sum of all ranks

`Comm` has the collectives, and `CallOptions` says which options each of its calls takes. The C header qccl/qccl.h is the manual of what they do; names here are its names in Python's spelling.
"""
from importlib.util import find_spec as _find_spec

if _find_spec(f"{__name__}._declarations") is None:  # which the build makes
    raise ImportError(f"{__path__[0]} is the source of the package; use build/bindings/python, or pip install .")

from ._buffers import pair_dtype
from ._codecs import Codec
from ._collectives import CallOptions
from ._comm import Comm, Registration
from ._errors import (DamagedData, DeviceError, Error, InternalError, InvalidArgument, InvalidUsage, LibraryError, Mismatch, PeerLost,
                      RemoteError, Revoked, SystemFailure, Timeout)
from ._groups import group
from ._init import init, init_all, run_threads, unique_id
from ._layers import Layer, LayerCodecs
from ._library import include_dir, library_path, version
from ._memory import empty
from ._ops import PreMulSum, RedOp
from ._prepared import Prepared
from ._states import State
from ._streams import SYNC, Request, Stream, wait_all, wait_any

__all__ = ["CallOptions", "Codec", "Comm", "DamagedData", "DeviceError", "Error", "InternalError", "InvalidArgument", "InvalidUsage",
           "Layer", "LayerCodecs", "LibraryError", "Mismatch", "PeerLost", "PreMulSum", "Prepared", "RedOp", "Registration", "RemoteError",
           "Request", "Revoked", "SYNC", "State", "Stream", "SystemFailure", "Timeout", "empty", "group", "include_dir", "init",
           "init_all", "library_path", "pair_dtype", "run_threads", "unique_id", "version", "wait_all", "wait_any"]
