"""How ranks meet: under a launcher, by an id, over an all-gather of the program, or as threads of this process."""
from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from typing import Any, Callable, Sequence

from . import _arguments, _comm
from . import _declarations as c
from . import _errors
from ._comm import Comm, finish_creation, read_id
from ._interrupts import SignalWatch
from ._library import check, lib

JOIN_SECONDS = 0.1  # between looks for signals
LOOK_SECONDS = 1e-3  # between looks for threads that end


def unique_id() -> bytes:
    """Makes the id of one communicator. One rank makes it, and the program brings its bytes to the others, for qccl.init."""
    id = ctypes.create_string_buffer(c.QCCL_UNIQUE_ID_BYTES)
    check(lib.qcclGetUniqueId(id))
    return id.raw


def init(*, rank: int | None = None, size: int | None = None, id: bytes | None = None,
         allgather: Callable[[bytes], Sequence[bytes]] | None = None, device: str | None = None, codec: str | None = None,
         algorithm: str | None = None, timeout: float | None = None, peer_timeout: float | None = None, name: str | None = None,
         reproducible: bool = False, fusion: int | None = None, log: Callable[[int, str], None] | None = None) -> Comm:
    """Makes a communicator of all ranks of the job, and joins it. Blocks until all ranks have come, at most for `timeout`.

    Without id and allgather the ranks are those of the launcher: torchrun, mpirun, mpiexec or srun, or of RANK, WORLD_SIZE,
    MASTER_ADDR and QCCL_PORT by hand.

    rank, size: this rank's number and the number of ranks, for id and allgather.
    id: from unique_id of one rank.
    allgather: a function that gives each rank's bytes to all ranks, in rank order, such as MPI.COMM_WORLD.allgather of mpi4py.
    device: where the arrays of this rank's calls lie: "host" (default), "cuda:0", "hip:1", "emulated:0".
    codec: for reductions that name none, "int8" for example; None: QCCL_CODEC of the environment, else lossless.
    algorithm: None: planned.
    timeout: seconds that creation and calls wait for a live rank that does not come; less than 0: for ever.
    peer_timeout: seconds after which a host that cannot be reached counts as lost.
    name: shown in logs and errors.
    reproducible: results have the same bits on every machine.
    fusion: bytes of small calls of a group that run as one call; less than 0: they are not fused.
    log: called as log(level, line) with the lines of the log that QCCL_DEBUG lets pass, from any thread.
    """
    given = {"device": device, "codec": codec, "algorithm": algorithm, "timeout": timeout, "peer_timeout": peer_timeout, "name": name,
             "reproducible": reproducible, "fusion": fusion, "log": log}
    comm = _comm._new_comm(given)
    if id is not None and allgather is not None:
        raise _errors.InvalidArgument("id, allgather: ranks meet by one of the two")
    if id is None and allgather is None:
        if rank is not None or size is not None:
            raise _errors.InvalidArgument("rank, size: they belong to an id or an allgather; a launcher gives its own")
        return finish_creation(comm, lambda out, config: lib.qcclCommInitEnv(out, config))
    if rank is None or size is None:
        raise _errors.InvalidArgument("rank, size: ranks that meet by an id or an allgather pass both")
    rank, size = _arguments.whole(rank, "rank", "rank"), _arguments.whole(size, "size", "number of ranks")
    if id is not None:
        bytes_of_id = read_id(id)
        return finish_creation(comm, lambda out, config: lib.qcclCommInitRankConfig(out, size, bytes_of_id, rank, config))
    gather = AllGather(_arguments.function(allgather, "allgather"), size)
    try:
        return finish_creation(comm, lambda out, config: lib.qcclCommInitOob(out, size, rank, ctypes.byref(gather.oob), config),
                               nonblocking=False)
    except _errors.Error as error:
        raise (gather.raised or error) from (error if gather.raised else None)


class AllGather:
    """An all-gather of the program, as the library calls it."""

    def __init__(self, allgather: Callable[[bytes], Sequence[bytes]], size: int) -> None:
        self.raised: BaseException | None = None

        def gather(mine: int, all: int, length: int, _: Any) -> int:
            try:
                parts = allgather(ctypes.string_at(mine, length))
                if len(parts) != size or any(len(part) != length for part in parts):
                    raise _errors.InvalidArgument(f"allgather: it returned {len(parts)} parts of {sorted({len(p) for p in parts})} bytes, and "
                                                  f"{size} parts of {length} bytes are expected")
                ctypes.memmove(all, b"".join(map(bytes, parts)), size * length)
                return 0
            except BaseException as error:
                self.raised = error
                return 1

        self.oob = c.qcclOob_t(c.qcclOob_t_allgather(gather), None)


def init_all(size: int, devices: Sequence[str] | None = None) -> list[Comm]:
    """Makes all ranks of a communicator in this process, one for each thread that will use them. Returns them in rank order.

    Ctrl-C does not end their calls: it is raised when the call of the main thread has ended.

    devices: the device of each rank; None: all are on the host.
    """
    size = _arguments.whole(size, "size", "number of ranks", 1)
    if isinstance(devices, str):
        raise _errors.InvalidArgument(f"devices: a list with a name for each rank is expected, not {devices!r}")
    handles: Any = (ctypes.c_void_p * size)()
    names = None if devices is None else (ctypes.c_char_p * len(devices))(*[_arguments.text(device, "devices").encode() for device in devices])
    if devices is not None and len(devices) != size:
        raise _errors.InvalidArgument(f"devices: it has a name for each of the {size} ranks, not {len(devices)}")
    check(lib.qcclCommInitAll(handles, size, names))
    return [Comm({"device": devices[rank]} if devices else {}, SignalWatch())._joined(handles[rank]) for rank in range(size)]


def run_threads(size: int, function: Callable[..., Any], *arguments: Any, devices: Sequence[str] | None = None) -> list[Any]:
    """Runs function(comm, *arguments) on `size` ranks, each in a thread of this process. Returns the results in rank order.

        sums = qccl.run_threads(4, lambda comm: comm.all_reduce(numpy.ones(3)))

    If the function raises on a rank, the communicator is aborted on it, so that the others return, and the error is raised here.
    """
    number = _arguments.whole(size, "size", "number of ranks", 1, hint=", before the function")
    _arguments.function(function, "function")
    comms = init_all(number, devices)
    results, errors = [None] * size, []

    def run(rank: int) -> None:
        try:
            with comms[rank] as comm:
                try:
                    results[rank] = function(comm, *arguments)
                except BaseException as error:
                    errors.append(error)  # before this rank's end lets the others raise
                    raise
        except BaseException as error:
            if error not in errors:
                errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,), name=f"qccl rank {rank}") for rank in range(size)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            # A signal that comes right before the wait, or in another thread, does not end it.
            while thread.is_alive():
                thread.join(JOIN_SECONDS)
    except BaseException:  # a signal, or there is no thread for a rank
        for comm in comms:
            with contextlib.suppress(_errors.InvalidUsage):  # the rank has ended it
                comm.revoke()
        # Not by joins: a thread that is half started has none yet, and one whose join a signal has ended counts as stopped
        # (CPython before 3.13) though it goes on.
        while any(thread in threads for thread in threading.enumerate()):
            time.sleep(LOOK_SECONDS)
        raise
    if errors:
        raise errors[0]  # the others follow from it
    return results
