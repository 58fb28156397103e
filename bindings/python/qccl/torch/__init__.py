"""QCCL in PyTorch: the backend "qccl" of torch.distributed.

`import qccl.torch`, then torch.distributed.init_process_group("qccl"). Options are the pg_options of a group:
qccl.torch.Options(codec="int4") encodes the floats of its reductions.
"""
from . import _backend
from ._backend import build, monitored_barrier

__all__ = ["Options", "ProcessGroupQccl", "build", "monitored_barrier"]

_backend.register()


def __getattr__(name):
    """Classes of the extension, which is compiled and loaded when a program asks for one of them or makes a group."""
    if name in ("Options", "ProcessGroupQccl"):
        return getattr(_backend.load(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
