"""An operand as it is printed: a register, some registers, a constant, with what is done to its value."""
import dataclasses
import functools
import re
import struct

ACCUMULATORS = 256  # a0 follows v255
TEMPORARY = 512  # registers that no code knows, for what the translator keeps for an instant
NULL = 128  # what is written there is never read

_SPECIAL = {"vcc": 106, "vcc_lo": 106, "vcc_hi": 107, "exec": 126, "exec_lo": 126, "exec_hi": 127, "m0": 124,
            "flat_scratch": 102, "flat_scratch_lo": 102, "flat_scratch_hi": 103, "null": NULL}
_CONSTANTS = {"src_shared_base": "local_window", "src_private_base": "scratch_window"}
_REGISTER = re.compile(r"^(v|a|s|ttmp)(?:(\d+)(?:\.([lh]))?|\[(\d+):(\d+)\])$")
_FLOATS = {"f16": "<e", "f32": "<f", "f64": "<d"}


@dataclasses.dataclass(frozen=True)
class Operand:
    kind: str  # "v": vector registers, "s": scalar registers, "k": a constant, "off": none
    number: int = 0
    shift: int | None = None  # of the half that is meant, where one is
    text: str = ""  # of a constant
    negate: bool = False
    magnitude: bool = False
    extend: bool = False  # the sign of a part of a register

    @classmethod
    @functools.cache  # programs have few operands, each many times
    def parse(cls, text):
        flags = {}
        while True:
            if text.startswith("-") and not re.match(r"-[\d.]", text):
                text, flags["negate"] = text[1:], True
            elif match := re.match(r"^(neg|abs|sext)\((.*)\)$", text):
                text, flags[{"neg": "negate", "abs": "magnitude", "sext": "extend"}[match[1]]] = match[2], True
            elif match := re.match(r"^\|(.*)\|$", text):
                text, flags["magnitude"] = match[1], True
            elif match := re.match(r"^lit\((.*)\)$", text):
                text = match[1]  # says only that the constant has its own word in the code
            else:
                return cls._parse_plain(text, flags)

    @classmethod
    def _parse_plain(cls, text, flags):
        if text == "off":
            return cls("off")
        if text in _SPECIAL:
            return cls("s", _SPECIAL[text], **flags)
        if match := _REGISTER.match(text):
            number = int(match[2] or match[4])
            number += {"a": ACCUMULATORS, "ttmp": 108}.get(match[1], 0)
            shift = {"l": 0, "h": 16}.get(match[3])
            return cls("v" if match[1] in "va" else "s", number, shift, **flags)
        if text in _CONSTANTS or _is_number(text):
            return cls("k", text=text, **flags)
        raise ValueError(f"operand {text}")

    def constant(self, kind, bits):
        """The bits that this constant stands for where an operand of `kind` is expected, as C++."""
        if self.text in _CONSTANTS:
            return _CONSTANTS[self.text]
        if re.match(r"^-?\d+\.\d*(e[-+]?\d+)?$", self.text):
            form = _FLOATS.get(kind, "<d" if bits == 64 else "<f")
            return f"0x{int.from_bytes(struct.pack(form, float(self.text)), 'little'):x}"
        value = int(self.text, 0)
        if kind == "f64" and self.text.startswith("0x"):
            value <<= 32  # a literal of 32 bits is the upper half
        elif kind == "i64" and self.text.startswith("0x"):
            value = (value ^ 1 << 31) - (1 << 31)
        return f"0x{value & (1 << 64) - 1:x}"


def _is_number(text):
    return re.match(r"^-?(0x[0-9a-f]+|\d+(\.\d*(e[-+]?\d+)?)?)$", text) is not None
