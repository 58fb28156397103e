"""QCCL in PyTorch: a communication hook for DistributedDataParallel, and the backend "qccl" of torch.distributed.

The hook: hook = qccl.torch.register(ddp, codec="int4", error_feedback=True). The backend: `import qccl.torch`, then
torch.distributed.init_process_group("qccl"). Options are the pg_options of a group: qccl.torch.Options(codec="int4") encodes the
floats of its reductions.
"""
from . import _backend
from ._backend import build, monitored_barrier
from ._hook import Hook, comm_of, register

__all__ = ["Hook", "Options", "ProcessGroupQccl", "build", "comm_of", "monitored_barrier", "register"]

_backend.register()


def __getattr__(name):
    """Classes of the extension, which is compiled and loaded when a program asks for one of them or makes a group."""
    if name in ("Options", "ProcessGroupQccl"):
        return getattr(_backend.load(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
