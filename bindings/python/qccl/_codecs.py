"""Codecs as objects: to encode and decode arrays, and to name a codec in calls without reading its text again.

Any thread may use a codec. Encoding and decoding release the interpreter's lock.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Any

import numpy as np

from . import _buffers
from ._library import check, lib


class Codec:
    """A codec, by its spec: "int8", "int4:block=32", "auto:nmse=1e-3" (docs/codecs.md of QCCL lists them all).

        codec = qccl.Codec("int4")
        data = codec.encode(x)             # NumPy array of uint8
        y = codec.decode(data, like=x)     # what other ranks would have of x
    """

    def __init__(self, spec: str) -> None:
        self._handle, self.spec = None, spec
        handle = ctypes.c_void_p()
        check(lib.qcclCodecCreate(ctypes.byref(handle), str(spec).encode()))
        self._handle, self._owner = handle.value, os.getpid()

    def __repr__(self) -> str:
        return f"qccl.Codec({self.spec!r})"

    def max_encoded_bytes(self, x: Any) -> int:
        """Returns the number of bytes that encode(x) gives at most."""
        buffer = self._on_host(x, "x")
        size = ctypes.c_size_t()
        check(lib.qcclCodecMaxEncodedBytes(self._handle, buffer.count, buffer.type, ctypes.byref(size)))
        return size.value

    def encode(self, x: Any) -> np.ndarray:
        """Returns the encoded values of x, an array in memory of the host, as bytes with a checksum."""
        buffer = self._on_host(x, "x")
        out = np.empty(self.max_encoded_bytes(x), np.uint8)
        written = ctypes.c_size_t()
        check(lib.qcclCodecEncode(self._handle, buffer.address, buffer.count, buffer.type, out.ctypes.data, out.size,
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
        check(lib.qcclCodecDecode(self._handle, source.address, source.count * source.itemsize, target.address, target.count, target.type,
                                  None))
        return out

    def close(self) -> None:
        """Ends the codec. Calls that have been made keep it."""
        if self._handle is not None and self._owner == os.getpid():
            handle, self._handle = self._handle, None
            check(lib.qcclCodecDestroy(handle))

    def __enter__(self) -> Codec:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    @staticmethod
    def _on_host(x: Any, name: str, writable: bool = False) -> _buffers.Buffer:
        buffer = _buffers.describe(x, name, writable=writable)
        if buffer.device != "host":
            raise _buffers.refuse(name, f"the array lies on {buffer.device}; codecs work on memory of the host")
        return buffer
