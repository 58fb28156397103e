"""Communicators: how they are made, split, asked and ended. Their collectives are in _collectives.py."""
from __future__ import annotations

import atexit
import ctypes
import json
import os
import sys
from typing import Any, Callable, Sequence

from . import _arguments, _buffers, _groups, _prepared
from . import _declarations as c
from . import _errors
from ._calls import Call, make
from ._codecs import Codec, check_spec
from ._collectives import CallOptions, Collectives, stride_of
from ._handles import Handle, at_the_end_of_workers
from ._interrupts import SignalWatch, poll_until
from ._layers import layers_of
from ._library import IN_PROGRESS, REFUSALS, SUCCESS, check, error_info, lib, make_error, sentence_of, told_text
from ._sentences import in_c
from ._states import State
from ._streams import Stream

SETTINGS = ("device", "codec", "algorithm", "timeout", "peer_timeout", "name", "reproducible", "fusion", "log")
TEXTS = ("device", "codec", "algorithm", "name")
CHECKS: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(TEXTS, _arguments.text), "codec": check_spec, "timeout": _arguments.seconds, "peer_timeout": _arguments.seconds,
    "log": _arguments.function, "fusion": lambda value, name: _arguments.whole(value, name, "number of bytes", -_arguments.INT64_MAX, _arguments.INT64_MAX)}


class Comm(Collectives, Handle):
    """A communicator: `size` ranks, of which this one is `rank`. Made by qccl.init, and by split, dup, shrink and grow.

    Its collectives and messages take options: codec, algorithm, timeout, tag, stride, state, layers, layer_min_size and stream. qccl.CallOptions says what they
    are. A reduction's op is a name ("sum" unless the call says another one, "prod", "max", "min", "avg", "bit_and", "bit_or",
    "bit_xor", "logical_and", "logical_or", "logical_xor", "min_loc", "max_loc"), a qccl.RedOp or a qccl.PreMulSum.

    As a context manager it is closed at the end of the block, and aborted if the block raises, so that other ranks do not wait
    for this one. A communicator that is not closed is closed when the program ends.
    """

    _kind = "communicator"

    def __init__(self, settings: dict[str, Any], watch: SignalWatch) -> None:
        """For the functions of this module. The communicator is not made yet."""
        self._settings, self._watch = settings, watch
        self._preparing: _prepared.Prepared | None = None  # in place of the next call
        self._codecs: dict[str, Codec] = {}
        self._used: dict[str, Codec | None] = {}
        self._registrations: set[Registration] = set()
        self.device: str = settings.get("device") or "host"

    def _joined(self, handle: int | None, keep: Any = None) -> Comm:
        self._made(handle)
        self._watch.comm, self._keep = handle, keep
        numbers = ctypes.c_int(), ctypes.c_int()
        check(lib.qcclCommCount(handle, ctypes.byref(numbers[0])))
        check(lib.qcclCommUserRank(handle, ctypes.byref(numbers[1])))
        self.size, self.rank = numbers[0].value, numbers[1].value
        OPEN.add(self)
        at_the_end_of_workers(close_all)
        return self

    def __repr__(self) -> str:
        state = f"rank {self.rank} of {self.size} on {self.device}" if self._handle is not None else "closed"
        return f"<qccl.Comm: {state}>"

    # ---- Calls

    def _call(self, name: str, arguments: tuple[Any, ...], options: CallOptions, result: Any, buffers: tuple[_buffers.Buffer, ...],
              done: Callable[[], None] | None = None) -> Any:
        """Makes the call of the C function `name`, whose arguments up to comm are `arguments`. Returns `result`.

        done: called when the call has been made, in a group at its end.
        """
        handle = self._open_handle()
        codec, config = self._call_config(options) if options else (None, None)
        call = Call(name, arguments, buffers, codec, config, self._call_stream(options.get("stream"), buffers), done)
        if self._preparing is not None:
            self._preparing._prepare(self, call)
            return result
        config_pointer = None if config is None else ctypes.byref(config)
        code = make(call.has_function(), getattr(lib, name + "Config"), *arguments, handle, call.stream, config_pointer)
        if (group := _groups.open_group()) is not None:
            group.add(self, call)
        else:
            call.hold_on_stream()
        self._watch.raise_if_interrupted()
        if code != SUCCESS:
            raise make_error(code, handle)
        if done and group is None:
            done()
        return result

    def sum_exact(self, x: Any) -> float:
        """Returns the sum of x of all ranks, added without an error and rounded once: its bits depend on the values alone.

        x: float64, any shape; ranks may pass different shapes. Blocks; not possible in groups and prepared calls.
        """
        values, total, handle = self._buffer(x, "x"), ctypes.c_double(), self._open_handle()
        if values.type != c.qcclFloat64:
            raise _buffers.refuse("x", f"its type is {values.dtype}, and sum_exact adds float64")
        if self._preparing is not None:
            raise _errors.InvalidUsage("sum_exact: its result is a value, which a prepared call does not have")
        code = make(False, lib.qcclSumExact, values.address, values.count, ctypes.byref(total), handle)
        self._watch.raise_if_interrupted()
        if code != SUCCESS:
            raise make_error(code, handle)
        return total.value

    def _call_config(self, options: CallOptions) -> tuple[Codec | None, c.qcclCollConfig_t]:
        unknown = set(options) - set(CallOptions.__annotations__)
        if unknown:
            raise TypeError(f"a call has no option {sorted(unknown)[0]!r}; its options are {', '.join(CallOptions.__annotations__)}")
        config = c.qcclCollConfig_t()
        check(lib.qcclConfigInit(ctypes.byref(config), ctypes.sizeof(config)))
        codec = None if (named := options.get("codec")) is None else self._codec(named)
        if codec is not None:
            config.codec = codec._open_handle()
        if (algorithm := options.get("algorithm")) is not None:
            config.algorithm = _arguments.text(algorithm, "algorithm").encode()
        timeout, tag = options.get("timeout") or 0, options.get("tag") or 0
        try:
            config.timeout, config.tag = timeout, tag
        except TypeError:
            config.timeout = _arguments.seconds(timeout, "timeout")
        if config.tag != tag:  # not set, or cut to its size
            _arguments.whole(tag, "tag", "tag", 0, _arguments.UINT64_MAX)
        config.stride = stride_of(options)
        if (state := options.get("state")) is not None:
            if not isinstance(state, State):
                raise _errors.InvalidArgument(f"state: a {type(state).__name__} is no state; pass a qccl.State")
            config.state = state._open_handle()
        if (layers := options.get("layers")) is not None:
            config.list_of_layers = layers_of(self, layers)  # lives as long as the config
            config.layers, config.nlayers = ctypes.addressof(config.list_of_layers), len(config.list_of_layers)
        if (least := options.get("layer_min_size")) is not None:
            config.layer_min_size = _arguments.whole(least, "layer_min_size", "number of values", 1, _arguments.UINT64_MAX)
        return codec, config

    def _codec(self, codec: str | Codec) -> Codec:
        if isinstance(codec, Codec):
            return codec
        try:
            return self._codecs[codec]
        except (KeyError, TypeError):  # not made yet, or no text
            made = Codec(codec)
        return self._codecs.setdefault(codec, made)

    def _used_codec(self, codec: Codec, call: str, algorithm: str | None = None) -> Codec | None:
        """The codec that an all-reduce with `codec` uses, which may be another one, or None if it is lossless after all."""
        if self.size == 1:
            return None
        what = f"all_reduce {call} codec={codec.spec}" + (f" algorithm={algorithm}" if algorithm else "")
        if what not in self._used:
            name = self.explain(what, format="json")["used_codec"]
            self._used[what] = None if name == "none" else Codec(name)
        return self._used[what]

    def _call_stream(self, stream: Any, buffers: tuple[_buffers.Buffer, ...]) -> Stream | int | None:
        if isinstance(stream, Stream):
            stream._open_handle()
            return stream
        if stream is None and self.device != "host":
            return current_stream(buffers)
        if stream is None or isinstance(stream, int):
            return stream
        for attribute in ("cuda_stream", "ptr"):  # of PyTorch, of CuPy
            if hasattr(stream, attribute):
                return getattr(stream, attribute)
        raise _buffers.refuse("stream", f"a {type(stream).__name__} is no stream; pass a qccl.Stream, or one of the GPU's")

    def prepare(self, collective: str, *arguments: Any, **options: Any) -> _prepared.Prepared:
        """Prepares a collective: comm.prepare("all_reduce", x, codec="int8"). Arguments and options are those of the method.

        The arrays must stay where they are until Prepared.close.
        """
        if not hasattr(c, "qcclColl" + "".join(word.capitalize() for word in _arguments.text(collective, "collective").split("_"))):
            raise _errors.InvalidArgument(f"collective: {collective!r} cannot be prepared")
        if options.get("residual") is not None:
            raise _errors.InvalidArgument("residual: a prepared call does not feed errors back")
        prepared = self._preparing = _prepared.Prepared()
        try:
            prepared.result = getattr(self, collective)(*arguments, **options)
        finally:
            self._preparing = None
        return prepared

    # ---- Other communicators of these ranks

    def split(self, color: int | None, key: int = 0, **settings: Any) -> Comm | None:
        """Makes a communicator of the ranks with the same color, numbered in the order of their keys. Every rank calls it.

        color: 0 or more; None: this rank takes part in the call and gets None. settings: as in qccl.init; those that are not
        passed are this communicator's.
        """
        number = c.QCCL_SPLIT_NOCOLOR if color is None else _arguments.whole(color, "color", "color", 0, hint=", or None")
        return self._child("qcclCommSplit", (number, _arguments.whole(key, "key", "key")), settings)

    def split_node(self, key: int = 0, **settings: Any) -> Comm:
        """Makes a communicator of the ranks that share memory with this one. Every rank calls it."""
        return self._child("qcclCommSplit", (c.QCCL_SPLIT_NODE, _arguments.whole(key, "key", "key")), settings)

    def dup(self, **settings: Any) -> Comm:
        """Makes a communicator of the same ranks, whose calls do not wait for those of this one. Every rank calls it."""
        return self._child("qcclCommDup", (), settings)

    def shrink(self, exclude: Sequence[int] = (), *, abort: bool = False, **settings: Any) -> Comm:
        """Makes a communicator of the ranks that are left, without those of `exclude`. Every rank that is left calls it.

        abort: first ends all calls on this communicator, on every rank. This communicator stays as it was, for close.
        """
        if not hasattr(exclude, "__len__"):
            raise _errors.InvalidArgument(f"exclude: a sequence of ranks is expected, not {exclude!r}")
        left_out = [_arguments.rank(rank, "exclude", self.size) for rank in exclude]
        ranks = (ctypes.c_int * len(left_out))(*left_out) if left_out else None
        child = _new_comm(self._settings | settings)
        return self._finish(child, lambda out, config: lib.qcclCommShrink(self._open_handle(), ranks, len(left_out), out, config, int(abort)))

    def grow(self, size: int, id: bytes | None = None, **settings: Any) -> Comm:
        """Makes a communicator of these ranks and of new ones, up to `size`. Every rank calls it; one of them, or more, passes
        an id of qccl.unique_id. A new rank calls qccl.init(id=id, rank=rank, size=size), with a rank of self.size or more.
        """
        number = _arguments.whole(size, "size", "number of ranks", 1)
        child = _new_comm(self._settings | settings)
        return self._finish(child, lambda out, config: lib.qcclCommGrow(self._open_handle(), number, read_id(id), -1, out, config))

    def _child(self, function: str, numbers: tuple[int, ...], settings: dict[str, Any]) -> Any:
        child = _new_comm(self._settings | settings)
        return self._finish(child, lambda out, config: getattr(lib, function)(self._open_handle(), *numbers, out, config))

    def _finish(self, child: Comm, make: Callable[[Any, Any], int]) -> Any:
        return finish_creation(child, make, parent=self._open_handle())

    # ---- Questions

    def explain(self, what: str, *, format: str = "text") -> Any:
        """Explains what the planner would do with a call: comm.explain("all_reduce bytes=64M type=float codec=int4").

        what: the collective, and any of bytes= count= type= op= root= codec= algorithm= sample=. format: "text", or "json": the same and
        more as a dictionary.
        """
        text = told_text(lib.qcclExplain, self._open_handle(), in_c(f"{what} format={format}").encode(), comm=self._handle)
        return json.loads(text) if format == "json" else text

    def stats(self) -> dict[str, int]:
        """Returns sums of what this rank has done so far: calls, raw_bytes, wire_bytes, encode_ns, wait_ns, ... (qcclCommStats_t)."""
        stats = c.qcclCommStats_t(size=ctypes.sizeof(c.qcclCommStats_t))
        check(lib.qcclCommGetStats(self._open_handle(), ctypes.byref(stats)), self._handle)
        return {field[0]: getattr(stats, field[0]) for field in stats._fields_ if field[0] not in ("size", "reserved")}

    def async_error(self) -> _errors.Error | None:
        """Returns the error that has failed the communicator, or None."""
        result = async_result(self._open_handle())
        return None if result in (SUCCESS, IN_PROGRESS) else make_error(result, self._handle, sentence_of(self._handle))

    def register(self, array: Any) -> Registration:
        """Lets other ranks read an array in memory of qccl.empty in place: lossless calls on it need no copy for them."""
        registration = Registration(self, self._buffer(array, "array"))
        self._registrations.add(registration)
        return registration

    # ---- The end

    def finalize(self) -> None:
        """Waits until all calls are done, and until every rank has begun the calls that this rank has made, and compares these."""
        handle = self._open_handle()
        result = lib.qcclCommFinalize(handle)
        sentence = None
        if result == IN_PROGRESS:
            result = poll_until(lambda: finished(handle))[0]
            sentence = sentence_of(handle)
        self._watch.raise_if_interrupted()
        if result != SUCCESS:
            raise make_error(result, handle, sentence)

    def revoke(self) -> None:
        """Fails the communicator on every rank (Revoked), and keeps it, for shrink. Any thread may call it at any time."""
        check(lib.qcclCommRevoke(self._open_handle()))

    def abort(self) -> None:
        """Ends all calls, fails the communicator on every rank (Revoked), and frees it here. Any thread may call it."""
        self._end(lib.qcclCommAbort)

    def close(self) -> None:
        """Waits and compares as finalize does, and frees the communicator. Raises what the comparison gives; or InvalidUsage while
        another thread is inside: then nothing has happened.
        """
        failure = None
        if self._handle is not None and self._owner == os.getpid() and is_sound(self._handle):
            try:
                self.finalize()
            except (_errors.InvalidUsage, _errors.Revoked):
                pass  # the end refuses the first, too; one that is revoked meanwhile is freed without an error
            except _errors.Error as error:
                failure = error  # the end does not return it again
            except BaseException:
                self.abort()
                raise
        self._end(lib.qcclCommDestroy)
        if failure is not None:
            raise failure

    def _ended(self) -> None:
        OPEN.discard(self)
        self._registrations.clear()

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def __del__(self) -> None:
        """Does nothing: communicators that are open are kept in OPEN, and at the end of the program nobody may wait any more."""


class Registration(Handle):
    """Memory that other ranks read in place, until close or the end of the communicator, which keeps the memory until then."""

    _kind = "registration"

    def __init__(self, comm: Comm, buffer: _buffers.Buffer) -> None:
        handle = ctypes.c_void_p()
        check(lib.qcclCommRegister(comm._open_handle(), buffer.address, buffer.count * buffer.itemsize, ctypes.byref(handle)), comm._handle)
        self._comm, self._buffer = comm, buffer
        self._made(handle.value)

    def _destroy(self, handle: int) -> int:
        return SUCCESS if self._comm._handle is None else lib.qcclCommDeregister(self._comm._handle, handle)

    def _ended(self) -> None:
        self._comm._registrations.discard(self)


# ---- Creation

def read_id(id: bytes | None) -> Any:
    if id is None:
        return None
    if not isinstance(id, (bytes, bytearray)) or len(id) != c.QCCL_UNIQUE_ID_BYTES:
        raise _errors.InvalidArgument(f"id: an id is the {c.QCCL_UNIQUE_ID_BYTES} bytes that qccl.unique_id returns, not {type(id).__name__}"
                                      + (f" of {len(id)}" if hasattr(id, "__len__") else ""))
    return ctypes.create_string_buffer(bytes(id), c.QCCL_UNIQUE_ID_BYTES)


def _new_comm(settings: dict[str, Any]) -> Comm:
    for name, value in settings.items():
        if name not in SETTINGS:
            raise TypeError(f"a communicator has no setting {name!r}; its settings are {', '.join(SETTINGS)}")
        if name in CHECKS and value is not None:
            CHECKS[name](value, name)
    return Comm({name: value for name, value in settings.items() if value is not None}, SignalWatch())


def make_config(comm: Comm, nonblocking: bool = True) -> tuple[c.qcclConfig_t, Any]:
    """The config of a new communicator, and what has to live as long as the communicator."""
    settings, config = comm._settings, c.qcclConfig_t()
    check(lib.qcclConfigInit(ctypes.byref(config), ctypes.sizeof(config)))
    for name in TEXTS:
        setattr(config, name, settings[name].encode() if name in settings else None)
    config.timeout, config.peer_timeout = settings.get("timeout", 0), settings.get("peer_timeout", 0)
    config.reproducible, config.fusion = int(settings.get("reproducible", False)), settings.get("fusion", 0)
    config.nonblocking = int(nonblocking)  # so that signals are handled while ranks are awaited
    config.idle.function = comm._watch.function
    if "log" in settings:
        write = settings["log"]
        config.log.function = c.qcclLog_t_function(lambda level, line, _: write(level, line.decode(errors="replace")))
    return config, config.log.function


def async_result(handle: int | None) -> int:
    result = c.c_int32()
    check(lib.qcclCommGetAsyncError(handle, ctypes.byref(result)))
    return result.value


def is_sound(handle: int | None) -> bool:
    """Whether a communicator has not failed. async_result counts as telling the caller of a mismatch, and then the end does not return
    it. So the latest error is asked first; only a refusal may hide a failure, which a call has then returned.
    """
    code = error_info(handle).code
    return code == SUCCESS or (code in REFUSALS and async_result(handle) in (SUCCESS, IN_PROGRESS))


def finished(handle: int | None) -> tuple[int] | None:
    """The result of what a thread of the library does in a communicator, or None while that goes on."""
    result = async_result(handle)
    return None if result == IN_PROGRESS else (result,)


def finish_creation(comm: Comm, make: Callable[[Any, Any], int], *, parent: int | None = None, nonblocking: bool = True) -> Any:
    """Calls make(comm_out, config), and waits until the communicator is made. Returns it; or None if a split gave none."""
    config, keep = make_config(comm, nonblocking)
    out = ctypes.c_void_p()
    result = make(ctypes.byref(out), ctypes.byref(config))
    made = out.value
    if result == IN_PROGRESS:
        try:
            result = poll_until(lambda: finished(made if made is not None else parent))[0]
        except BaseException:
            check(lib.qcclCommAbort(made) if made is not None else lib.qcclCommRevoke(parent))
            raise
        if result != SUCCESS:
            error = make_error(result, sentence=sentence_of(made if made is not None else parent))
            if made is not None:
                lib.qcclCommDestroy(made)
            raise error
    check(result, parent)
    return comm._joined(made, keep) if made is not None else None


def current_stream(buffers: tuple[_buffers.Buffer, ...]) -> int | None:
    """The stream of a GPU on which the caller works: PyTorch's current one for its tensors, else the default stream."""
    torch = sys.modules.get("torch")
    for buffer in buffers:
        if torch is not None and isinstance(buffer.array, torch.Tensor):
            return torch.cuda.current_stream(buffer.array.device).cuda_stream
    return None


# Communicators that have not been closed. They are kept until then, because the library calls their functions.
OPEN: set[Comm] = set()

@atexit.register
def close_all() -> None:
    """Runs at the end of the program. If the program ends with an exception, other ranks should not wait for this one."""
    # A worker of multiprocessing comes here while it handles the exception; from Python 3.13 on afterwards. Then its communicators
    # are closed, and its peers get PeerLost.
    has_failed = hasattr(sys, "last_value") or not isinstance(sys.exc_info()[1], (type(None), SystemExit))
    first = None
    for comm in [comm for comm in OPEN if comm._owner == os.getpid()]:
        try:
            comm.abort() if has_failed else comm.close()
        except _errors.Error as error:  # the others still have to be closed
            first = first or error
    if first:
        raise first
