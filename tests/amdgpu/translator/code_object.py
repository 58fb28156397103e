"""A code object of an AMD GPU: an ELF file with kernels, what the hardware is told of each (its
descriptor) and what the runtime is told (the note). It does not read instructions."""
import dataclasses
import pathlib
import re
import struct

import message_pack
from operand import ACCUMULATORS

LOADED, EXECUTABLE = 1, 1  # a program header's type, and its flag
NOTE, SYMBOLS, RELOCATIONS = 7, 2, 4  # types of sections
METADATA_NOTE = 32
# Rounds to nearest even and keeps subnormals in all formats, as QCCL's arithmetic is defined; minima
# and maxima do not overlook a signalling NaN, and a NaN is clamped to 0.
EXPECTED_MODE = 0xAF0


@dataclasses.dataclass
class Start:
    """Scalar registers that the hardware sets before the first instruction."""
    given: str
    at: int
    registers: int
    offset: int = 0


@dataclasses.dataclass
class Kernel:
    name: str
    entry: int
    local_bytes: int
    scratch_bytes: int
    vector_registers: int
    argument_bytes: int
    arguments: list  # of (kind, offset, size)
    starts: list
    is_wave32: bool
    float_mode: int


class CodeObject:
    def __init__(self, path):
        self.data = pathlib.Path(path).read_bytes()
        if self.data[:4] != b"\x7fELF":
            raise ValueError(f"{path} is no ELF file (a bundle is none; --no-gpu-bundle-output makes ELF files)")
        self.segments = self._segments()
        self.sections = self._sections()
        self.symbols = self._symbols()
        metadata = self._metadata()
        self.target = re.sub(r".*--|:.*", "", metadata["amdhsa.target"])
        self.kernels = [self._kernel(row) for row in metadata["amdhsa.kernels"]]
        self.lanes = 32 if all(kernel.is_wave32 for kernel in self.kernels) else 64

    def _headers(self, at, form):
        offset = struct.unpack_from("<Q", self.data, at)[0]
        size, count = struct.unpack_from("<HH", self.data, 0x36 if at == 0x20 else 0x3A)
        return [struct.unpack_from(form, self.data, offset + i * size) for i in range(count)]

    def _segments(self):
        """(address, bytes, size in memory, is code) of what is loaded"""
        return [(address, self.data[offset:offset + in_file], in_memory, bool(flags & EXECUTABLE))
                for kind, flags, offset, address, _, in_file, in_memory, _ in self._headers(0x20, "<IIQQQQQQ")
                if kind == LOADED]

    def _sections(self):
        """(type, bytes, linked section)"""
        rows = self._headers(0x28, "<IIQQQQIIQQ")
        return [(row[1], self.data[row[4]:row[4] + row[5]] if row[1] != 8 else b"", row[6]) for row in rows]

    def _symbols(self):
        found = {}
        for kind, data, linked in self.sections:
            if kind != SYMBOLS:
                continue
            names = self.sections[linked][1]
            for at in range(0, len(data), 24):
                name, _, _, section, address, _ = struct.unpack_from("<IBBHQQ", data, at)
                if section != 0:
                    found[names[name:names.index(0, name)].decode()] = address
        return found

    def _metadata(self):
        for kind, data, _ in self.sections:
            if kind != NOTE:
                continue
            name_size, size, note = struct.unpack_from("<III", data)
            if note == METADATA_NOTE:
                begin = 12 + (name_size + 3) // 4 * 4
                return message_pack.unpack(data[begin:begin + size])
        raise ValueError("the code object has no note about its kernels")

    def has_relocations(self):
        return any(kind == RELOCATIONS and data for kind, data, _ in self.sections)

    def _bytes_at(self, address, size):
        for begin, data, _, _ in self.segments:
            if begin <= address and address + size <= begin + len(data):
                return data[address - begin:address - begin + size]
        raise ValueError(f"nothing is loaded at 0x{address:x}")

    def _kernel(self, row):
        descriptor = self.symbols[row[".symbol"]]
        fields = self._bytes_at(descriptor, 64)
        local, scratch, arguments = struct.unpack_from("<III", fields)
        entry = struct.unpack_from("<q", fields, 16)[0]
        rsrc1, rsrc2, properties, preload = struct.unpack_from("<IIHH", fields, 48)
        # Where the hardware loads arguments into registers it skips the 256 bytes that do it for older ones.
        skipped = 256 if preload & 0x7F else 0
        return Kernel(
            name=row[".name"], entry=descriptor + entry + skipped, local_bytes=local, scratch_bytes=scratch,
            vector_registers=_vector_registers(row),
            argument_bytes=arguments, is_wave32=bool(properties >> 10 & 1), float_mode=rsrc1 >> 12 & 0xFFF,
            arguments=[(argument[".value_kind"], argument[".offset"], argument[".size"])
                       for argument in row.get(".args", [])],
            starts=_starts(rsrc2, properties, preload))


def _vector_registers(row):
    """How many a wave has of them, counted up to the last accumulation register if it has such."""
    accumulators = row.get(".agpr_count", 0)
    return ACCUMULATORS + accumulators if accumulators else min(row[".vgpr_count"], ACCUMULATORS)


# Bits of the properties: what the user's registers begin with, in this order, if asked for.
_USER_REGISTERS = (("nothing", 4), ("dispatch_packet", 2), ("nothing", 2), ("kernarg_address", 2), ("nothing", 2),
                   ("nothing", 2), ("nothing", 1))


def _starts(rsrc2, properties, preload):
    starts, at = [], 0
    for bit, (given, registers) in enumerate(_USER_REGISTERS):
        if properties >> bit & 1:
            starts.append(Start(given, at, registers))
            at += registers
    if preload & 0x7F:
        starts.append(Start("preloaded", at, preload & 0x7F, 4 * (preload >> 7)))
    at = rsrc2 >> 1 & 0x1F
    for bit, given in enumerate(("group_x", "group_y", "group_z"), 7):
        if rsrc2 >> bit & 1:
            starts.append(Start(given, at, 1))
            at += 1
    return starts
