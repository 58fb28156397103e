"""What a build compiles, as compile_commands.json lists it, but source by source: also those that Meson compiles as one
file (-Dunity=on). The commands are such that clang understands them, too."""
import json
import pathlib
import re
import shlex
import sys

GCC_ALONE = re.compile(r" (-fno-gnu-unique|-mmemset-strategy=\S+|--param=\S+)(?=\s)")


def compiled_files(build):
    """Rows as in the file, with absolute names of sources."""
    for row in json.loads((build / "compile_commands.json").read_text()):
        file = (pathlib.Path(row["directory"]) / row["file"]).resolve()
        together = re.findall(r"(?m)^#include<(.+)>$", file.read_text()) if re.search(r"-unity\d+\.c(pp)?$", file.name) else [file]
        if not together:
            sys.exit(f"compiled_files: {file} includes nothing")
        for source in map(str, together):
            source = str(pathlib.Path(source).resolve())
            command = row["command"].replace(f" -c {shlex.quote(row['file'])}", f" -c {shlex.quote(source)}")
            if command == row["command"] and source != row["file"]:
                sys.exit(f"compiled_files: no source stands in {command}")
            yield {**row, "file": source, "command": GCC_ALONE.sub("", command)}
