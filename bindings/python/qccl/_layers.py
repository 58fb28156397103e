"""Layers: those of an all_reduce, and codecs for them, which the library chooses by what codecs lose of the layers' values.

Any thread may use an object; the threads of one LayerCodecs wait for each other. Its notes and decisions release the interpreter's
lock.
"""
from __future__ import annotations

import ctypes
import dataclasses
import math
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Sequence

import numpy as np

from . import _arguments, _buffers, _errors
from . import _declarations as c
from ._codecs import Codec, check_spec
from ._handles import Handle
from ._library import check, lib, told_text
from ._states import State

if TYPE_CHECKING:
    from ._comm import Comm


@dataclasses.dataclass
class Layer:
    """A layer of an all_reduce: a part of its array that travels by itself.

        comm.all_reduce(bucket, "avg", layers=[qccl.Layer(weight.shape, "int4"), qccl.Layer(bias.shape, "int4")])

    - `shape`: that of the tensor, or the number of its values. A layer whose shape has one dimension is lossless.
    - `codec`: a spec or a qccl.Codec, such as one of qccl.LayerCodecs. None: the codec of the call.
    - `state`: a qccl.State of as many values, or None.
    """

    shape: int | Sequence[int]
    codec: str | Codec | None = None
    state: State | None = None


def layers_of(comm: Comm, layers: Iterable[Layer | int | Sequence[int]]) -> ctypes.Array[c.qcclLayer_t]:
    """The list as C has it. The codecs of specs are the communicator's, which keeps them."""
    given = [layer if isinstance(layer, Layer) else Layer(layer) for layer in layers]
    in_c = (c.qcclLayer_t * len(given))()
    for i, (layer, each) in enumerate(zip(given, in_c)):
        name = f"layers[{i}]"
        if isinstance(layer.shape, Sequence) and not isinstance(layer.shape, str):
            lengths = [_arguments.whole(length, name, "length of a shape", 0, _arguments.INT64_MAX) for length in layer.shape]
            each.count = _arguments.whole(math.prod(lengths), name, "number of values", 0, _arguments.INT64_MAX)
            each.dimensions = max(1, len(lengths))
        else:
            each.count = _arguments.whole(layer.shape, name, "number of values", 0, _arguments.INT64_MAX, hint=" or a shape")
        if layer.codec is not None:
            each.codec = comm._codec(layer.codec)._open_handle()
        if layer.state is not None:
            each.state = layer.state._open_handle() if isinstance(layer.state, State) else refuse_state(name, layer.state)
    return in_c


def refuse_state(name: str, given: Any) -> int:
    raise _errors.InvalidArgument(f"{name}: a {type(given).__name__} is no state; pass a qccl.State")


class LayerCodecs(Handle):
    """A codec for each layer: all layers together take the fewest bits, and lose no more than with `uniform` for all of them.

        layers = qccl.LayerCodecs([g.size for g in gradients], uniform="int4")
        for i, gradient in enumerate(gradients):
            layers.note(i, gradient)                    # in some steps
        layers.decide(comm)                             # all ranks take the choice of rank 0
        comm.all_reduce(gradients[0], codec=layers[0])  # in each step

    - `counts`: the number of values of each layer; `dtype`: of all values.
    - `candidates`: the codecs to choose from, each a spec; None: those of the library.

    The manual of qcclLayerCodecsCreate says more. End it with close(), or let it go; the codecs that it gave stay.
    """

    _kind = "choice of codecs"

    def __init__(self, counts: Iterable[int], dtype: Any = "float32", *, uniform: str = "int4", candidates: Iterable[str] | None = None) -> None:
        whole = [_arguments.whole(each, f"counts[{i}]", "number of values", 0, _arguments.INT64_MAX) for i, each in enumerate(counts)]
        self._counts = whole
        if dtype in _buffers.TYPES:  # also those that NumPy lacks
            self._dtype, number = dtype, _buffers.TYPES[dtype]
        else:
            self._dtype, number, _ = _buffers.type_of_numpy(np.dtype(dtype), "dtype")
        texts = None if candidates is None else [check_spec(each, "candidates") for each in candidates]
        if texts == []:
            raise _errors.InvalidArgument("candidates: there are none to choose from; pass specs, or None for the usual ones")
        self._given: dict[str, Codec] = {}  # by spec
        handle = ctypes.c_void_p()
        check(lib.qcclLayerCodecsCreate(ctypes.byref(handle), (ctypes.c_size_t * len(whole))(*whole), len(whole), number,
                                        check_spec(uniform, "uniform").encode(), ",".join(texts).encode() if texts else None))
        self._made(handle.value)

    def _destroy(self, handle: int) -> int:
        return lib.qcclLayerCodecsDestroy(handle)

    def __len__(self) -> int:
        return len(self._counts)

    def _layer(self, number: int) -> int:
        return _arguments.whole(number, "layer", "layer", 0, len(self) - 1)

    def note(self, layer: int, values: Any) -> None:
        """Measures what each candidate loses of a layer's values, an array in memory of the host. The time is that of encoding them
        with each candidate. Notes are averaged until the next decision.
        """
        number = self._layer(layer)
        buffer = Codec._on_host(values, "values")
        if buffer.dtype != self._dtype or buffer.count != self._counts[number]:
            raise _buffers.refuse("values", f"layer {number} has {self._counts[number]} values of {self._dtype}, the array has "
                                            f"{buffer.count} of {buffer.dtype}")
        check(lib.qcclLayerCodecsNote(self._open_handle(), number, buffer.address))

    def decide(self, comm: Comm | None = None) -> None:
        """Chooses the codecs by the notes since the decision before. All ranks of comm call it, and take the choice of rank 0."""
        check(lib.qcclLayerCodecsDecide(self._open_handle(), comm), comm)

    def __getitem__(self, layer: int) -> Codec:
        """Returns the codec of a layer."""
        handle = ctypes.c_void_p()
        check(lib.qcclLayerCodecsGet(self._open_handle(), self._layer(layer), ctypes.byref(handle)))
        spec = told_text(lib.qcclCodecGetSpec, handle)
        if spec not in self._given:
            self._given[spec] = Codec(spec)
        return self._given[spec]

    def __iter__(self) -> Iterator[Codec]:
        return (self[layer] for layer in range(len(self)))

    def __str__(self) -> str:
        """Returns the latest choice, a line for each layer and one for all."""
        return told_text(lib.qcclLayerCodecsDescribe, self._open_handle())
