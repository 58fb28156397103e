"""The collectives of a communicator, and its messages. Comm inherits them.

What holds for every method:
- An array is a NumPy array, or an object with DLPack, `__cuda_array_interface__` or the buffer protocol. It is contiguous and
  lies in memory of the communicator's device. All ranks pass arrays of the same type and number of values.
- `out` is where the result goes. Without `out`, methods that keep the number of values (all_reduce, broadcast, reduce, scan,
  exscan, all_to_all) write the result over x, and the others make a new array of x's library, type and device.
- `options` are those of CallOptions. With a stream the method returns at once, and its arrays are in use until the stream, or a
  request behind the call, is done. In a group the arrays are in use until the group's end. Else the method returns when the call
  is done on this rank. It releases the interpreter's lock while it waits.
- One thread at a time may be inside a communicator.
- Errors are subclasses of qccl.Error. InvalidArgument and InvalidUsage are refusals: nothing has happened. After any other error
  the communicator has failed.
"""
from __future__ import annotations

import ctypes
import operator
from typing import TYPE_CHECKING, Any, Callable, Iterable, Sequence, TypedDict

import numpy as np

from . import _arguments, _buffers, _ops

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._codecs import Codec
    from ._layers import Layer
    from ._ops import Op
    from ._states import State


class CallOptions(TypedDict, total=False):
    """The options of one call, for every method of Comm that is a collective or a message: comm.all_reduce(x, codec="int8", tag=3).

    - `codec`: how values travel: the spec of a codec, such as "int8" or "int4:block=32", or a qccl.Codec. "none": lossless. None:
      for reductions the communicator's, which qccl.init(codec="int8") sets, or that of QCCL_CODEC; else lossless.
    - `algorithm`: its name, such as "ring" or "tree". None: the planner chooses one.
    - `timeout`: seconds to wait for a live rank that does not come; less than 0: for ever. None: the communicator's.
    - `tag`: a number, 0 or more, by which errors and traces tell calls apart.
    - `stride`: for collectives with blocks of ranks: values from the start of a block to the start of the next one. 0: the blocks
      follow one another.
    - `state`: for all_reduce, reduce and reduce_scatter with sum or avg: a qccl.State, with which the call makes good what the codecs
      of earlier calls have lost. All ranks pass one, or none does.
    - `layers`: for all_reduce: the parts of x that travel by themselves, one behind the other: a qccl.Layer for each, or its shape or
      number of values. Each has a codec and a state of its own, and the result is that of a call for each.
    - `layer_min_size`: with layers: those of fewer values are lossless, as those of one dimension are. None: 1024. 1: none is for its
      size.
    - `stream`: a qccl.Stream: the method returns at once. On a GPU one of its streams: a number, or an object of PyTorch or CuPy.
      None: the method returns when the call is done; on a GPU the current stream of PyTorch for its tensors, else the default stream.
    """
    codec: str | Codec | None
    algorithm: str | None
    timeout: float | None
    tag: int
    stride: int
    state: State | None
    layers: Iterable[Layer | int | Sequence[int]] | None
    layer_min_size: int | None
    stream: Any


def counts_array(counts: Sequence[int] | None) -> Any:
    return None if counts is None else (ctypes.c_size_t * len(counts))(*counts)


def stride_of(options: CallOptions) -> int:
    """0: blocks follow one another."""
    stride = options.get("stride")
    return 0 if stride is None else _arguments.whole(stride, "stride", "number of values", 0, _arguments.UINT64_MAX)


def blocks_extent(count: int, blocks: int, options: CallOptions) -> int:
    """Values from the start of the first block to the end of the last one."""
    return (blocks - 1) * (stride_of(options) or count) + count


def parts_extent(counts: Sequence[int], displs: Sequence[int] | None) -> int:
    # As Python's integers: sums of NumPy's would wrap in their own type.
    of_ranks = [operator.index(count) for count in counts]
    if displs is None:
        return sum(of_ranks)
    return max((operator.index(start) + count for start, count in zip(displs, of_ranks) if count), default=0)


class Collectives:
    """The base of Comm, which makes the calls."""

    size: int
    rank: int
    device: str

    def _call(self, name: str, arguments: tuple[Any, ...], options: CallOptions, result: Any, buffers: tuple[_buffers.Buffer, ...],
              done: Callable[[], None] | None = None) -> Any:
        raise NotImplementedError

    def _codec(self, codec: str | Codec) -> Codec:
        raise NotImplementedError

    def _used_codec(self, codec: Codec, call: str, algorithm: str | None = None) -> Codec | None:
        raise NotImplementedError

    # ---- Arguments

    def _buffer(self, x: Any, name: str, writable: bool = False) -> _buffers.Buffer:
        buffer = _buffers.describe(x, name, writable=writable)
        if (buffer.device == "host") != (self.device == "host"):
            raise _buffers.refuse(name, f"the array lies on {buffer.device}, and the communicator's device is {self.device}")
        return buffer

    def _result(self, out: Any, x: _buffers.Buffer, values: int, shape: Sequence[int]) -> _buffers.Buffer:
        """The buffer of `out`, or of a new array like x. It needs at least so many values."""
        result = self._buffer(_buffers.make_like(x, shape) if out is None else out, "out", writable=True)
        self._check_like(result, x, values)
        return result

    @staticmethod
    def _check_like(out: _buffers.Buffer, x: _buffers.Buffer, values: int) -> None:
        if out.type != x.type:
            raise _buffers.refuse("out", f"its type is {out.dtype}, and that of x is {x.dtype}")
        if out.count < values:
            raise _buffers.refuse("out", f"it has {out.count} values, and the result needs {values}")

    @staticmethod
    def _check_holds(buffer: _buffers.Buffer, name: str, values: int) -> None:
        if buffer.count < values:
            raise _buffers.refuse(name, f"it has {buffer.count} values, and the call reads or writes {values}")

    def _same_shape(self, x: Any, out: Any) -> tuple[_buffers.Buffer, _buffers.Buffer]:
        """The buffers of x and of a result with as many values, which is x itself if there is no `out`."""
        source = self._buffer(x, "x", writable=out is None)
        if out is None:
            return source, source
        target = self._buffer(out, "out", writable=True)
        self._check_like(target, source, source.count)
        return source, target

    def _block(self, x: _buffers.Buffer, name: str = "x") -> tuple[int, tuple[int, ...]]:
        """Values and shape of one of the blocks that x has for all ranks, along its first axis."""
        if not x.shape or x.shape[0] % self.size:
            raise _buffers.refuse(name, f"its first axis is cut into {self.size} blocks of equal length, one for each rank, and its "
                                        f"shape is {x.shape}")
        return x.count // self.size, (x.shape[0] // self.size, *x.shape[1:])

    def _of_all(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the blocks of all ranks, one after the other along the first axis."""
        return (self.size * shape[0], *shape[1:]) if shape else (self.size,)

    # ---- Collectives

    def all_reduce(self, x: Any, op: str | Op = "sum", *, out: Any = None, residual: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Combines x of all ranks, value by value, and gives every rank the result, in x or in `out`. Returns the result.

        x: any shape. out: as many values.
        residual: error feedback, for a call with a codec. An array like x, zeros at first, which the caller keeps from call to
            call: the call reduces x + residual, and the residual then has what the codec loses of this rank's sum. A refused
            call leaves it as it was. For memory of the host.
        """
        source, target = self._same_shape(x, out)
        keep_errors = None
        if residual is not None:
            source, keep_errors = self._corrected(source, op, residual, options)
        return self._call("qcclAllReduce", (source.address, target.address, source.count, source.type, _ops.argument(op, source)), options,
                          target.array, (source, target), keep_errors)

    def reduce(self, x: Any, op: str | Op = "sum", *, root: int = 0, out: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Combines x of all ranks, value by value, and gives the result to `root`, in its x or `out`. Returns it there, else None.

        x: any shape. out: as many values, on the root.
        """
        root = _arguments.rank(root, "root", self.size)
        if self.rank == root:
            source, target = self._same_shape(x, out)
        else:
            source = target = self._buffer(x, "x")
        address = target.address if self.rank == root else None
        return self._call("qcclReduce", (source.address, address, source.count, source.type, _ops.argument(op, source), root), options,
                          target.array if self.rank == root else None, (source, target))

    def broadcast(self, x: Any, *, root: int = 0, out: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Gives every rank the values that x has on `root`, in x or in `out`. Returns them.

        x: any shape; what it holds on other ranks does not matter. out: as many values.
        """
        root = _arguments.rank(root, "root", self.size)
        source, target = self._same_shape(x, out)
        return self._call("qcclBroadcast", (source.address, target.address, source.count, source.type, root), options, target.array,
                          (source, target))

    def all_gather(self, x: Any, *, out: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Gives every rank x of all ranks, one after the other along the first axis, in rank order. Returns them.

        x: shape (n, ...). out: shape (size * n, ...); x may be this rank's part of it.
        """
        source = self._buffer(x, "x")
        target = self._result(out, source, blocks_extent(source.count, self.size, options), self._of_all(source.shape))
        return self._call("qcclAllGather", (source.address, target.address, source.count, source.type), options, target.array,
                          (source, target))

    def gather(self, x: Any, *, root: int = 0, out: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Gives `root` x of all ranks, one after the other along the first axis, in rank order. Returns them there, else None.

        x: shape (n, ...). out: shape (size * n, ...), on the root; x may be the root's part of it.
        """
        root = _arguments.rank(root, "root", self.size)
        source = self._buffer(x, "x")
        if self.rank != root:
            return self._call("qcclGather", (source.address, None, source.count, source.type, root), options, None, (source,))
        target = self._result(out, source, blocks_extent(source.count, self.size, options), self._of_all(source.shape))
        return self._call("qcclGather", (source.address, target.address, source.count, source.type, root), options, target.array,
                          (source, target))

    def reduce_scatter(self, x: Any, op: str | Op = "sum", *, out: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Combines x of all ranks, value by value, cuts the result into blocks along the first axis, and gives rank r block r.
        Returns the block.

        x: shape (size * n, ...). out: shape (n, ...), which may be this rank's part of x. With a stride, out is needed.
        """
        source = self._buffer(x, "x")
        target = self._block_result(out, source, options)
        return self._call("qcclReduceScatter", (source.address, target.address, target.count, source.type, _ops.argument(op, source)), options,
                          target.array, (source, target))

    def scatter(self, x: Any = None, *, root: int = 0, out: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Cuts x of `root` into blocks along the first axis, and gives rank r block r. Returns the block.

        x: shape (size * n, ...), on the root only. out: shape (n, ...); needed on other ranks, whose arrays say what comes.
        """
        root = _arguments.rank(root, "root", self.size)
        if self.rank != root:
            target = self._received_part(out)
            return self._call("qcclScatter", (None, target.address, target.count, target.type, root), options, target.array, (target,))
        source = self._buffer(x, "x")
        target = self._block_result(out, source, options)
        return self._call("qcclScatter", (source.address, target.address, target.count, source.type, root), options, target.array,
                          (source, target))

    def _received_part(self, out: Any) -> _buffers.Buffer:
        """The buffer of a rank other than the root."""
        if out is None:
            raise _buffers.refuse("out", "ranks other than the root pass an array for their part, because only the root has x")
        return self._buffer(out, "out", writable=True)

    def _block_result(self, out: Any, source: _buffers.Buffer, options: CallOptions) -> _buffers.Buffer:
        """The buffer for one of the blocks of x: `out`, or a new one."""
        if out is None and stride_of(options):
            raise _buffers.refuse("out", "with a stride the block's length does not follow from x; pass an array for it")
        target = self._result(out, source, 0, () if out is not None else self._block(source)[1])
        self._check_holds(source, "x", blocks_extent(target.count, self.size, options))
        return target

    def all_to_all(self, x: Any, *, out: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Cuts x into blocks along the first axis and gives rank r block r; receives a block of each rank, in rank order.

        x: shape (size * n, ...). out: the same; without it the result replaces x. Returns the result.
        """
        source, target = self._same_shape(x, out)
        stride = stride_of(options)
        count = source.count - (self.size - 1) * stride if stride else self._block(source)[0]
        if count < 0:
            raise _buffers.refuse("x", f"it has {source.count} values, too few for {self.size} blocks with a stride of {stride}")
        return self._call("qcclAllToAll", (source.address, target.address, count, source.type), options, target.array, (source, target))

    def scan(self, x: Any, op: str | Op = "sum", *, out: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Combines x of the ranks up to this one, value by value, in x or in `out`. Returns the result."""
        source, target = self._same_shape(x, out)
        return self._call("qcclScan", (source.address, target.address, source.count, source.type, _ops.argument(op, source)), options,
                          target.array, (source, target))

    def exscan(self, x: Any, op: str | Op = "sum", *, out: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Combines x of the ranks before this one, value by value, in x or in `out`. Returns the result.

        Rank 0 has no result: nothing is written there, and the method returns None.
        """
        source, target = self._same_shape(x, out)
        return self._call("qcclExscan", (source.address, target.address, source.count, source.type, _ops.argument(op, source)), options,
                          target.array if self.rank else None, (source, target))

    def barrier(self, **options: Unpack[CallOptions]) -> None:
        """Returns, or lets the stream go on, when every rank has come."""
        self._call("qcclBarrier", (), options, None, ())

    # ---- Collectives whose parts have lengths of their own

    def all_gather_v(self, x: Any, counts: Sequence[int], *, displs: Sequence[int] | None = None, out: Any = None,
                     **options: Unpack[CallOptions]) -> Any:
        """Gives every rank counts[r] values of each rank r. Returns them, in one dimension unless `out` is passed.

        x: counts[rank] values. counts, displs: an entry for each rank, in values; part r begins displs[r] values behind the start
        of the result, and without displs the parts follow one another. All ranks pass the same counts.
        """
        counts = self._check_parts(counts, displs)
        source = self._buffer(x, "x")
        self._check_holds(source, "x", counts[self.rank])
        target = self._result(out, source, parts_extent(counts, displs), (parts_extent(counts, displs),))
        return self._call("qcclAllGatherV", (source.address, target.address, counts_array(counts), counts_array(displs), source.type),
                          options, target.array, (source, target))

    def reduce_scatter_v(self, x: Any, counts: Sequence[int], op: str | Op = "sum", *, displs: Sequence[int] | None = None,
                         out: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Combines x of all ranks, value by value, and gives rank r the part of counts[r] values. Returns the part.

        x: the parts for all ranks. counts, displs: as in all_gather_v. out: counts[rank] values.
        """
        counts = self._check_parts(counts, displs)
        source = self._buffer(x, "x")
        self._check_holds(source, "x", parts_extent(counts, displs))
        target = self._result(out, source, counts[self.rank], (counts[self.rank],))
        return self._call("qcclReduceScatterV", (source.address, target.address, counts_array(counts), counts_array(displs), source.type,
                                                 _ops.argument(op, source)), options, target.array, (source, target))

    def gather_v(self, x: Any, counts: Sequence[int] | None = None, *, root: int = 0, displs: Sequence[int] | None = None,
                 out: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Gives `root` all values of x of each rank. Returns them there, else None.

        counts, displs: on the root: how many values come from each rank, and where they go, as in all_gather_v.
        """
        root = _arguments.rank(root, "root", self.size)
        source = self._buffer(x, "x")
        if self.rank != root:
            return self._call("qcclGatherV", (source.address, source.count, None, None, None, source.type, root), options, None,
                              (source,))
        counts = self._check_parts(counts, displs)
        target = self._result(out, source, parts_extent(counts, displs), (parts_extent(counts, displs),))
        return self._call("qcclGatherV", (source.address, source.count, target.address, counts_array(counts), counts_array(displs),
                                          source.type, root), options, target.array, (source, target))

    def scatter_v(self, x: Any = None, counts: Sequence[int] | None = None, *, root: int = 0, displs: Sequence[int] | None = None,
                  out: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Gives rank r the part of counts[r] values of the root's x. Returns the part.

        x, counts, displs: on the root only. out: the part; needed on other ranks, whose arrays say what comes.
        """
        root = _arguments.rank(root, "root", self.size)
        if self.rank != root:
            target = self._received_part(out)
            return self._call("qcclScatterV", (None, None, None, target.address, target.count, target.type, root), options, target.array,
                              (target,))
        counts = self._check_parts(counts, displs)
        source = self._buffer(x, "x")
        self._check_holds(source, "x", parts_extent(counts, displs))
        target = self._result(out, source, counts[root], (counts[root],))
        return self._call("qcclScatterV", (source.address, counts_array(counts), counts_array(displs), target.address, counts[root],
                                           source.type, root), options, target.array, (source, target))

    def all_to_all_v(self, x: Any, send_counts: Sequence[int], recv_counts: Sequence[int], *, send_displs: Sequence[int] | None = None,
                     recv_displs: Sequence[int] | None = None, out: Any = None, **options: Unpack[CallOptions]) -> Any:
        """Sends send_counts[r] values of x to each rank r, and receives recv_counts[r] from it. Returns what it received, in `out`
        or in a new array of one dimension.

        send_counts[r] is what rank r has as recv_counts[rank]. The displacements are as in all_gather_v.
        """
        self._check_parts(send_counts, send_displs, "send_")
        self._check_parts(recv_counts, recv_displs, "recv_")
        source = self._buffer(x, "x")
        self._check_holds(source, "x", parts_extent(send_counts, send_displs))
        extent = parts_extent(recv_counts, recv_displs)
        target = self._result(out, source, extent, (extent,))
        return self._call("qcclAllToAllV", (source.address, counts_array(send_counts), counts_array(send_displs), target.address,
                                            counts_array(recv_counts), counts_array(recv_displs), source.type), options, target.array,
                          (source, target))

    def _check_parts(self, counts: Sequence[int] | None, displs: Sequence[int] | None, prefix: str = "") -> Sequence[int]:
        for name, values in ((f"{prefix}counts", counts), (f"{prefix}displs", displs)):
            if values is None and name.endswith("displs"):
                continue
            if values is None or not hasattr(values, "__len__") or len(values) != self.size:
                raise _buffers.refuse(name, f"it has an entry for each of the {self.size} ranks, and {values!r} has not")
            try:
                are_counts = all(operator.index(value) >= 0 for value in values)
            except TypeError:
                are_counts = False
            if not are_counts:
                raise _buffers.refuse(name, f"its entries are 0 or more, and ints, and {values!r} has others")
        assert counts is not None
        return counts

    # ---- Messages

    def send(self, x: Any, dest: int, **options: Unpack[CallOptions]) -> None:
        """Sends x to rank `dest`, which calls recv. May wait for it."""
        dest = _arguments.rank(dest, "dest", self.size)
        source = self._buffer(x, "x")
        self._call("qcclSend", (source.address, source.count, source.type, dest), options, None, (source,))

    def recv(self, out: Any, source: int, **options: Unpack[CallOptions]) -> Any:
        """Receives what rank `source` sends, as many values as `out` has. Returns out."""
        source = _arguments.rank(source, "source", self.size)
        target = self._buffer(out, "out", writable=True)
        return self._call("qcclRecv", (target.address, target.count, target.type, source), options, out, (target,))

    def send_recv(self, x: Any, dest: int, out: Any, source: int, **options: Unpack[CallOptions]) -> Any:
        """Sends x to rank `dest` and receives `out` from rank `source`, at the same time. Returns out."""
        dest = _arguments.rank(dest, "dest", self.size)
        source = _arguments.rank(source, "source", self.size)
        sent, received = self._buffer(x, "x"), self._buffer(out, "out", writable=True)
        self._check_like(received, sent, 0)
        return self._call("qcclSendRecv", (sent.address, sent.count, dest, received.address, received.count, source, sent.type), options,
                          out, (sent, received))

    # ---- Error feedback

    def _corrected(self, x: _buffers.Buffer, op: str | Op, residual: Any, options: CallOptions) -> tuple[_buffers.Buffer, Callable[[], None]]:
        """The sum of x and its residual, and a function that writes what the codec loses of this sum to the residual."""
        spec = options.get("codec")
        if spec is None:
            raise _buffers.refuse("residual", "the call names no codec whose errors it could keep")
        if options.get("state") is not None:
            raise _buffers.refuse("residual", "the call has a state, which keeps the same errors")
        if options.get("layers") is not None:
            raise _buffers.refuse("residual", "the call has layers, which keep errors with a qccl.State for each")
        codec, kept = self._codec(spec), self._buffer(residual, "residual", writable=True)
        if codec._has_guard():
            raise _buffers.refuse("residual", f"with the guard of {codec.spec!r} some calls are lossless, and have no errors to keep")
        codec._check_feeds_back("residual")
        if x.device != "host" or kept.type != x.type or kept.count != x.count:
            raise _buffers.refuse("residual", f"it has the type and the number of values of x, in memory of the host: {x.dtype} and "
                                              f"{x.count}, not {kept.dtype} and {kept.count}")
        if x.dtype not in ("float16", "float32", "float64"):
            raise _buffers.refuse("residual", f"QCCL feeds errors back for float16, float32 and float64, not for {x.dtype}")
        errors = _buffers.as_numpy(kept)
        values = _buffers.as_numpy(x) + errors
        used = self._used_codec(codec, f"count={x.count} type={x.dtype} op={op if isinstance(op, str) else 'sum'}", options.get("algorithm"))
        if used is None:
            lost = np.zeros_like(values)
        else:
            used._check_feeds_back("residual")
            with np.errstate(invalid="ignore"):
                lost = values - used.decode(used.encode(values), like=values)
            # A block with an Inf or a NaN loses all, once: fed back, it would stay for ever.
            lost[~np.isfinite(lost)] = 0
        return self._buffer(values, "x"), lambda: np.copyto(errors, lost)
