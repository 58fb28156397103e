"""Writes .npy files for tests that do without NumPy."""
import array
import pathlib


def save(path, values, dtype="<f4", code="f"):
    """As numpy.save writes it."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({len(values)},), }}"
    header = header.ljust(-(-(10 + len(header) + 1) // 64) * 64 - 11) + "\n"
    pathlib.Path(path).write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + array.array(code, values).tobytes())
