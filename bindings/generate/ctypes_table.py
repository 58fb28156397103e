"""Writes the Python module with what ctypes needs to know of the C API: constants, structs, and each function's types.

usage: ctypes_table.py QCCL_H VERSION_H OUTPUT
"""
import pathlib
import sys

import api_header

# C's types by ctypes' names. Every pointer is a c_void_p, which takes arrays, byref() and None, except text.
NUMBERS = {"int": "c_int", "size_t": "c_size_t", "double": "c_double", "float": "c_float", "char": "c_char", "int32_t": "c_int32",
           "uint32_t": "c_uint32", "int64_t": "c_int64", "uint64_t": "c_uint64"}
HEAD = '''"""What ctypes needs to know of the C API of QCCL. Made from qccl.h; the package's other modules use it."""
import ctypes
from ctypes import c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any
'''


class Table:
    """The types that the header has declared so far, and the lines of the module."""

    def __init__(self, api):
        self.api, self.lines = api, [HEAD]
        self.named = {}  # structs and function types, which have their own names in the module

    def type_of(self, c_type):
        if c_type == "const char *":
            return "c_char_p"
        if c_type.endswith("*") or c_type in self.api.handles:
            return "c_void_p"
        c_type = self.api.numbers.get(c_type, c_type)
        if c_type not in NUMBERS and c_type not in self.named:
            raise api_header.NotUnderstood(c_type)
        return NUMBERS.get(c_type) or self.named[c_type]

    def type_of_parameter(self, value):
        return "c_void_p" if value.length is not None else self.type_of(value.type)

    def function_type(self, function):
        result = "None" if function.result == "void" else self.type_of(function.result)
        return f"ctypes.CFUNCTYPE({', '.join([result, *map(self.type_of_parameter, function.parameters)])})"

    def field_of(self, struct, field):
        """The field's type. That of a function is declared before the struct."""
        if isinstance(field, api_header.Function):
            name = f"{struct.name}_{field.name}"
            self.lines.append(f"{name} = {self.function_type(field)}")
            return name
        length = self.api.constants.get(field.length, field.length)
        return self.type_of(field.type) + (f" * {length}" if length else "")

    def add_struct(self, struct):
        fields = [f'("{field.name}", {self.field_of(struct, field)})' for field in struct.fields]
        self.lines.append(f"\n\nclass {struct.name}(ctypes.Structure):\n    _fields_ = [{', '.join(fields)}]\n\n")
        self.named[struct.name] = struct.name

    def text(self):
        for function in self.api.function_types:
            self.lines.append(f"{function.name} = {self.function_type(function)}")
            self.named[function.name] = function.name
        for struct in self.api.structs:
            self.add_struct(struct)
        self.lines += [f"{name} = {value}" for name, value in self.api.constants.items()]
        self.lines.append("\n# Of each function: the type of its result, and names and types of its arguments.\nFUNCTIONS: dict[str, tuple[Any, dict[str, Any]]] = {")
        for function in self.api.functions:
            parameters = ", ".join(f'"{value.name}": {self.type_of_parameter(value)}' for value in function.parameters)
            self.lines.append(f'    "{function.name}": ({self.type_of(function.result)}, {{{parameters}}}),')
        return "\n".join([*self.lines, "}\n"])


def main(header, version_header, output):
    pathlib.Path(output).write_text(Table(api_header.read_api(header, version_header)).text())


if __name__ == "__main__":
    main(*sys.argv[1:])
