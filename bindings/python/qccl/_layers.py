"""Codecs of layers: the library chooses a codec for each layer of a model by what codecs lose of the layers' values.

Any thread may use an object; the threads of one object wait for each other. Notes and decisions release the interpreter's lock.
"""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Iterable, Iterator

import numpy as np

from . import _arguments, _buffers, _errors
from ._codecs import Codec, check_spec
from ._handles import Handle
from ._library import check, lib, told_text

if TYPE_CHECKING:
    from ._comm import Comm


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
