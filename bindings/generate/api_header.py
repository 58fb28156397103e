"""Reads the C header, which is the only place where the API is declared: its constants, structs, function types and functions.

The generators of this folder use it. It understands the C of qccl.h and no more, and reports a declaration that it does not
understand instead of leaving it out.
"""
import dataclasses
import pathlib
import re

NUMBER = re.compile(r"\(?-?(0x[0-9A-Fa-f]+|\d+)[Uu]?\)?$")
# A type, a name, and whether the name is an array.
DECLARED = re.compile(r"(?P<type>.*?[\s*])(?P<name>\w+)\s*(\[(?P<length>\w*)\])?$", re.S)


class NotUnderstood(Exception):
    """A declaration of the header that this reader has no rule for."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A parameter of a function, or a field of a struct."""
    name: str
    type: str  # as C writes it, with single spaces: "const void *", "size_t"
    length: str | None = None  # of an array: "" where C leaves it out, else a number or a constant

    @property
    def is_pointer(self):
        return self.type.endswith("*") or self.length is not None


@dataclasses.dataclass(frozen=True)
class Function:
    """A function, a pointer to one in a struct, or the type of such a pointer."""
    name: str
    result: str
    parameters: tuple[Value, ...]


@dataclasses.dataclass(frozen=True)
class Struct:
    name: str
    fields: tuple[Value | Function, ...]


@dataclasses.dataclass
class Api:
    version: str  # "0.1.0"
    constants: dict[str, int]
    handles: list[str]  # types that look like pointers and are numbers
    numbers: dict[str, str]  # names for C's number types: {"qcclResult_t": "int32_t"}
    function_types: list[Function]
    structs: list[Struct]
    functions: list[Function]
    declarations: list[str]  # all of them in C, without comments and macros


def without_comments(text):
    return re.sub(r"/\*.*?\*/", "", text, flags=re.S)


def tidy(text):
    """Single spaces, none before a comma and none behind a star."""
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"\s*\*\s*", " *", text)


def read_value(text):
    found = DECLARED.match(tidy(text))
    if not found:
        raise NotUnderstood(text)
    return Value(found["name"], tidy(found["type"]), found["length"])


def read_parameters(text):
    text = tidy(text)
    return () if text in ("", "void") else tuple(read_value(part) for part in text.split(","))


def read_function(text):
    found = re.match(r"(?P<result>.*?[\s*])(?P<name>\w+)\((?P<parameters>[^()]*)\)$", text, re.S)
    if not found:
        raise NotUnderstood(text)
    return Function(found["name"], tidy(found["result"]), read_parameters(found["parameters"]))


def read_function_pointer(text):
    """`result (*name)(parameters)`, or nothing."""
    found = re.match(r"(?P<result>.*?)\(\*(?P<name>\w+)\)\((?P<parameters>[^()]*)\)$", text, re.S)
    return found and Function(found["name"], tidy(found["result"]), read_parameters(found["parameters"]))


def split_declarations(text):
    """The text between the semicolons that stand in no braces."""
    depth, begin = 0, 0
    for place, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == ";" and depth == 0:
            yield re.sub(r"\s+", " ", text[begin:place]).strip()
            begin = place + 1


def numbers_in(text):
    """Macros that stand for a number."""
    for name, value in re.findall(r"^#define\s+(\w+)[ \t]+(.+)$", text, re.M):
        if NUMBER.match(value.strip()):
            yield name, int(value.strip().strip("()Uu"), 0)


def read_enumerators(body):
    for line in filter(None, map(str.strip, body.split(","))):
        name, value = map(str.strip, line.split("="))
        yield name, int(value, 0)


def read_fields(body):
    for text in filter(None, map(str.strip, body.split(";"))):
        yield read_function_pointer(text) or read_value(text)


def add_declaration(api, text):
    if found := re.match(r"enum \{(.*)\}$", text):
        api.constants.update(read_enumerators(found[1]))
    elif found := re.match(r"typedef struct \{(.*)\} (\w+)$", text):
        api.structs.append(Struct(found[2], tuple(read_fields(found[1]))))
    elif found := re.match(r"typedef (?:struct \w+|void) \*(\w+)$", text):
        api.handles.append(found[1])
    elif found := re.match(r"typedef (\w+) (\w+)$", text):
        api.numbers[found[2]] = found[1]
    elif text.startswith("typedef "):
        function = read_function_pointer(text.removeprefix("typedef "))
        if not function:
            raise NotUnderstood(text)
        api.function_types.append(function)
    else:
        api.functions.append(read_function(text))


def read_api(header, version_header):
    """header: the path of qccl.h; version_header: that of version.h."""
    text = without_comments(pathlib.Path(header).read_text()).replace("\\\n", " ")
    version = dict(numbers_in(pathlib.Path(version_header).read_text()))
    major, minor, patch = (version[f"QCCL_VERSION_{name}"] for name in ("MAJOR", "MINOR", "PATCH"))
    api = Api(f"{major}.{minor}.{patch}", dict(numbers_in(text)), [], {}, [], [], [], [])
    api.constants["QCCL_VERSION"] = major * 10000 + minor * 100 + patch
    text = re.sub(r"^\s*#.*$", "", text, flags=re.M)
    text = re.sub(r'extern "C" \{(.*)\}', r"\1", text, flags=re.S).replace("QCCL_API ", "")
    for declaration in split_declarations(text):
        add_declaration(api, declaration)
        api.declarations.append(declaration)
    return api
