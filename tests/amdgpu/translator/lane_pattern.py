"""Shuffles by a fixed pattern: for each lane the one that its value comes from. They are parts of
vector instructions (DPP) or an instruction of their own (ds_swizzle)."""
import dataclasses
import re

LANES = 64
OUTSIDE, MASKED_OFF = -1, -2


@dataclasses.dataclass
class LanePattern:
    sources: list
    zero_outside: bool = False
    from_all: bool = False  # also from lanes that are not live

    def literal(self):
        return "Pattern{" + ",".join(str(source) for source in self.sources) + "}"


def _in_row(size, source):
    """The lane that `source` gives for a lane of a row of so many, if it is one of that row."""
    def of(lane):
        found = source(lane % size)
        return lane - lane % size + found if 0 <= found < size else OUTSIDE
    return of


def _broadcast(first_row, rows_apart):
    """row_bcast: the last lane before a row, for rows that begin one."""
    def of(lane):
        row = lane // 16
        return row // rows_apart * rows_apart * 16 - 1 if row >= first_row and row // rows_apart % 2 else OUTSIDE
    return of


# What the lane of a row takes its value from; n is the modifier's number, p its list.
_MODES = {
    "quad_perm": lambda n, p: _in_row(4, lambda i: p[i]),
    "dpp8": lambda n, p: _in_row(8, lambda i: p[i]),
    "row_shl": lambda n, p: _in_row(16, lambda i: i + n),
    "row_shr": lambda n, p: _in_row(16, lambda i: i - n),
    "row_ror": lambda n, p: _in_row(16, lambda i: (i - n) % 16),
    "row_share": lambda n, p: _in_row(16, lambda i: n),
    "row_newbcast": lambda n, p: _in_row(16, lambda i: n),
    "row_xmask": lambda n, p: _in_row(16, lambda i: i ^ n),
    "row_mirror": lambda n, p: _in_row(16, lambda i: 15 - i),
    "row_half_mirror": lambda n, p: _in_row(8, lambda i: 7 - i),
    "wave_shl": lambda n, p: _in_row(LANES, lambda i: i + 1),
    "wave_shr": lambda n, p: _in_row(LANES, lambda i: i - 1),
    "wave_rol": lambda n, p: _in_row(LANES, lambda i: (i + 1) % LANES),
    "wave_ror": lambda n, p: _in_row(LANES, lambda i: (i - 1) % LANES),
    "row_bcast": lambda n, p: _broadcast(n // 16 if n == 31 else 1, (n + 1) // 16),
}


def of_modifiers(modifiers):
    """(pattern, the other modifiers), or None where there is no pattern."""
    if _MODES.keys().isdisjoint(modifiers):
        return None
    modes = [name for name in _MODES if name in modifiers]
    others = dict(modifiers)
    text = others.pop(modes[0])
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    source = _MODES[modes[0]](numbers[0] if numbers else 0, numbers)
    rows, banks = (int(others.pop(name, "0xf"), 0) for name in ("row_mask", "bank_mask"))
    is_live = lambda lane: rows >> lane // 16 % 4 & 1 and banks >> lane % 16 // 4 & 1
    # bound_ctrl is printed only where it is set, as 0 for older machines.
    zero_outside = others.pop("bound_ctrl", None) is not None
    from_all = others.pop("fi", "0") == "1"
    sources = [source(lane) if is_live(lane) else MASKED_OFF for lane in range(LANES)]
    return LanePattern(sources, zero_outside or modes[0] == "dpp8", from_all), others


def of_swizzle(text):
    """What the offset of ds_swizzle is printed as; it is about groups of 32 lanes."""
    match = re.match(r'swizzle\((\w+),(.*)\)$', text)
    if match is None:
        raise ValueError(f"offset {text}")
    mode = match[1]
    numbers = [int(number) for number in re.findall(r"\d+", match[2])]
    if mode == "QUAD_PERM":
        source = _in_row(4, lambda i: numbers[i])
    elif mode == "BROADCAST":
        source = _in_row(numbers[0], lambda i: numbers[1])
    elif mode == "SWAP":
        source = _in_row(32, lambda i: i ^ numbers[0])
    elif mode == "REVERSE":
        source = _in_row(numbers[0], lambda i: numbers[0] - 1 - i)
    elif mode == "BITMASK_PERM":
        source = _in_row(32, lambda i: _masked(i, match[2].strip('"')))
    else:
        raise ValueError(f"offset {text}")
    return LanePattern([source(lane) for lane in range(LANES)], zero_outside=True)


def _masked(lane, mask):
    """Each bit of the lane's number is set, cleared, kept (p) or inverted (i), the highest first."""
    bits = 0
    for position, letter in enumerate(mask):
        bit = lane >> (4 - position) & 1
        bits = bits << 1 | {"0": 0, "1": 1, "p": bit, "i": 1 - bit}[letter]
    return bits
