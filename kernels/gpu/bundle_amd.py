"""Puts code objects for AMD GPUs into one, as clang does and HIP's runtime reads it.

usage: bundle_amd.py OUTPUT CODE... -- TARGET...

clang-offload-bundler does the same; not every package of a clang has it. Layout: the magic word, how many entries, of each
its offset, size and name, and then the code, each at a multiple of a page. The first entry is the host's, which is empty.
"""
import pathlib
import struct
import sys

PAGE = 4096
MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"


def bundle(codes):
    """`codes`: name of the target -> its code."""
    entries = {"host-x86_64-unknown-linux--": b""}
    entries.update({"hipv4-amdgcn-amd-amdhsa--" + target: code for target, code in codes.items()})
    head_bytes = len(MAGIC) + 8 + sum(24 + len(name) for name in entries)
    offset = (head_bytes + PAGE - 1) // PAGE * PAGE
    head, body = MAGIC + struct.pack("<Q", len(entries)), b""
    for name, code in entries.items():
        head += struct.pack("<QQQ", offset, len(code), len(name)) + name.encode()
        padded = code + bytes(-len(code) % PAGE)
        body += padded
        offset += len(padded)
    return head + bytes(-len(head) % PAGE) + body


if __name__ == "__main__":
    end = sys.argv.index("--")
    codes = [pathlib.Path(path).read_bytes() for path in sys.argv[2:end]]
    pathlib.Path(sys.argv[1]).write_bytes(bundle(dict(zip(sys.argv[end + 1:], codes, strict=True))))
