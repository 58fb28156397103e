"""Writes qccl_cffi.h, the C API in the C that cffi's FFI.cdef parses unmodified: constants, types and functions of qccl.h, without
macros, attributes and comments.

usage: cffi_header.py HEADER VERSION_HEADER OUTPUT

Meson runs it at build time. Python programs read the file from the include folder of the installation.
"""
import pathlib
import re
import sys

from api_header import read_api

ABOUT = """/* QCCL {version}: the declarations of qccl.h for Python's cffi. A build has written this file; C programs include qccl.h, which
 * is also the manual.
 *
 *     ffi = cffi.FFI()
 *     ffi.cdef(open(INCLUDE_FOLDER + "/qccl/qccl_cffi.h").read())
 *     qccl = ffi.dlopen("libqccl.so.{major}")
 *
 * Macros with arguments or casts have no counterpart in it. qcclConfigInit(config, ffi.sizeof(config[0])) does what QCCL_CONFIG_INIT
 * and QCCL_COLL_CONFIG_INIT do, and ffi.cast("qcclStream_t", -1) is QCCL_STREAM_SYNC. */
"""
WIDTH = 130


def constant(name, value):
    return f"#define {name} {value}"


def on_lines(declaration):
    """The fields of a struct and the constants of an enumeration on a line each; a long function on several."""
    if "{" in declaration:
        head, body, tail = re.match(r"(.*?\{)(.*)(\}.*)", declaration).groups()
        mark = ";" if ";" in body else ","
        members = [f"    {member.strip()}{mark}" for member in body.split(mark) if member.strip()]
        return "\n".join([head, *members, tail + ";"])
    words, lines = (declaration + ";").split(", "), [""]
    for number, word in enumerate(words):
        word += ", " if number + 1 < len(words) else ""
        if len(lines[-1]) + len(word) > WIDTH:
            lines.append("    ")
        lines[-1] += word
    return "\n".join(line.rstrip() for line in lines)


def cffi_header(api):
    enumerated = {name for text in api.declarations if text.startswith("enum ") for name in re.findall(r"(\w+) =", text)}
    parts = [ABOUT.format(version=api.version, major=api.version.split(".")[0]),
             *(constant(name, value) for name, value in api.constants.items() if name not in enumerated), "",
             *(on_lines(text) for text in api.declarations)]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    HEADER, VERSION_HEADER, OUTPUT = sys.argv[1:]
    pathlib.Path(OUTPUT).write_text(cffi_header(read_api(HEADER, VERSION_HEADER)))
