"""Codecs as objects: to encode and decode arrays, and to name a codec in calls without reading its text again.

Any thread may use a codec. Encoding and decoding release the interpreter's lock.
"""
from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from . import _arguments, _buffers, _errors
from ._handles import Handle
from ._library import check, lib


def check_spec(spec: Any, name: str = "codec") -> str:
    if not isinstance(spec, str):
        raise _errors.InvalidArgument(f'{name}: {spec!r} is no codec; pass a text such as "int8", or a qccl.Codec')
    _arguments.text(spec, name)
    if "@" in spec:
        raise _errors.InvalidArgument(f"{name}: {spec!r} has a condition. Conditions belong to QCCL_CODEC; pass a codec alone")
    return spec


class Codec(Handle):
    """A codec, by its spec: "int8", "int4:block=32", "auto:nmse=1e-3" (docs/codecs.md of QCCL lists them all).

        codec = qccl.Codec("int4")
        data = codec.encode(x)             # NumPy array of uint8
        y = codec.decode(data, like=x)     # what other ranks would have of x

    End it with close(), or let it go; calls that have been made keep it.
    """

    _kind = "codec"

    def __init__(self, spec: str) -> None:
        self.spec = check_spec(spec)
        handle = ctypes.c_void_p()
        check(lib.qcclCodecCreate(ctypes.byref(handle), spec.encode()))
        self._made(handle.value)

    def _destroy(self, handle: int) -> int:
        return lib.qcclCodecDestroy(handle)

    def __repr__(self) -> str:
        return f"qccl.Codec({self.spec!r})"

    def _momentum(self) -> float:
        """What a state of calls with the codec keeps of a velocity."""
        name, _, options = self.spec.partition(":")
        keys = dict(option.split("=", 1) for option in options.split(",") if "=" in option)
        return float(keys.get("momentum", 0.9)) if name == "dgc" else 0.0

    def _has_guard(self) -> bool:
        return any(option.startswith("guard=") for option in self.spec.partition(":")[2].split(","))

    def _check_feeds_back(self, name: str) -> None:
        """Refuses codecs with noise of which only the library knows what a call loses."""
        is_noisy = self.spec.partition(":")[0] == "norm" and "round=nearest" not in self.spec
        if is_noisy or self.spec.startswith("terngrad") or "round=stochastic" in self.spec or "round=dither" in self.spec:
            raise _errors.InvalidArgument(f"{name}: {self.spec!r} rounds with noise, which is another one in each call, so its errors are not "
                                          "known before the call; without feedback they average out. Choose rounding to the nearest, or none")

    def max_encoded_bytes(self, x: Any) -> int:
        """Returns the number of bytes that encode(x) gives at most."""
        buffer = self._on_host(x, "x")
        size = ctypes.c_size_t()
        check(lib.qcclCodecMaxEncodedBytes(self._open_handle(), buffer.count, buffer.type, ctypes.byref(size)))
        return size.value

    def encode(self, x: Any) -> np.ndarray:
        """Returns the encoded values of x, an array in memory of the host, as bytes with a checksum."""
        buffer = self._on_host(x, "x")
        out = np.empty(self.max_encoded_bytes(x), np.uint8)
        written = ctypes.c_size_t()
        check(lib.qcclCodecEncode(self._open_handle(), buffer.address, buffer.count, buffer.type, out.ctypes.data, out.size,
                                  ctypes.byref(written), None))
        return out[:written.value].copy()

    def decode(self, data: Any, *, like: Any = None, out: Any = None) -> Any:
        """Returns the values of what `encode` gave: in `out`, or in a new array of the shape and the type of `like`.

        Raises DamagedData if the bytes are not those of this codec, type and number of values.
        """
        if out is None:
            model = self._on_host(like, "like")
            out = _buffers.make_like(model, model.shape)
        source, target = self._on_host(data, "data"), self._on_host(out, "out", writable=True)
        check(lib.qcclCodecDecode(self._open_handle(), source.address, source.count * source.itemsize, target.address, target.count, target.type,
                                  None))
        return out

    @staticmethod
    def _on_host(x: Any, name: str, writable: bool = False) -> _buffers.Buffer:
        buffer = _buffers.describe(x, name, writable=writable)
        if buffer.device != "host":
            raise _buffers.refuse(name, f"the array lies on {buffer.device}; codecs work on memory of the host")
        return buffer
