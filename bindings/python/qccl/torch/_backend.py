"""Builds and loads the C++ part of the backend, and gives it to torch.distributed under the name "qccl".

`qccl.torch` imports this module, which registers the backend. The first use on a machine compiles the extension (half a minute on
two cores) and keeps it in torch's folder for extensions; later uses load it. Processes that need it at the same time wait for one of
them to compile.
"""
import atexit
import contextlib
import copy
import fcntl
import hashlib
import importlib.util
import os
import pathlib
import shlex
import sys

import torch
import torch.distributed

from qccl import _library
from qccl._handles import at_the_end_of_workers

SOURCES = pathlib.Path(__file__).resolve().parent
NAME = "_qccl_torch"
MINIMUM_PYTORCH = (2, 13)  # older ones have not been tested
# How long the end of a process waits for calls that are under way before it aborts them.
PATIENCE_AT_EXIT = 10.0
# Files that include torch's headers are compiled as one, because the headers take most of the time.
UNITS = {
    "calls.cpp": ["torch_backend", "qccl_work", "tensor_values", "tensor_blocks", "argument_checks", "reducing_calls", "moving_calls",
                  "gathering_calls", "sparse_calls", "message_calls", "monitored_barrier"],
    "module.cpp": ["torch_module", "core/call_queue", "core/callback_runner", "core/communicator", "core/process_identity", "messages/receive_board", "messages/peer_link",
                   "messages/link_receiver", "messages/messenger"],
}


def link_flags(library):
    if os.sep not in library:
        return [f"-l:{library}"]
    folder = os.path.dirname(os.path.realpath(library))
    # torch writes them into a command of the shell as they are.
    return [shlex.quote(library), shlex.quote(f"-Wl,-rpath,{folder}")]


def include_dirs():
    """The folders of the sources and of qccl/qccl.h. If the library was not installed with its header, the compiler searches for the
    header in its own folders and in those of CPATH."""
    installed = _library.include_dir()
    return [str(SOURCES)] + ([installed] if installed else [])


def fingerprint(library, flags):
    """What the extension was made of: another compiler, library or source makes another extension."""
    made_of = hashlib.sha256()
    made_of.update(repr((torch.__version__, sys.implementation.cache_tag, os.environ.get("CXX"), library, flags)).encode())
    for path in sorted(path for path in SOURCES.rglob("*") if path.suffix in (".cpp", ".hpp")):
        made_of.update(path.relative_to(SOURCES).as_posix().encode() + b"\0" + path.read_bytes())
    return made_of.hexdigest()[:16]


def extension_folder(library, flags):
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "torch_extensions")
    return pathlib.Path(root) / f"qccl_torch_{fingerprint(library, flags)}"


@contextlib.contextmanager
def one_builder(folder):
    """Lets one process build at a time. The system drops the lock of a process that ends."""
    with open(folder / "building", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def compile_extension(folder, library, flags):
    from torch.utils import cpp_extension
    for unit, parts in UNITS.items():
        (folder / unit).write_text("".join(f'#include "{part}.cpp"\n' for part in parts))
    # torch has a lock of its own, which a process that is killed while it compiles leaves behind.
    with contextlib.suppress(FileNotFoundError):
        os.remove(folder / "lock")
    cpp_extension.load(NAME, [str(folder / unit) for unit in UNITS], extra_cflags=flags, extra_ldflags=link_flags(library),
                       extra_include_paths=include_dirs(), build_directory=str(folder), is_python_module=False)


def build():
    """Compiles the extension, unless that has been done, and returns its path."""
    library = _library.library_path()
    flags = ["-std=c++20", "-O2"]
    folder = extension_folder(library, flags)
    extension, is_ready = folder / f"{NAME}.so", folder / "ready"
    if not is_ready.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with one_builder(folder):
            if not is_ready.exists():
                compile_extension(folder, library, flags)
                is_ready.touch()
    return extension


def load():
    """Returns the extension as a module. Blocks while it is compiled."""
    if NAME not in sys.modules:
        load_extension()
    extension = sys.modules[NAME]
    at_the_end_of_workers(extension.close_all, PATIENCE_AT_EXIT)
    return extension


def check_pytorch(version):
    """The C++ sources use parts of PyTorch's interface for backends that older releases do not have."""
    if tuple(int(part) for part in version.split(".")[:2]) < MINIMUM_PYTORCH:
        raise RuntimeError(f"the backend qccl of torch.distributed needs PyTorch {'.'.join(map(str, MINIMUM_PYTORCH))} or later, and this is {version}")


def load_extension():
    check_pytorch(torch.__version__)
    _library.version()  # loads the library, with which the extension is then linked, too
    spec = importlib.util.spec_from_file_location(NAME, build())
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[NAME] = module
    # Threads of the groups may call back into Python, which they cannot while the interpreter ends.
    atexit.register(module.close_all, PATIENCE_AT_EXIT)


def create(group, options):
    """What torch.distributed calls for a new process group. Returns when all its ranks have called."""
    extension = load()
    if options is not None and not isinstance(options, extension.Options):
        raise TypeError(f"pg_options of a qccl group are qccl.torch.Options, not {type(options).__name__}")
    own = extension.Options() if options is None else copy.copy(options)  # a program may use its options for several groups
    own._timeout = group.timeout
    own.group_name = group.group_id
    own.global_ranks_in_group = group.global_ranks_in_group
    return extension.ProcessGroupQccl(group.store, group.group_rank, group.group_size, own)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """As torch.distributed.monitored_barrier, which takes groups of gloo alone: a barrier whose error names the ranks that did not come.

    timeout: a timedelta, or None for the group's. wait_all_ranks: name all missing ranks, not only the first.
    """
    group = torch.distributed.group.WORLD if group is None else group
    if group == torch.distributed.GroupMember.NON_GROUP_MEMBER:
        return
    limit = {} if timeout is None else {"timeout": timeout}
    group.monitored_barrier(**limit, wait_all_ranks=wait_all_ranks)


def register():
    if not hasattr(torch.distributed.Backend, "QCCL"):
        torch.distributed.Backend.register_backend("qccl", create, extended_api=True, devices=["cpu"])
