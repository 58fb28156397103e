"""The communication hook of DistributedDataParallel: averages gradients over QCCL, with a codec and error feedback for each layer.

`register` is for programs. DDP calls the hook on its own threads, bucket after bucket in the same order on all ranks. Backward goes
on while one thread of the hook adds residuals to a bucket and another makes the calls for the bucket before it.
"""
from __future__ import annotations

import concurrent.futures
import fnmatch
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed

from .. import _arguments, _errors
from .._codecs import Codec, check_spec
from .._groups import group
from .._init import init, unique_id

if TYPE_CHECKING:
    from .._comm import Comm

LOSSLESS = "none"
MISSING = "missing"  # of a setting, in errors
STATE_VERSION = 1
# Residuals of 16-bit gradients are kept in fp32: they are small beside the gradients.
RESIDUAL_TYPES = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float32, torch.float64: torch.float64}
# Values for which errors are computed at once: few enough to stay in a core's cache from one operation to the next, and a multiple
# of the usual blocks and buckets of codecs.
PIECE = 1 << 18


def comm_of(process_group: Any = None, **settings: Any) -> Comm:
    """Makes a communicator of the ranks of a process group of PyTorch, whatever its backend. Every rank of the group calls it.

    settings: those of qccl.init, such as device= and timeout=.
    """
    distributed = torch.distributed
    rank, size = distributed.get_rank(process_group), distributed.get_world_size(process_group)
    box = [unique_id() if rank == 0 else None]
    source = distributed.get_global_rank(process_group, 0) if process_group is not None else 0
    distributed.broadcast_object_list(box, src=source, group=process_group)
    return init(rank=rank, size=size, id=box[0], **settings)


class Layer:
    """What the hook has about one parameter."""

    def __init__(self, name: str, codec: Codec | None) -> None:
        self.name, self.codec = name, codec
        self.residual: torch.Tensor | None = None
        # The codec whose errors are fed back. A call may use another than the one that it is given, or none.
        self.used_codec: Codec | None = None

    def find_used_codec(self, comm: Comm, parameter: torch.nn.Parameter) -> None:
        if self.codec is not None:
            dtype = str(parameter.dtype).removeprefix("torch.")
            self.used_codec = comm._used_codec(self.codec, f"count={parameter.numel()} type={dtype} op=avg")
            if self.used_codec is not None:
                self.used_codec._check_feeds_back(f"error_feedback: parameter {self.name}")

    def correct(self, gradient: torch.Tensor) -> None:
        """Adds the residual to the gradient, and keeps what the codec loses of the sum."""
        if self.used_codec is None:
            return
        if self.residual is None:
            self.residual = torch.zeros_like(gradient, dtype=RESIDUAL_TYPES[gradient.dtype])
        values, errors = gradient.view(-1), self.residual.view(-1)
        # Fresh memory for each layer's decoded values would cost more than all the rest.
        decoded = torch.empty_like(values[:PIECE])
        for piece, error in zip(values.split(PIECE), errors.split(PIECE)):
            piece.copy_(error.add_(piece))
            error.sub_(self.used_codec.decode(self.used_codec.encode(piece), out=decoded[:len(piece)]))
            # A block with an Inf or a NaN loses all, once: fed back, it would stay for ever.
            error.nan_to_num_(0, 0, 0)


class Hook:
    """Settings, residuals and steps of a hook. Made by `register`.

    state_dict and load_state_dict are for checkpoints; each rank saves and loads its own, because residuals differ. After a
    failure the residuals are those of a step that has not been made: a program goes on from a state that it has saved before. close
    ends the hook's threads and the communicator, if `register` has made it.
    """

    def __init__(self, comm: Comm, owns_comm: bool, layers: dict[torch.nn.Parameter, Layer], error_feedback: bool, warm_up_steps: int) -> None:
        self.comm, self.steps = comm, 0
        self._owns_comm, self._error_feedback, self._warm_up_steps = owns_comm, error_feedback, warm_up_steps
        self._layers, self._is_closed = layers, False
        self._corrections = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="qccl residuals")
        self._calls = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="qccl hook")

    def codecs(self) -> dict[str, str]:
        """Returns the codec of each parameter; "none": lossless."""
        return {layer.name: layer.codec.spec if layer.codec else LOSSLESS for layer in self._layers.values()}

    def average_bucket(self, _, bucket):
        """Called by DDP, which compares annotations as objects. The future has the bucket's buffer when it holds the averages."""
        if self._is_closed:
            raise _errors.InvalidUsage("the hook has been closed, and DDP keeps its hook: make a new DistributedDataParallel")
        done: torch.futures.Future[None] = torch.futures.Future()
        uses_codecs = self.steps >= self._warm_up_steps
        if bucket.is_last():
            self.steps += 1
        buffer, gradients, layers = bucket.buffer(), bucket.gradients(), [self._layers[parameter] for parameter in bucket.parameters()]
        feeds_back = self._error_feedback and uses_codecs
        correction = self._corrections.submit(self._correct, layers, gradients) if feeds_back else None
        work = self._calls.submit(self._average, layers, gradients, uses_codecs, correction)
        work.add_done_callback(lambda _: done.set_result(None))

        def result(_: Any) -> torch.Tensor:
            work.result()  # raises its error; DDP would take the exception of Future.set_exception for a tensor
            return buffer

        return done.then(result)

    def _average(self, layers: list[Layer], gradients: list[torch.Tensor], uses_codecs: bool,
                 correction: concurrent.futures.Future[None] | None) -> None:
        if correction is not None:
            correction.result()
        with torch.no_grad():
            # Each layer is a call of its own, so that no block of a codec reaches into another layer; the group fuses small ones.
            with group():
                for layer, gradient in zip(layers, gradients, strict=True):
                    self.comm.all_reduce(gradient.view(-1), "avg", codec=(uses_codecs and layer.codec) or LOSSLESS)

    @staticmethod
    def _correct(layers: list[Layer], gradients: list[torch.Tensor]) -> None:
        """Adds the residuals to the gradients, and keeps what the codecs lose of the sums."""
        with torch.no_grad():
            for layer, gradient in zip(layers, gradients, strict=True):
                layer.correct(gradient)

    def settings(self) -> dict[str, Any]:
        """Returns what all ranks must have in common, in the words of errors."""
        codecs = {f"the codec of parameter {name}": codec for name, codec in self.codecs().items()}
        return codecs | {"error_feedback": bool(self._error_feedback), "warm_up_steps": self._warm_up_steps}

    # ---- Checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Returns the steps so far and this rank's residuals, by the names of the parameters. Called between two steps."""
        residuals = {layer.name: layer.residual.clone() for layer in self._layers.values() if layer.residual is not None}
        return {"version": STATE_VERSION, "steps": self.steps, "codecs": self.codecs(), "residuals": residuals}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was taken: on the same rank, with the same parameters and codecs."""
        if state.get("version") != STATE_VERSION:
            raise _errors.InvalidArgument(f"state: its version is {state.get('version')!r}, and this release reads {STATE_VERSION}")
        steps, codecs, residuals = (state.get(key) for key in ("steps", "codecs", "residuals"))
        if not (isinstance(steps, int) and steps >= 0 and isinstance(codecs, dict) and isinstance(residuals, dict)):
            raise _errors.InvalidArgument("state: it has other steps, codecs or residuals than Hook.state_dict gives")
        if state["codecs"] != self.codecs():
            here = self.codecs()
            name = next(name for name in sorted({*here, *state["codecs"]}) if here.get(name) != state["codecs"].get(name))
            raise _errors.InvalidArgument(f"state: the codec of parameter {name} is {state['codecs'].get(name)!r}, and here {here.get(name)!r}")
        for parameter, layer in self._layers.items():
            saved = state["residuals"].get(layer.name)
            if saved is not None and (saved.shape != parameter.shape or saved.dtype != RESIDUAL_TYPES[parameter.dtype]):
                raise _errors.InvalidArgument(f"state: the residual of {layer.name} has shape {tuple(saved.shape)} and type {saved.dtype}, which "
                                              f"does not belong to a parameter of shape {tuple(parameter.shape)} and type {parameter.dtype}")
        self.steps = state["steps"]
        for layer in self._layers.values():
            saved = state["residuals"].get(layer.name)
            layer.residual = None if saved is None else saved.clone(memory_format=torch.contiguous_format)

    def close(self) -> None:
        """Waits for the calls that are under way, and ends the hook. DDP keeps it: a backward raises InvalidUsage from then on."""
        self._is_closed = True
        self._corrections.shutdown()
        self._calls.shutdown()
        if self._owns_comm:
            self.comm.close()

    def __enter__(self) -> Hook:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None and self._owns_comm:
            self.comm.abort()
        self.close()


def register(ddp: torch.nn.parallel.DistributedDataParallel, *, codec: str | Codec | None = None, layers: Mapping[str, str | Codec] | None = None,
             layer_min_size: int = 1024, error_feedback: bool = False, warm_up_steps: int = 0, comm: Comm | None = None) -> Hook:
    """Lets a DistributedDataParallel average its gradients over QCCL. Every rank calls it, before the first backward.

        ddp = torch.nn.parallel.DistributedDataParallel(model)
        hook = qccl.torch.register(ddp, codec="int4", error_feedback=True)

    codec: of all layers that have two or more dimensions and at least `layer_min_size` values; the others are lossless, because
        biases and norms are few values that matter. None: lossless.
    layers: codecs of single layers, by patterns of their names: {"*.embed.weight": "int8", "head.*": "none"}. The first pattern
        that fits a name decides, whatever the layer's size.
    error_feedback: each rank keeps what the codec has lost of a layer's gradient, and adds it to the next one. Memory: a copy of
        the compressed layers. Not with a codec that has a guard, which would make some calls lossless. Nothing is kept of layers
        whose calls are lossless after all (by `min=` of the codec, or because the planner expects no gain from it).
    warm_up_steps: so many first steps are lossless.
    comm: a communicator of the ranks of DDP's process group; None: the hook makes one, and closes it.

    All ranks pass the same settings; else all raise Mismatch. The parameters lie in memory of the host. Those that need no gradient
    when `register` is called have no codec.
    """
    if not isinstance(ddp, torch.nn.parallel.DistributedDataParallel):
        raise _errors.InvalidArgument(f"ddp: a {type(ddp).__name__} is no DistributedDataParallel; pass "
                                      "torch.nn.parallel.DistributedDataParallel(model)")
    if not isinstance(layers or {}, Mapping):
        raise _errors.InvalidArgument(f'layers: a dictionary is expected, with codecs by patterns, such as {{"head.*": "none"}}, not {layers!r}')
    layer_min_size = _arguments.whole(layer_min_size, "layer_min_size", "number of values", 0)
    warm_up_steps = _arguments.whole(warm_up_steps, "warm_up_steps", "number of steps", 0)
    chosen = {_arguments.text(pattern, "layers"): as_codec(spec, f"layers[{pattern!r}]") for pattern, spec in (layers or {}).items()}
    usual = None if codec is None else as_codec(codec, "codec")
    table: dict[torch.nn.Parameter, Layer] = {}
    for name, parameter in ddp.module.named_parameters():
        pattern = next((pattern for pattern in chosen if fnmatch.fnmatchcase(name, pattern)), None)
        is_large = parameter.dim() > 1 and parameter.numel() >= layer_min_size
        picked = chosen[pattern] if pattern is not None else usual if is_large else None
        has_codec = parameter.requires_grad and picked is not None and picked.spec != LOSSLESS
        table[parameter] = Layer(name, picked if has_codec else None)
        if parameter.requires_grad:
            check_parameter(name, parameter, table[parameter].codec, error_feedback)
    unused = next((pattern for pattern in chosen if not any(fnmatch.fnmatchcase(layer.name, pattern) for layer in table.values())), None)
    if unused is not None:
        raise _errors.InvalidArgument(f"layers: no parameter has a name like {unused!r}; there are {', '.join(layer.name for layer in table.values())}")
    used = comm or comm_of(ddp.process_group)
    hook = Hook(used, comm is None, table, error_feedback, warm_up_steps)
    try:
        compare_settings(used, hook.settings())
        if error_feedback:
            for parameter, layer in table.items():
                layer.find_used_codec(used, parameter)
        give_to_ddp(ddp, hook)
    except BaseException:
        hook.close()
        raise
    return hook


def as_codec(codec: str | Codec, name: str) -> Codec:
    return codec if isinstance(codec, Codec) else Codec(check_spec(codec, name))


def give_to_ddp(ddp: torch.nn.parallel.DistributedDataParallel, hook: Hook) -> None:
    try:
        ddp.register_comm_hook(None, hook.average_bucket)
    except RuntimeError as error:
        if "once" not in str(error):
            raise
        raise _errors.InvalidUsage("ddp: it has a communication hook already, and DDP keeps its hook; make a new DistributedDataParallel") from error


def compare_settings(comm: Comm, mine: dict[str, Any]) -> None:
    """Raises Mismatch on every rank unless all ranks have the same settings. Every rank calls it."""
    text = np.frombuffer(json.dumps(mine).encode(), np.uint8)
    in_any_order = json.dumps(mine, sort_keys=True).encode()
    digest = np.frombuffer(hashlib.sha256(in_any_order).digest() + len(text).to_bytes(8, "little"), np.uint8)[None]
    digests = comm.all_gather(digest)
    if (digests == digests[0]).all():
        return
    counts = digests[:, -8:].copy().view("<u8")[:, 0].tolist()
    texts = np.split(comm.all_gather_v(text, counts), np.cumsum(counts)[:-1])
    first, *others = [json.loads(text.tobytes()) for text in texts]
    rank, other = next((rank, other) for rank, other in enumerate(others, 1) if other != first)
    what = next(what for what in [*first, *other] if first.get(what, MISSING) != other.get(what, MISSING))
    raise _errors.Mismatch(f"register: {what} is {first.get(what, MISSING)!r} on rank 0, and {other.get(what, MISSING)!r} on rank {rank}; pass the "
                           "same settings on every rank", rank=comm.rank)


def check_parameter(name: str, parameter: torch.Tensor, codec: Codec | None, error_feedback: bool) -> None:
    if parameter.device.type != "cpu":
        raise _errors.InvalidArgument(f"ddp: parameter {name} is on {parameter.device}; the hook averages gradients in memory of the host only")
    if codec is None or not error_feedback:
        return
    if codec._has_guard():
        raise _errors.InvalidArgument(f"error_feedback: the codec of parameter {name} is {codec.spec!r}, whose guard makes some calls "
                                      "lossless; those have no errors to feed back. Leave the guard out")
    codec._check_feeds_back(f"error_feedback: parameter {name}")
    if parameter.dtype not in RESIDUAL_TYPES:
        raise _errors.InvalidArgument(f"error_feedback: parameter {name} has type {parameter.dtype}; possible are "
                                      f"{', '.join(str(dtype) for dtype in RESIDUAL_TYPES)}")
