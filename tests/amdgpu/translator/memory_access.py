"""Steps of instructions that reach memory, from the table of memory instructions."""
import re

import instruction_table
from step import BITS, StepWriter

TABLE = instruction_table.read("memory")
_SPACES = ("global", "flat", "scratch", "ds")
_OLD_NAMES = (("ds_read2st64_", "ds_load_2addr_stride64_"), ("ds_write2st64_", "ds_store_2addr_stride64_"),
              ("ds_read2_", "ds_load_2addr_"), ("ds_write2_", "ds_store_2addr_"), ("ds_read_", "ds_load_"),
              ("ds_write_", "ds_store_"))
# Which caches an access goes through: all memory is the same here.
_CACHES = ("glc", "slc", "dlc", "sc0", "sc1", "nt")
_SCALAR_LOAD = re.compile(r"^s_load_(?:b(\d+)|dword(?:x(\d+))?)$")
_PAIR = re.compile(r"^(load|store)_2addr_(stride64_)?b(32|64)$")
_SMALL_SHIFT = {"low": 0, "high": 16}


def step_of(instruction):
    """None where the table does not have the instruction."""
    if match := _SCALAR_LOAD.match(instruction.name):
        return _scalar_load(instruction, int(match[1]) // 32 if match[1] else int(match[2] or 1))
    name = instruction.name
    for old, new in _OLD_NAMES:
        if name.startswith(old):
            name = name.replace(old, new)
    space, _, rest = name.partition("_")
    if space not in _SPACES:
        return None
    rest = rest.removeprefix("atomic_")
    writer = _Access(instruction, space)
    if match := _PAIR.match(rest):
        return writer.pair(match[1], 64 if match[2] else 1, int(match[3]) // 32)
    returns = "_rtn_" in rest
    row = TABLE.get(rest.replace("_rtn_", "_"))
    return getattr(writer, row.section)(row, *([returns] if row.section == "atomic" else [])) if row else None


def _scalar_load(instruction, words):
    writer = StepWriter(instruction)
    for cache in _CACHES:
        writer.take(cache)
    target, base, offset = writer.operands()
    register = writer.number(target.number)
    address = f"{writer.value('u64', base)} + {writer.value('u32' if offset.kind == 's' else 'i64', offset)}"
    writer.inside.append(f"load_scalars<{words}>(w, {register}, {address} + {writer.offset()});")
    return writer.finish()


class _Access(StepWriter):
    def __init__(self, instruction, space):
        super().__init__(instruction)
        self.space = "local" if space == "ds" else space
        self.is_returning = any(self.modifiers.get(cache) is not None for cache in ("glc", "sc0"))
        for cache in _CACHES:
            self.take(cache)

    def _address(self, address, base):
        """C++ for what the lane reaches."""
        parts = [self.offset()]
        if self.space == "local":
            return f"u32({self.value('u32', address)} + {parts[0]})"
        for operand in (address, base):
            if operand is not None and operand.kind != "off":
                is_base = operand.kind == "s"
                wide = self.space != "scratch" and (is_base or base is None or base.kind == "off")
                parts.append(self.value("u64" if wide else "u32", operand))
        return f"u32({' + '.join(parts)})" if self.space == "scratch" else " + ".join(parts)

    def _call(self, function, *arguments):
        first, *rest = arguments
        return f"{function}<Space::{self.space}, {first}>({', '.join(['w', *rest])})"

    def _split(self, operands, values):
        """(values, address, base): the base is the last, where there can be one; `values` says at which
        end the registers stand."""
        operands = list(operands)
        base = operands.pop() if self.space in ("global", "scratch") else None
        address = operands.pop(1 if values == "first" else 0)
        return operands, address, base

    def load(self, row):
        (target,), address, base = self._split(self.operands(), "first")
        register = self.number(target.number)
        where = self._address(address, base)
        left, right = row.left[0], row.right[0]
        if left == "words":
            self.inside.append(self._call("load", right, register, where, "lane") + ";")
        elif left in _SMALL_SHIFT:
            shift = 16 if left == "high" or target.shift == 16 else 0
            wide = right[0] + "16"
            self.inside.append(f"put_part<{wide}>(w, {register}, lane, {shift}, "
                               f"{wide}({self._call('load_small', right, where, 'lane')}));")
        else:
            self.inside.append(f"put_vector<{left}>(w, {register}, lane, "
                               f"{self._call('load_small', right, where, 'lane')});")
        return self.finish("w.exec()")

    def store(self, row):
        (source,), address, base = self._split(self.operands(), "last")
        where = self._address(address, base)
        left, right = row.left[0], row.right[0]
        if right == "words":
            self.inside.append(self._call("store", left, self.number(source.number), where, "lane") + ";")
        else:
            shift = 16 if right == "high" or source.shift == 16 else 0
            value = f"part<{left}>(w, {self.number(source.number)}, lane, {shift})"
            self.inside.append(self._call("store_small", left, where, "lane", value) + ";")
        return self.finish("w.exec()")

    def pair(self, action, stride, words):
        """Two values of local memory at offsets in units of their size."""
        offsets = [self.number(int(self.take(f"offset{i}", "0"), 0) * stride * 4 * words) for i in range(2)]
        operands = self.operands()
        address = self.value("u32", operands[1] if action == "load" else operands[0])
        registers = [operands[0].number, operands[0].number + words] if action == "load" else \
            [operand.number for operand in operands[1:]]
        self.inside.append(f"const u32 address = {address};")
        self.inside += [self._call(action, str(words), self.number(register), f"u32(address + {offset})", "lane") + ";"
                        for register, offset in zip(registers, offsets)]
        return self.finish("w.exec()")

    def atomic(self, row, returns):
        returns = returns or self.is_returning
        operands = self.operands()
        target = operands.pop(0) if returns else None
        sources, address, base = self._split(operands, "last")
        where = self._address(address, base)
        kind = row.left[0]
        for letter, operand in zip("ab", sources):
            self.inside.append(f"[[maybe_unused]] const auto {letter} = {self.value(kind, operand)};")
        if "a_next" in row.expressions[0]:
            after = self.number(sources[0].number + BITS[kind] // 32)
            self.inside.append(f"const auto a_next = vector<{kind}>(w, {after}, lane);")
        change = f"[&]({kind} old) -> {kind} {{ return {row.expressions[0]}; }}"
        self.inside.append(f"const {kind} was = {self._call('exchange', kind, where, 'lane', change)};")
        self.inside.append(f"put_vector<{kind}>(w, {self.number(target.number)}, lane, was);" if target else
                           "static_cast<void>(was);")
        return self.finish("w.exec()")
