#!/usr/bin/python3
"""Draws the time of calls over their size, a curve for each algorithm and codec, and marks the sizes at which another one becomes the
fastest. Reads what `qccl-info explain --json`, `qccl-perf --json` and `qccl-perf simulate --json` write; of several files the curves
stand in one picture, so that predictions can be laid over measurements. Prints the crossovers, too; the picture needs matplotlib.

  plot.py [--output PICTURE] [--text] FILE...
"""
import argparse
import collections
import json
import math
import pathlib
import sys

KNOWN_VERSION = 1  # of explain's rows
# One panel of the picture: calls that differ in size, codec and algorithm alone.
Call = collections.namedtuple("Call", "collective dtype op root ranks")
# `source` tells files apart where there are several, else "".
Curve = collections.namedtuple("Curve", "source codec algorithm")
Crossover = collections.namedtuple("Crossover", "bytes before after")


class Panel:
    """{curve: {bytes: us}}, and where a planner's choice lies on them."""

    def __init__(self):
        self.curves, self.refused, self.chosen = collections.defaultdict(dict), set(), {}

    def add(self, curve, size, time):
        # A curve may have several rows for a size: `auto` beside the algorithm that it takes.
        self.curves[curve][size] = min(time, self.curves[curve].get(size, math.inf))


class Refusal(Exception):
    pass


def load(path):
    try:
        document = json.loads(pathlib.Path(path).read_text())
    except OSError as error:
        raise Refusal(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise Refusal(f"{path} is no JSON: {error}") from None
    rows = document.get("rows") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise Refusal(f"{path} has no rows: expected a file of qccl-info explain --json, qccl-perf --json or qccl-perf simulate --json")
    return rows


def kind_of(row):
    return "explain" if "candidates" in row else "simulate" if row.get("simulated") else "measured"


def add_explained(panel, source, row):
    if row.get("version") != KNOWN_VERSION:
        raise Refusal(f"an explanation has version {row.get('version')}; this plot.py knows {KNOWN_VERSION}")
    for candidate in row["candidates"]:
        if "time_us" not in candidate:
            continue
        curve = Curve(source, candidate["codec"], candidate["algorithm"])
        panel.add(curve, row["bytes"], candidate["time_us"])
        if candidate["verdict"] == "chosen":
            panel.chosen[(source, row["codec"], row["bytes"])] = curve
        if candidate["verdict"] == "refused":
            panel.refused.add(curve)


def read_panels(paths):
    """{call: panel} of all files together."""
    panels = collections.defaultdict(Panel)
    for path in paths:
        for row in load(path):
            try:
                source = f"{pathlib.Path(path).stem}, {kind_of(row)}" if len(paths) > 1 else ""
                panel = panels[Call(row["collective"], row["dtype"], row.get("op"), row.get("root", 0), row["ranks"])]
                if row["bytes"] == 0 or row.get("in_place"):
                    continue
                if "candidates" in row:
                    add_explained(panel, source, row)
                elif row["time_us"]:
                    panel.add(Curve(source, row["used_codec"], row["algorithm"]), row["bytes"], row["time_us"])
            except (KeyError, TypeError, AttributeError) as error:
                raise Refusal(f"{path} has a row that is none of explain, qccl-perf or simulate: {error} is missing or wrong") from None
    panels = {call: panel for call, panel in panels.items() if panel.curves}
    if not panels:
        raise Refusal(f"{', '.join(paths)}: there is no row with a size and a time")
    return panels


def fastest(panel, source, size):
    """Of what may be chosen."""
    times = {curve: times[size] for curve, times in panel.curves.items()
             if size in times and curve.source == source and curve not in panel.refused}
    return min(times, key=times.get) if times else None


def meeting_point(panel, before, after, low, high):
    """Where the two curves meet between two sizes, as straight lines in logarithms; `high` where one has no value at `low`."""
    gaps = []
    for size in (low, high):
        times = [panel.curves[curve].get(size) for curve in (before, after)]
        if None in times:
            return high
        gaps.append(math.log(times[1] / times[0]))
    part = gaps[0] / (gaps[0] - gaps[1]) if gaps[0] != gaps[1] else 1
    return low * (high / low) ** part


def find_crossovers(panel, source):
    sizes = sorted({size for curve, times in panel.curves.items() if curve.source == source for size in times})
    found, before, low = [], None, None
    for size in sizes:
        after = fastest(panel, source, size)
        if after is None:
            continue
        if before is not None and after != before:
            found.append(Crossover(meeting_point(panel, before, after, low, size), before, after))
        before, low = after, size
    return found


def sources_of(panel):
    return sorted({curve.source for curve in panel.curves})


def print_bytes(size):
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.3g} {unit}"
        size /= 1024


def print_time(us):
    for unit in ("us", "ms", "s"):
        if us < 1000 or unit == "s":
            return f"{us:.4g} {unit}"
        us /= 1000


def label(curve):
    return curve.algorithm if curve.codec == "none" else f"{curve.algorithm}, {curve.codec}"


def title(call):
    words = f"{call.collective} of {call.dtype}" + (f", {call.op}" if call.op not in (None, "sum") else "")
    return words + (f" from rank {call.root}" if call.collective in ("broadcast", "reduce", "gather", "scatter") else "") + f", {call.ranks} ranks"


def print_crossovers(panels):
    for call, panel in panels.items():
        for source in sources_of(panel):
            print(title(call) + (f" ({source})" if source else ""))
            first = min(size for curve, times in panel.curves.items() if curve.source == source for size in times)
            print(f"  from {print_bytes(first)}: {label(fastest(panel, source, first)) if fastest(panel, source, first) else 'none may be chosen'}")
            for crossover in find_crossovers(panel, source):
                print(f"  from {print_bytes(crossover.bytes)}: {label(crossover.after)} instead of {label(crossover.before)}")


class Styles:
    """A colour for each algorithm, a line style for each codec, a marker for each source."""

    def __init__(self, panels, colours):
        curves = [curve for panel in panels.values() for curve in panel.curves]
        number = lambda values: {value: index for index, value in enumerate(dict.fromkeys(values))}
        self.algorithms = number(curve.algorithm for curve in curves)
        self.codecs = number(sorted({curve.codec for curve in curves}, key=lambda codec: (codec != "none", codec)))
        self.sources = number(curve.source for curve in curves)
        self.colours = colours

    def of(self, curve, is_refused):
        lines = ["-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1))]
        return {"color": self.colours[self.algorithms[curve.algorithm] % len(self.colours)],
                "linestyle": lines[self.codecs[curve.codec] % len(lines)],
                "marker": " sxv^"[self.sources[curve.source] % 5].strip() or None, "markersize": 4,
                "linewidth": 1.0 if is_refused else 1.6, "alpha": 0.45 if is_refused else 1}


def draw_panel(axes, call, panel, styles):
    # The legend's order is that of the curves at their right ends.
    for curve, times in sorted(panel.curves.items(), key=lambda item: -item[1][max(item[1])]):
        sizes = sorted(times)
        words = label(curve) + (f" ({curve.source})" if curve.source else "") + (" (only if named)" if curve in panel.refused else "")
        style = styles.of(curve, curve in panel.refused)
        if len(sizes) == 1:
            style["marker"] = style["marker"] or "o"
        axes.plot(sizes, [times[size] for size in sizes], label=words, **style)
    marked = sorted({(size, panel.curves[curve][size]) for (_, _, size), curve in panel.chosen.items()})
    if marked:
        axes.plot(*zip(*marked), "o", color="black", markerfacecolor="none", markersize=7, label="planned", zorder=5)
    axes.set(xscale="log", yscale="log", xlabel="size", ylabel="time", title=title(call))
    sizes = sorted({size for times in panel.curves.values() for size in times})
    step = math.ceil(len(sizes) / 12)
    axes.set_xticks(sizes[::step], [print_bytes(size) for size in sizes[::step]], rotation=30, ha="right", fontsize=8)
    axes.yaxis.set_major_formatter(lambda us, _: print_time(us))
    axes.minorticks_off()
    axes.grid(alpha=0.25)
    mark_crossovers(axes, panel)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)


def mark_crossovers(axes, panel):
    found = sorted((crossover, source) for source in sources_of(panel) for crossover in find_crossovers(panel, source))
    for index, (crossover, source) in enumerate(found):
        axes.axvline(crossover.bytes, color="grey", linewidth=0.8, linestyle=":")
        words = f"{print_bytes(crossover.bytes)}\n{label(crossover.after)}" + (f"\n{source}" if source else "")
        # Neighbours stand at different heights, so that their words do not run into each other.
        axes.annotate(words, (crossover.bytes, 0.99 - 0.1 * (index % 5)), xycoords=("data", "axes fraction"), xytext=(3, 0),
                      textcoords="offset points", fontsize=7, va="top", zorder=6,
                      bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.75})


def draw(panels, output):
    try:
        import matplotlib
    except ImportError:
        raise Refusal("the picture needs matplotlib, which this Python does not have (Debian: python3-matplotlib); --text does without") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(len(panels), figsize=(11, 5.2 * len(panels)), squeeze=False, layout="constrained")
    styles = Styles(panels, pyplot.get_cmap("tab10").colors)
    for (call, panel), each in zip(panels.items(), axes[:, 0]):
        draw_panel(each, call, panel, styles)
    try:
        figure.savefig(output, dpi=130)
    except (OSError, ValueError) as error:
        raise Refusal(f"cannot write {output}: {getattr(error, 'strerror', None) or error}") from None


def main(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", metavar="FILE", nargs="+")
    parser.add_argument("--output", metavar="PICTURE", help="PNG, SVG or PDF by its name's ending (the first file's name with .png)")
    parser.add_argument("--text", action="store_true", help="print the crossovers alone")
    chosen = parser.parse_args(words)
    try:
        panels = read_panels(chosen.files)
        print_crossovers(panels)
        if not chosen.text:
            output = chosen.output or str(pathlib.Path(chosen.files[0]).with_suffix(".png"))
            draw(panels, output)
            print(f"written: {output}")
    except Refusal as refusal:
        sys.stdout.flush()
        print(f"plot.py: {refusal}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
