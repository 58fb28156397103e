"""What a build compiles, as compile_commands.json lists it, but source by source: also those that Meson compiles as one
file (-Dunity=on)."""
import json
import pathlib
import re


def compiled_files(build):
    """Rows as in the file, with absolute names of sources."""
    for row in json.loads((build / "compile_commands.json").read_text()):
        file = (pathlib.Path(row["directory"]) / row["file"]).resolve()
        together = re.findall(r"(?m)^#include<(.+)>$", file.read_text()) if re.search(r"-unity\d+\.c(pp)?$", file.name) else [file]
        for source in map(str, together):
            source = str(pathlib.Path(source).resolve())
            yield {**row, "file": source, "command": row["command"].replace(f" -c {row['file']}", f" -c {source}")}
