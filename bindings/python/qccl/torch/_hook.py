"""The communication hook of DistributedDataParallel: averages gradients over QCCL, with a codec and error feedback for each layer.

`register` is for programs. DDP calls the hook on its own threads, bucket after bucket in the same order on all ranks. Backward goes
on while a thread of the hook makes the calls.
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
from .._states import State

if TYPE_CHECKING:
    from .._comm import Comm

LOSSLESS = "none"
MISSING = "missing"  # of a setting, in errors
STATE_VERSION = 2


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
        self.state: State | None = None  # with error feedback

    def keep_errors(self, comm: Comm, parameter: torch.nn.Parameter) -> None:
        if self.codec is not None:
            self.state = State(comm, parameter.detach(), momentum=self.codec._momentum())


class Hook:
    """Settings, states and steps of a hook. Made by `register`.

    state_dict and load_state_dict are for checkpoints; each rank saves and loads its own, because what the ranks owe differs. After a
    failure some layers owe for a step that has not been made: a program goes on from a state that it has saved before. close
    ends the hook's thread and the communicator, if `register` has made it.
    """

    def __init__(self, comm: Comm, owns_comm: bool, layers: dict[torch.nn.Parameter, Layer], error_feedback: bool, warm_up_steps: int) -> None:
        self.comm, self.steps = comm, 0
        self._owns_comm, self._error_feedback, self._warm_up_steps = owns_comm, error_feedback, warm_up_steps
        self._layers, self._is_closed = layers, False
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
        work = self._calls.submit(self._average, layers, gradients, uses_codecs)
        work.add_done_callback(lambda _: done.set_result(None))

        def result(_: Any) -> torch.Tensor:
            work.result()  # raises its error; DDP would take the exception of Future.set_exception for a tensor
            return buffer

        return done.then(result)

    def _average(self, layers: list[Layer], gradients: list[torch.Tensor], uses_codecs: bool) -> None:
        with torch.no_grad():
            # Each layer is a call of its own, so that no block of a codec reaches into another layer; the group fuses small ones.
            with group():
                for layer, gradient in zip(layers, gradients, strict=True):
                    self.comm.all_reduce(gradient.view(-1), "avg", codec=(uses_codecs and layer.codec) or LOSSLESS,
                                         state=layer.state if uses_codecs else None)

    def settings(self) -> dict[str, Any]:
        """Returns what all ranks must have in common, in the words of errors."""
        codecs = {f"the codec of parameter {name}": codec for name, codec in self.codecs().items()}
        return codecs | {"error_feedback": bool(self._error_feedback), "warm_up_steps": self._warm_up_steps}

    # ---- Checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Returns the steps so far and what this rank owes, by the names of the parameters. Called between two steps."""
        states = {layer.name: torch.from_numpy(layer.state.save()) for layer in self._layers.values() if layer.state is not None}
        return {"version": STATE_VERSION, "steps": self.steps, "codecs": self.codecs(), "states": states}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was taken: on the same rank, with the same parameters and codecs."""
        if state.get("version") != STATE_VERSION:
            raise _errors.InvalidArgument(f"state: its version is {state.get('version')!r}, and this release reads {STATE_VERSION}")
        steps, codecs, states = (state.get(key) for key in ("steps", "codecs", "states"))
        if not (isinstance(steps, int) and steps >= 0 and isinstance(codecs, dict) and isinstance(states, dict)):
            raise _errors.InvalidArgument("state: it has other steps, codecs or states than Hook.state_dict gives")
        if codecs != self.codecs():
            here = self.codecs()
            name = next(name for name in sorted({*here, *codecs}) if here.get(name) != codecs.get(name))
            raise _errors.InvalidArgument(f"state: the codec of parameter {name} is {codecs.get(name)!r}, and here {here.get(name)!r}")
        self._load_states(states)
        self.steps = steps

    def _load_states(self, states: Mapping[str, torch.Tensor]) -> None:
        """After an error all layers are as they were."""
        kept = [(layer, layer.state, layer.state.save()) for layer in self._layers.values() if layer.state is not None]
        try:
            for layer, state, _ in kept:
                if (saved := states.get(layer.name)) is None:
                    state.reset()
                else:
                    self._load(layer.name, state, saved)
        except BaseException:
            for _, state, before in kept:
                state.load(before)
            raise

    @staticmethod
    def _load(name: str, state: State, saved: torch.Tensor) -> None:
        try:
            state.load(saved.contiguous().view(torch.uint8).numpy())
        except (_errors.InvalidArgument, _errors.DamagedData) as error:
            raise type(error)(f"state: what parameter {name} owes cannot be read: {error}") from error

    def close(self) -> None:
        """Waits for the calls that are under way, and ends the hook. DDP keeps it: a backward raises InvalidUsage from then on."""
        self._is_closed = True
        self._calls.shutdown()
        for layer in self._layers.values():
            if layer.state is not None:
                layer.state.close()
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
    error_feedback: each layer with a codec has a qccl.State: each rank keeps what the codec has lost, and adds it to the next
        gradient. Memory: 8 bytes for each value of the compressed layers, 16 with dgc,
        whose momentum the state keeps: the optimiser then has none.
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
            check_parameter(name, parameter)
    unused = next((pattern for pattern in chosen if not any(fnmatch.fnmatchcase(layer.name, pattern) for layer in table.values())), None)
    if unused is not None:
        raise _errors.InvalidArgument(f"layers: no parameter has a name like {unused!r}; there are {', '.join(layer.name for layer in table.values())}")
    used = comm or comm_of(ddp.process_group)
    hook = Hook(used, comm is None, table, error_feedback, warm_up_steps)
    try:
        compare_settings(used, hook.settings())
        if error_feedback:
            for parameter, layer in table.items():
                layer.keep_errors(used, parameter)
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


def check_parameter(name: str, parameter: torch.Tensor) -> None:
    if parameter.device.type != "cpu":
        raise _errors.InvalidArgument(f"ddp: parameter {name} is on {parameter.device}; the hook averages gradients in memory of the host only")
