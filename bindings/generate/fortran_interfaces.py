"""Writes the Fortran modules that mirror the C header: its constants, structs and functions, as bind(c) has them.

Meson runs it while it builds the Fortran binding, whose other modules are written by hand and use these two:
qccl_constants, which programs see, and qccl_c, where each function and struct has its C name behind `c_`.

usage: fortran_interfaces.py QCCL_H VERSION_H OUTPUT
"""
import pathlib
import re
import sys

import api_header

NUMBERS = {"int": "integer(c_int)", "int32_t": "integer(c_int32_t)", "uint32_t": "integer(c_int32_t)", "int64_t": "integer(c_int64_t)",
           "uint64_t": "integer(c_int64_t)", "size_t": "integer(c_size_t)", "double": "real(c_double)", "float": "real(c_float)",
           "char": "character(kind=c_char)"}
# Names for numbers that are types of their own in Fortran, so that no compiler takes one for another.
TYPED = ("qcclDataType_t", "qcclRedOp_t")
ARRAYS_OUT = ("comms_out",)  # the only argument of this kind that receives more than one value
WIDEST = 120


class Writer:
    """What the declarations of one header become."""

    def __init__(self, api):
        self.api = api
        self.structs = {struct.name for struct in api.structs}
        self.function_types = {function.name for function in api.function_types}

    def value_type(self, name):
        """The Fortran type of a value that is no pointer to data."""
        name = name.removeprefix("const ")
        if name in self.api.handles or name == "void *":
            return "type(c_ptr)"
        if name in self.function_types:
            return "type(c_funptr)"
        if name in self.structs:
            return f"type(c_{name.removesuffix('_t')})"
        name = self.api.numbers.get(name, name)
        if name not in NUMBERS:
            raise api_header.NotUnderstood(name)
        return NUMBERS[name]

    def dummy(self, value):
        """How a function declares a parameter. Pointers to data are addresses, but for those to results."""
        if value.name.endswith("_out"):
            many = "(*)" if value.name in ARRAYS_OUT else ""
            return f"{self.value_type(value.type.removesuffix('*').strip())} :: {value.name}{many}"
        kind = "type(c_ptr)" if value.is_pointer else self.value_type(value.type)
        return f"{kind}, value :: {value.name}"

    def component(self, field):
        if isinstance(field, api_header.Function):
            return f"type(c_funptr) :: {field.name} = c_null_funptr"
        if field.is_pointer and field.length is None:
            return f"type(c_ptr) :: {field.name} = c_null_ptr"
        kind = self.value_type(field.type)
        zero = {"real": " = 0", "integer": " = 0", "character": " = c_null_char", "type(c_ptr)": " = c_null_ptr"}
        default = next((text for start, text in zero.items() if kind.startswith(start)), "")
        length = "" if field.length is None else f"({self.api.constants.get(field.length, field.length)})"
        return f"{kind} :: {field.name}{length}{default}"

    def struct(self, struct):
        name = f"c_{struct.name.removesuffix('_t')}"
        yield f"  type, bind(c) :: {name}"
        yield from (f"    {self.component(field)}" for field in struct.fields)
        yield "  end type"

    def function(self, function):
        names = ", ".join(value.name for value in function.parameters)
        result = "type(c_ptr)" if function.result == "const char *" else self.value_type(function.result)
        yield from wrapped(f"    function c_{function.name}({names}) result(c_result) bind(c, name='{function.name}')")
        yield "      import"
        yield from (f"      {self.dummy(value)}" for value in function.parameters)
        yield f"      {result} :: c_result"
        yield "    end function"

    def constants(self):
        """Each constant, typed where the typedef before its enum asks for that."""
        typed, before = {}, ""
        for declaration in self.api.declarations:
            name = before.rpartition(" ")[2]
            if declaration.startswith("enum") and name in TYPED:
                typed.update(dict.fromkeys(re.findall(r"(\w+) =", declaration), name.removesuffix("_t")))
            before = declaration
        for name, value in self.api.constants.items():
            if name in typed:
                yield f"  type({typed[name]}), parameter :: {name} = {typed[name]}({value})"
            else:
                yield f"  integer(c_int), parameter :: {name} = {value}"

    def text(self):
        yield f"! Made from qccl.h of QCCL {self.api.version} by bindings/generate/fortran_interfaces.py."
        yield "module qccl_constants"
        yield from ("  use, intrinsic :: iso_c_binding, only: c_int, c_int32_t", "  implicit none", "  private :: c_int, c_int32_t")
        for name in TYPED:
            name = name.removesuffix("_t")
            yield from (f"  type, bind(c) :: {name}", "    integer(c_int32_t) :: value = 0", "  end type")
        yield from self.constants()
        yield from ("end module qccl_constants", "", "module qccl_c", "  use, intrinsic :: iso_c_binding", "  implicit none", "  public")
        for struct in self.api.structs:
            yield from self.struct(struct)
        yield "  interface"
        for function in self.api.functions:
            yield from self.function(function)
        yield from ("  end interface", "end module qccl_c")


def wrapped(line):
    """The line, continued where it is wider than Fortran allows."""
    while len(line) > WIDEST:
        end = line.rindex(",", 0, WIDEST) + 1
        yield line[:end] + " &"
        line = "       " + line[end:]
    yield line


def main(header, version_header, output):
    text = "\n".join(Writer(api_header.read_api(header, version_header)).text()) + "\n"
    pathlib.Path(output).write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
