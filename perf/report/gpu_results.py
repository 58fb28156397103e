"""The rows that qccl-perf has written on a GPU as one CSV and a table in Markdown, both named after the GPU.

usage: gpu_results.py FOLDER JSON...   FILEs that hold no rows are passed over: runs may have been cut short
"""
import csv
import json
import pathlib
import sys

COLUMNS = ("what device launch ranks dtype bytes in_place codec algorithm operation time_us enqueue_us busbw_GBps GBps vs_copy "
           "ratio nmse speedup_vs_lossless").split()


def rows_of(path):
    try:
        return json.loads(path.read_text())["rows"]
    except (OSError, json.JSONDecodeError):
        return []


def collected(paths):
    """(model, rows for the CSV)"""
    model, rows = None, []
    for path in paths:
        for row in rows_of(path):
            model = row.get("model", model)
            launch = next((word for word in ("threads", "ranks") if f"_{word}_" in path.stem), "")
            rows.append({"what": row.get("collective", "codec"), "launch": "processes" if launch == "ranks" else launch,
                         "device": row.get("device") or ",".join(dict.fromkeys(row.get("devices", []))), **row})
    return model, rows


def shown(value):
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def write_csv(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([shown(row.get(column)) for column in COLUMNS] for row in rows)


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def codec_tables(rows):
    operations = ["copy", "encode", "decode", "decode_add", "decode_add_encode"]
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        mine = [row for row in rows if row["dtype"] == dtype]
        yield f"Codecs, {dtype}, {mine[0]['bytes']} bytes of values: GB/s read and written (and in parts of the copy's)\n"
        lines = []
        for codec in dict.fromkeys(row["codec"] for row in mine):
            found = {row["operation"]: row for row in mine if row["codec"] == codec}
            lines.append([f"`{codec}`", *(f"{found[name]['GBps']:.0f} ({found[name]['vs_copy']:.2f})" if name in found else "-"
                                          for name in operations)])
        yield table(["codec", *operations], lines)


def collective_table(rows):
    yield "all_reduce out of place, medians: us (of which the call took the host, us)\n"
    codecs = list(dict.fromkeys(row["codec"] for row in rows))
    lines = []
    for key in dict.fromkeys((row["launch"], row["ranks"], row["bytes"]) for row in rows):
        found = {row["codec"]: row for row in rows if (row["launch"], row["ranks"], row["bytes"]) == key}
        lines.append([*key, *(f"{found[codec]['time_us']:.1f} ({shown(found[codec]['enqueue_us'])})" if codec in found else "-"
                              for codec in codecs)])
    yield table(["launch", "ranks", "bytes", *(f"`{codec}`" for codec in codecs)], lines)


def main(folder, paths):
    model, rows = collected(paths)
    if not rows:
        return
    name = (model or "gpu").lower().replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / f"{name}.csv", rows)
    codecs = [row for row in rows if row["what"] == "codec"]
    collectives = [row for row in rows if row["what"] != "codec" and not row["in_place"]]
    parts = [f"# {model or 'A GPU'}\n", "Measured by `tests/gpu.sh`; ranks share the GPU.\n"]
    parts += codec_tables(codecs) if codecs else []
    parts += collective_table(collectives) if collectives else []
    (folder / f"{name}.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), [pathlib.Path(path) for path in sys.argv[2:]])
