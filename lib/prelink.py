"""Makes libqccl.a of the objects that libqccl.so is made of: one object, in which the C API alone is global.

usage: prelink.py OUTPUT AR OBJCOPY LINKER...

LINKER is the compiler, with the options that link objects into one, and the archives of the library's rooms. lib/meson.build runs
it.

A program, or another library in it, may define any other name that the library uses inside. The functions of qccl.h are weak, so
that a tool can define them and call the library's under their second names (tools.h), as with the shared library.
"""
import pathlib
import subprocess
import sys
import tempfile

# Names of C++ begin otherwise.
FIRST_NAMES, SECOND_NAMES = "qccl*", "pqccl*"


def main(output, ar, objcopy, *linker):
    output = pathlib.Path(output)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix="prelink_") as folder:
        joined = pathlib.Path(folder) / "qccl.o"
        subprocess.run([*linker, "-o", joined], check=True)
        subprocess.run([objcopy, "--wildcard", f"--keep-global-symbol={FIRST_NAMES}", f"--keep-global-symbol={SECOND_NAMES}",
                        f"--weaken-symbol={FIRST_NAMES}", joined], check=True)
        output.unlink(missing_ok=True)
        subprocess.run([ar, "rcsD", output, joined], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
