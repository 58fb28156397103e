"""What was measured as a table for people and as CSV. algbw is the vector's bytes over time; a GB is 1e9 bytes."""
import collections
import csv
import re

from .vectors import bits_of, size_text

Row = collections.namedtuple("Row", "label size algorithm time_us least_us most_us algbw busbw limit best_peer nmse sent repetitions")

FRAME, PAYLOAD = 1514, 1448  # bytes: Ethernet's header, 1500 of IP; 32 of TCP's header and 20 of IP's off

HEAD = ("size", "library", "codec", "algorithm", "time (us)", "spread", "algbw", "busbw", "of limit", "x best peer", "vectors sent per host")
WIDTHS = (8, 12, 8, 10, 12, 7, 8, 8, 8, 11, 0)


def limit_of(line, hosts, codec):
    """algbw, in GB/s, of a sum whose bytes cross each link as seldom as possible; None where nobody knows."""
    bits = bits_of(codec)
    return line / 1e9 * hosts / (2 * (hosts - 1)) * 32 / bits if line and hosts > 1 and bits else None


def nominal_line(rate):
    """Bytes of TCP's payload a second, each way, that a rate in tc's words allows; None where there is no rate."""
    match = re.fullmatch(r"([\d.]+)([kmg]?)bit", rate)
    bits = float(match[1]) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[match[2]] if match else None
    return bits / 8 * PAYLOAD / FRAME if bits else None


def rows_of(rounds, ranks):
    hosts, rows = len(rounds.bed.hosts), []
    peers = [label for contender in rounds.contenders for label in contender.labels if label.library != "QCCL"]
    everyone = peers + [label for contender in rounds.contenders for label in contender.labels if label.library == "QCCL"]
    for size in rounds.sizes:
        best = min((rounds.time_us(label, size)[0] for label in peers if rounds.time_us(label, size)), default=None)
        for label in everyone:
            if not (times := rounds.time_us(label, size)):
                continue
            samples = rounds.samples[label, size]
            speed, world = size / times[0] / 1e3, hosts * ranks
            rows.append(Row(label, size, samples[-1].algorithm or label.algorithm, *times, speed, speed * 2 * (world - 1) / world,
                            limit_of(rounds.line(), hosts, label.codec), best / times[0] if best else None, samples[-1].nmse,
                            rounds.sent.get((label, size)), len(samples)))
    return rows


def cell(value, form):
    return "-" if value is None else format(value, form)


def line_of(cells):
    # Names to the left, numbers to the right.
    shown = [text.ljust(width) if index in (1, 2, 3) else text.rjust(width) for index, (text, width) in enumerate(zip(cells, WIDTHS))]
    return "  ".join(shown).rstrip()


def print_table(rows, failures, out):
    print(line_of(HEAD), file=out)
    last = None
    for row in rows:
        if last not in (None, row.size):
            print(file=out)
        last = row.size
        share = row.algbw / row.limit if row.limit else None
        spread = (row.most_us - row.least_us) / row.time_us
        sent = " ".join(f"{each:.3f}" for each in row.sent) if row.sent else "-"
        print(line_of((size_text(row.size), row.label.library, row.label.codec, row.algorithm or "-", f"{row.time_us:.1f}",
                       f"{spread:.0%}", f"{row.algbw:.4f}", f"{row.busbw:.4f}", cell(share, ".1%"), cell(row.best_peer, ".2f"),
                       sent)), file=out)
    print_failures(rows, failures, out)


def print_failures(rows, failures, out):
    measured = {row.label for row in rows}
    for label, reasons in failures.items():
        if reasons:
            name = " ".join(filter(None, (label.library, label.codec if label.library == "QCCL" else "", label.algorithm)))
            what = f"failed {len(reasons)} times" if label in measured else "left out"
            print(f"{name}: {what}: {reasons[-1]}", file=out)


def write_csv(path, rows, about):
    """One line for each row; `about` is said in front of each: hosts, ranks, rate, line."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*about, "library", "codec", "algorithm", "bytes", "time_us", "least_us", "most_us", "repetitions",
                         "algbw_GBps", "busbw_GBps", "limit_GBps", "times_best_peer", "nmse", "vectors_sent_per_host"])
        for row in rows:
            numbers = (row.time_us, row.least_us, row.most_us, row.repetitions, row.algbw, row.busbw, row.limit, row.best_peer, row.nmse)
            writer.writerow([*about.values(), row.label.library, row.label.codec, row.algorithm, row.size,
                             *("" if value is None else f"{value:.6g}" for value in numbers),
                             ";".join(f"{each:.4f}" for each in row.sent or [])])
