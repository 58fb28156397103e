"""MessagePack, as far as the notes of AMD code objects have it: read, never written."""
import struct


def unpack(data):
    """The one value that `data` (bytes) holds."""
    return _value(memoryview(data), 0)[0]


# First byte: (format of what follows it, what that is). For texts, lists and maps it is their length.
_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
            0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_LENGTHS = {0xD9: (">B", "text"), 0xDA: (">H", "text"), 0xDB: (">I", "text"), 0xDC: (">H", "list"),
            0xDD: (">I", "list"), 0xDE: (">H", "map"), 0xDF: (">I", "map")}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


def _value(data, at):
    """(value, where the next one begins)"""
    first = data[at]
    at += 1
    if first < 0x80:
        return first, at
    if first >= 0xE0:
        return first - 0x100, at
    if first < 0xC0:
        kind = "map" if first < 0x90 else "list" if first < 0xA0 else "text"
        return _compound(data, at, kind, first & (0x1F if kind == "text" else 0x0F))
    if first in _CONSTANTS:
        return _CONSTANTS[first], at
    if first in _NUMBERS:
        return _number(data, at, _NUMBERS[first])
    if first not in _LENGTHS:
        raise ValueError(f"MessagePack: a value that begins with 0x{first:02x}")
    form, kind = _LENGTHS[first]
    length, at = _number(data, at, form)
    return _compound(data, at, kind, length)


def _number(data, at, form):
    return struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)


def _compound(data, at, kind, length):
    if kind == "text":
        return bytes(data[at:at + length]).decode(), at + length
    values = []
    for _ in range(length * (2 if kind == "map" else 1)):
        value, at = _value(data, at)
        values.append(value)
    return (dict(zip(values[::2], values[1::2])) if kind == "map" else values), at
