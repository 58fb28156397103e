"""Translates a code object of an AMD GPU to C++ that executes it on the CPU (wave_launch.hpp).

usage: translate.py OBJDUMP CODE_OBJECT NAME OUTPUT     NAME: of the constant that the C++ defines

An instruction that the translator does not have ends the program that comes to it; such instructions are listed by name.
"""
import gc
import pathlib
import sys

import arithmetic
import control_flow
import disassembly
import memory_access
import rewriting
from code_object import EXPECTED_MODE, CodeObject
from step import Step, Unknown

_MEANINGS = {"by_value": "value", "global_buffer": "value", "hidden_block_count_x": "block_count_x",
             "hidden_block_count_y": "block_count_y", "hidden_block_count_z": "block_count_z",
             "hidden_group_size_x": "group_size_x", "hidden_group_size_y": "group_size_y",
             "hidden_group_size_z": "group_size_z", "hidden_remainder_x": "remainder",
             "hidden_remainder_y": "remainder", "hidden_remainder_z": "remainder",
             "hidden_grid_dims": "grid_dims", "hidden_dynamic_lds_size": "dynamic_lds_size",
             "hidden_global_offset_x": "zero", "hidden_global_offset_y": "zero", "hidden_global_offset_z": "zero"}
_REFUSED = 'w.fail("is an instruction that the translator does not know");'


class Program:
    """The steps of a code object, in the order of addresses."""

    def __init__(self, code, instructions):
        self.code = code
        self.functions = {}  # body: name
        self.rows = []
        self.refused = set()
        groups = self._grouped(instructions)
        self.index_at, count = {}, 0
        for parts in groups:
            self.index_at.setdefault(parts[0].address, count)
            count += len(parts)
        for parts in groups:
            for part in parts:
                self._add(part)
        self._check()

    def _grouped(self, instructions):
        """For each instruction those that do its work."""
        groups = []
        for number, instruction in enumerate(instructions):
            if instruction.size == 0:
                continue
            both = instructions[number:number + 2]
            halves = both if len(both) == 2 and both[1].size == 0 else both[:1]
            try:
                groups.append(rewriting.plain(halves))
            except Unknown as unknown:
                self.refused.add(str(unknown))
                groups.append([instruction])
        return groups

    def _add(self, instruction):
        try:
            step = (arithmetic.step_of(instruction) or memory_access.step_of(instruction)
                    or control_flow.step_of(instruction, self.index_at))
            if step is None:
                raise Unknown(instruction.mnemonic)
        except Unknown as unknown:
            self.refused.add(str(unknown))
            step = Step("    " + _REFUSED, [])
        name = self.functions.setdefault(step.body, f"step_{len(self.functions)}")
        self.rows.append((name, step.numbers, instruction))

    def _check(self):
        """What has nothing to do with instructions."""
        if self.code.has_relocations():
            self.refused.add("relocations")
        for kernel in self.code.kernels:
            if kernel.float_mode != EXPECTED_MODE:
                self.refused.add(f"float mode 0x{kernel.float_mode:x}")
            self.refused |= {kind for kind, _, _ in kernel.arguments if kind not in _MEANINGS}


def emit(program, name):
    yield "// Made by translate.py.\n"
    yield '#include "guarded_memory.hpp"\n#include "lane_access.hpp"\n#include "lane_division.hpp"\n\n'
    yield f"namespace amdgpu {{\nnamespace {{\n\nconstexpr unsigned lanes = {program.code.lanes};\n\n"
    for body, function in program.functions.items():
        yield f"void {function}([[maybe_unused]] Wave &w, [[maybe_unused]] const Step &s) {{\n{body}\n}}\n"
    yield "\nconstexpr Step steps[] = {\n"
    for function, numbers, instruction in program.rows:
        listed = ", ".join(str(number) for number in numbers)
        yield f'    {{{function}, {{{listed}}}, 0x{instruction.address:x}, {_quoted(instruction.text)}}},\n'
    yield "};\n"
    yield from _emit_kernels(program)
    yield from _emit_data(program)
    refused = ", ".join(_quoted(text) for text in sorted(program.refused))
    yield f"constexpr std::array<const char *, {len(program.refused)}> refused{{{refused}}};\n\n}} // namespace\n\n"
    yield f"extern const CodeObject {name};\n"
    yield f"const CodeObject {name}{{{_quoted(program.code.target)}, lanes, steps, kernels, segments, refused}};\n\n"
    yield "} // namespace amdgpu\n"


def _quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _emit_kernels(program):
    for number, kernel in enumerate(program.code.kernels):
        starts = ", ".join(f"Start{{Given::{start.given}, {start.at}, {start.registers}, {start.offset}}}"
                           for start in kernel.starts)
        arguments = ", ".join(f"Argument{{Meaning::{_MEANINGS.get(kind, 'zero')}, {offset}, {size}}}"
                              for kind, offset, size in kernel.arguments)
        yield f"constexpr std::array<Start, {len(kernel.starts)}> starts_{number}{{{starts}}};\n"
        yield f"constexpr std::array<Argument, {len(kernel.arguments)}> arguments_{number}{{{arguments}}};\n"
    yield "constexpr Kernel kernels[] = {\n"
    for number, kernel in enumerate(program.code.kernels):
        entry = program.index_at[kernel.entry]
        yield (f"    {{{_quoted(kernel.name)}, {entry}, {kernel.local_bytes}, {kernel.scratch_bytes}, "
               f"{kernel.argument_bytes}, {kernel.vector_registers}, starts_{number}, arguments_{number}}},\n")
    yield "};\n"


def _emit_data(program):
    kept = [(address, data + bytes(size - len(data))) for address, data, size, is_code in program.code.segments
            if not is_code]
    for number, (_, data) in enumerate(kept):
        yield f"constexpr u8 segment_{number}[] = {{{','.join(map(str, data))}}};\n"
    rows = ", ".join(f"Segment{{0x{address:x}, segment_{number}}}" for number, (address, _) in enumerate(kept))
    yield f"constexpr Segment segments[] = {{{rows}}};\n"


def main(objdump, path, name, output):
    gc.disable()  # a translation makes millions of objects and no cycles
    program = Program(CodeObject(path), disassembly.disassemble(objdump, path))
    pathlib.Path(output).write_text("".join(emit(program, name)))


if __name__ == "__main__":
    main(*sys.argv[1:])
