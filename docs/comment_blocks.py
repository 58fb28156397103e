"""The layout of comments in QCCL's headers and of its Python docstrings: paragraphs, lists, tables of two columns, and code.

doxygen_filter.py and conf.py use it. Pure; any thread may call.

    A paragraph, up to an empty line, a list or an indented line.

    A title
    - An item of a list, whose further lines
      are indented by two.
      first        a row of a table: a label, two spaces or more, and a text
                   that may go on
      a row without a label

        code, which is indented by four
"""
import dataclasses
import re

# Groups of results that stand alone in their rows.
COMPLETE_ROW = re.compile(r"((the )?\w+ )?(errors|failures)(, (\w+ )?(errors|failures))*$")
WIDTH = 95  # a row that could have taken another word ends there
ROW = re.compile(r"(\S.*?)(?: {2,}(\S.*))?$")


@dataclasses.dataclass
class Block:
    """kind: text, title, code (`lines`), list (`items`: lists of blocks) or table (`rows`: label or None, and text)."""
    kind: str
    text: str = ""
    lines: list[str] = dataclasses.field(default_factory=list)
    items: list[list["Block"]] = dataclasses.field(default_factory=list)
    rows: list[tuple[str | None, str]] = dataclasses.field(default_factory=list)


def indent_of(line):
    return len(line) - len(line.lstrip(" "))


def take(lines, begin, belongs):
    """The lines from `begin` on that belong, with empty lines between them, and the place behind them."""
    end = begin
    while end < len(lines) and (belongs(lines[end]) if lines[end] else any(map(belongs, lines[end + 1:end + 2]))):
        end += 1
    return lines[begin:end], end


def parse(lines):
    """The blocks of lines that have no common indentation."""
    blocks, place = [], 0
    while place < len(lines):
        line = lines[place]
        if not line:
            place += 1
        elif indent_of(line) >= 4:
            code, place = take(lines, place, lambda text: indent_of(text) >= 4)
            blocks.append(Block("code", lines=[text[4:] for text in code]))
        elif indent_of(line) >= 2:
            body, place = take(lines, place, lambda text: indent_of(text) >= 2)
            blocks.append(parse_table([text[2:] for text in body if text]))
        elif line.startswith("- "):
            items, place = take(lines, place, lambda text: text.startswith(("- ", "  ")))
            blocks.append(Block("list", items=[parse(item) for item in split_items(items)]))
        else:
            end = next((later for later in range(place, len(lines)) if not lines[later] or lines[later].startswith(("- ", "  "))), len(lines))
            text = " ".join(lines[place:end])
            is_title = end == place + 1 and lines[end:] and lines[end].startswith("- ") and text[-1] not in ".:,;"
            blocks.append(Block("title" if is_title else "text", text))
            place = end
    return blocks


def split_items(lines):
    items = []
    for line in lines:
        if line.startswith("- "):
            items.append([])
        items[-1].append(line[2:])
    return items


def parse_table(lines):
    """The rows of a table whose lines have lost the table's own indentation."""
    rows, last = [], ""
    for line in lines:
        label, text = ROW.match(line.strip()).groups()
        if rows and (indent_of(line) >= 2 or goes_on(rows[-1], last, line)):
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {line.strip()}")
        elif text:
            rows.append((label, text))
        else:
            rows.append((None, line.strip()))
        last = line
    return Block("table", rows=rows)


def goes_on(row, last, line):
    """Whether a line continues a row without a label, because that has been wrapped."""
    label, text = row
    if label is not None or COMPLETE_ROW.match(text) or ROW.match(line)[2]:
        return False
    return not text.endswith(".") or len(last) + len(line.split()[0]) > WIDTH
