"""The tables of instructions (*.table) as rows. What a row means is for those who ask for it."""
import dataclasses
import itertools
import pathlib
import re

_HERE = pathlib.Path(__file__).parent


@dataclasses.dataclass
class Row:
    section: str
    left: list  # words before the equals sign, and after it
    right: list
    expressions: list


def read(name):
    """{instruction: Row} of one table"""
    rows, section = {}, ""
    for line in (_HERE / f"{name}.table").read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            pattern, rest = line.split(None, 1)
            for instruction, chosen in _spelled_out(pattern):
                rows[instruction] = _row(section, rest, chosen)
    return rows


def _spelled_out(pattern):
    """(name, the last word chosen) for each choice of a word from each of the braces"""
    pieces = re.split(r"\{([^}]*)\}", pattern)
    choices = [piece.split(",") if number % 2 else [piece] for number, piece in enumerate(pieces)]
    for chosen in itertools.product(*choices):
        yield "".join(chosen), chosen[-2] if len(chosen) > 1 else ""


def _row(section, text, chosen):
    text = re.sub(r"\bT\b", chosen, text)
    types, _, expressions = text.partition(" : ")
    left, _, right = types.partition("=")
    return Row(section, left.split(), right.split(), [part.strip() for part in expressions.split(" ; ")])
