"""Instructions that do several things at once, as plain ones that do them one after the other: dual
and packed instructions, mixed formats, parts of registers (SDWA), patterns of lanes (DPP). Values on
the way are in registers that no code knows."""
import dataclasses
import re

import instruction_table
import lane_pattern
from operand import TEMPORARY
from step import BITS, Unknown

VECTOR = instruction_table.read("vector")
_KEPT = [f"v{TEMPORARY + i}" for i in range(4)]
_REGISTER = re.compile(r"([vas])(\d+|\[(\d+):(\d+)\])(\.[lh])?")
_PARTS = {"BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16),
          "WORD_1": (16, 16)}


def plain(instructions):
    """The same work as a list of plain instructions."""
    found = []
    waiting = list(instructions)
    while waiting:
        first = waiting.pop(0)
        if waiting and waiting[0].size == 0:
            found += _dual(first, waiting.pop(0))
        else:
            found += _one(first)
    return found


def _one(instruction):
    for is_meant, rewrite in _REWRITES:
        if is_meant(instruction):
            return [part for made in rewrite(instruction) for part in _one(made)]
    return [instruction]


def _like(instruction, name, operands, modifiers=None):
    return dataclasses.replace(instruction, name=name, operands=operands, modifiers=modifiers or {})


def _registers(text):
    """The numbers of the vector registers in an operand's text."""
    match = _REGISTER.search(text)
    if match is None or match[1] == "s":
        return set()
    return set(range(int(match[3]), int(match[4]) + 1)) if match[3] else {int(match[2])}


# ---- Dual: both halves read before either writes.

def _dual(first, second):
    second = dataclasses.replace(second, size=first.size)
    written = [_registers(half.operands[0]) for half in (first, second)]
    read = [set().union(*map(_registers, half.operands[1:])) for half in (first, second)]
    if not written[0] & read[1]:
        return [first, second]
    if not written[1] & read[0]:
        return [second, first]
    target = first.operands[0]
    aside = dataclasses.replace(first, operands=[_KEPT[0], *first.operands[1:]])
    # Some read what they write.
    return [_like(first, "v_mov_b32", [_KEPT[0], target]), aside, second, _like(first, "v_mov_b32", [target, _KEPT[0]])]


# ---- v_swap_b32

def _swap(instruction):
    a, b = instruction.operands
    moves = ((_KEPT[0], a), (a, b), (b, _KEPT[0]))
    return [_like(instruction, "v_mov_b32", list(move)) for move in moves]


# ---- Packed: two halves of 16 bits, or two registers.

def _packed(instruction):
    modifiers = dict(instruction.modifiers)
    target, *sources = instruction.operands
    chosen = [_bits(modifiers, "op_sel", 0), _bits(modifiers, "op_sel_hi", 1)]
    minus = [_bits(modifiers, "neg_lo", 0), _bits(modifiers, "neg_hi", 0)]
    is_wide = instruction.name.endswith("32")
    name = instruction.name.replace("v_pk_", "v_")
    found = []
    for half in range(2):
        operands = [("-" if minus[half][i] else "") + _half(instruction, source, chosen[half][i], is_wide)
                    for i, source in enumerate(sources)]
        if name == "v_mov_b32":
            operands = [_half(instruction, sources[half], chosen[0][half], True)]
        to = _KEPT[half] if is_wide else _KEPT[0] + (".l", ".h")[half]
        found.append(_like(instruction, name, [to, *operands], modifiers))
    if is_wide:
        return [*found, _like(instruction, "v_mov_b64", [target, f"v[{TEMPORARY}:{TEMPORARY + 1}]"])]
    return [*found, _like(instruction, "v_mov_b32", [target, _KEPT[0]])]


def _bits(modifiers, name, default):
    text = modifiers.pop(name, None)
    return [int(bit) for bit in re.findall(r"\d", text)] if text else [default] * 3


def _half(instruction, text, high, is_wide):
    match = _REGISTER.match(text)
    if match is None:
        if is_wide and high:
            raise Unknown(f"{instruction.mnemonic} (the upper half of a constant)")
        if is_wide or not high:
            return text
        return str(int(text, 0) >> 16 & 0xFFFF) if re.match(r"-?(0x|\d+$)", text) else "0"
    if not is_wide:
        return text + (".h" if high else ".l")
    return f"{match[1]}{int(match[3]) + high}"


# ---- Mixed formats: v_fma_mix takes sources of 32 bits or halves of 16.

def _mixed(instruction):
    modifiers = dict(instruction.modifiers)
    high, is_half = _bits(modifiers, "op_sel", 0), _bits(modifiers, "op_sel_hi", 0)
    target, *sources = instruction.operands
    found, operands = [], []
    for i, source in enumerate(sources):
        if is_half[i]:
            signs = _REGISTER.sub("{}", source)
            half = _half(instruction, _REGISTER.search(source)[0], high[i], False)
            found.append(_like(instruction, "v_cvt_f32_f16", [_KEPT[i], half]))
            source = signs.format(_KEPT[i])
        operands.append(source)
    if instruction.name.endswith("f32"):
        return [*found, _like(instruction, "v_fma_f32", [target, *operands], modifiers)]
    half = target if "." in target else target + (".l" if "lo" in instruction.name else ".h")
    return [*found, _like(instruction, "v_fma_f32", [_KEPT[3], *operands]),
            _like(instruction, "v_cvt_f16_f32", [half, _KEPT[3]], modifiers)]


# ---- SDWA: bytes and halves of registers as operands.

def _parts(instruction):
    modifiers = dict(instruction.modifiers)
    row = VECTOR.get(instruction.name.replace("v_cmpx_", "v_cmp_"))
    if row is None:
        return [dataclasses.replace(instruction, modifiers={})]
    operands = list(instruction.operands)
    found = []
    for i in range(2):
        selected = modifiers.pop(f"src{i}_sel", "DWORD")
        at = len(row.left) + i
        if selected == "DWORD" or at >= len(operands):
            continue
        shift, bits = _PARTS[selected]
        is_signed = operands[at].startswith("sext(")
        register = _REGISTER.search(operands[at])[0]
        found.append(_like(instruction, "v_bfe_i32" if is_signed else "v_bfe_u32",
                           [_KEPT[i], register, str(shift), str(bits)]))
        operands[at] = _KEPT[i] if is_signed else operands[at].replace(register, _KEPT[i])
    selected, unused = modifiers.pop("dst_sel", "DWORD"), modifiers.pop("dst_unused", "UNUSED_PAD")
    if selected == "DWORD":
        return [*found, _like(instruction, instruction.name, operands, modifiers)]
    target, operands[0] = operands[0], _KEPT[2]
    return [*found, _like(instruction, instruction.name, operands, modifiers),
            *_inserted(instruction, target, selected, unused)]


def _inserted(instruction, target, selected, unused):
    shift, bits = _PARTS[selected]
    mask = (1 << bits) - 1
    if unused not in ("UNUSED_PAD", "UNUSED_PRESERVE"):
        raise Unknown(f"{instruction.mnemonic} ({unused})")
    if unused == "UNUSED_PAD":
        return [_like(instruction, "v_and_b32", [_KEPT[2], _KEPT[2], hex(mask)]),
                _like(instruction, "v_lshlrev_b32", [target, str(shift), _KEPT[2]])]
    return [_like(instruction, "v_lshlrev_b32", [_KEPT[2], str(shift), _KEPT[2]]),
            _like(instruction, "v_bfi_b32", [target, hex(mask << shift), _KEPT[2], target])]


# ---- op_sel: the upper half of a register where 16 bits are meant.

def _upper_halves(instruction):
    modifiers = dict(instruction.modifiers)
    row = VECTOR[instruction.name]
    bits = [int(bit) for bit in re.findall(r"\d", modifiers.pop("op_sel"))]
    operands = list(instruction.operands)
    # Some machines print the half in the operand, too.
    kinds = dict(enumerate(row.right, 1))
    if len(bits) > len(row.right):
        kinds[0] = row.left[0].rstrip("+")
        bits.insert(0, bits.pop())
    else:
        bits.insert(0, 0)
    for i, kind in kinds.items():
        match = _REGISTER.search(operands[i])
        if BITS.get(kind) == 16 and match is not None and match[5] is None:
            operands[i] = operands[i].replace(match[0], match[0] + (".h" if bits[i] else ".l"))
    return [_like(instruction, instruction.name, operands, modifiers)]


# ---- DPP: the first source comes from other lanes.

def _patterned(instruction):
    pattern, modifiers = lane_pattern.of_modifiers(instruction.modifiers)
    row = VECTOR.get(instruction.name.replace("v_cmpx_", "v_cmp_"))
    if row is None:
        return [dataclasses.replace(instruction, modifiers={})]
    operands = list(instruction.operands)
    at = len(operands) - len(row.right)
    source = _REGISTER.search(operands[at])[0]
    numbers = sorted(_registers(source))
    kept = _KEPT[0] if len(numbers) == 1 else f"v[{TEMPORARY}:{TEMPORARY + 1}]"
    fetches = [_like(instruction, "fetch", [_KEPT[i], f"v{number}"], {"pattern": pattern})
               for i, number in enumerate(numbers)]
    operands[at] = operands[at].replace(source.partition(".")[0], kept)
    return [*fetches, _like(instruction, instruction.name, operands, modifiers | {"reached": ""})]


def _swizzle(instruction):
    target, source = instruction.operands
    try:
        pattern = lane_pattern.of_swizzle(instruction.modifiers["offset"])
    except ValueError as error:
        raise Unknown(f"{instruction.mnemonic} ({error})") from error
    return [_like(instruction, "fetch", [_KEPT[0], source], {"pattern": pattern}),
            _like(instruction, "v_mov_b32", [target, _KEPT[0]])]


def _has_16_bits(instruction):
    row = VECTOR.get(instruction.name)
    return row is not None and any(BITS.get(kind) == 16 for kind in (*row.left, *row.right))


_REWRITES = (
    (lambda i: i.name == "v_swap_b32", _swap),
    (lambda i: i.name == "ds_swizzle_b32", _swizzle),
    (lambda i: i.name.startswith("v_pk_"), _packed),
    (lambda i: i.name.startswith("v_fma_mix"), _mixed),
    (lambda i: i.mnemonic.endswith("_sdwa") and "src0_sel" in i.modifiers, _parts),
    (lambda i: "op_sel" in i.modifiers and _has_16_bits(i), _upper_halves),
    (lambda i: lane_pattern.of_modifiers(i.modifiers) is not None, _patterned),
)
