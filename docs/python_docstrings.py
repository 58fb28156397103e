"""Converts the docstrings of the Python package, which have the layout of comment_blocks.py, to reStructuredText.

conf.py hands `process` to Sphinx. A line that begins with the name of an argument and a colon describes the argument, and may
describe further ones behind its sentences.
"""
import inspect
import re

import comment_blocks

MARKS = re.compile(r"([*|\\]|_\b)")


def inline(text):
    """Text with its special characters marked. What stands between backticks is code."""
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        parts[place] = MARKS.sub(r"\\\1", parts[place])
    return "``".join(parts)


def blocks(parsed):
    """Lines of reStructuredText for blocks."""
    out = []
    for block in parsed:
        if block.kind == "code":
            out += [".. code-block:: python", "", *("    " + line for line in block.lines), ""]
        elif block.kind == "table":
            out += [f"- **{inline(label)}**: {inline(text)}" if label else f"- {inline(text)}" for label, text in block.rows] + [""]
        elif block.kind == "list":
            for item in block.items:
                first, *more = blocks(item)
                out += ["- " + first, *("  " + line if line else "" for line in more)]
            out.append("")
        else:
            out += [f"**{inline(block.text)}**" if block.kind == "title" else inline(block.text), ""]
    return out


def argument_names(thing):
    try:
        return {name for name in inspect.signature(thing).parameters if name != "self"}
    except (TypeError, ValueError):
        return set()


def split_arguments(lines, names):
    """(the lines that describe no argument, [name, text] of each argument)."""
    described = re.compile(r"((?:\w+, )*\w+): (.*)")
    text, arguments, place = [], [], 0
    while place < len(lines):
        found = described.match(lines[place])
        if not found or not set(found[1].split(", ")) <= names:
            text.append(lines[place])
            place += 1
            continue
        body = [lines[place]]
        place += 1
        while place < len(lines) and lines[place].startswith(" "):
            body.append(lines[place].strip())
            place += 1
        for part in re.split(r"(?<=\.) (?=(?:\w+, )*\w+: )", " ".join(body)):
            found = described.match(part)
            if found and set(found[1].split(", ")) <= names:
                arguments += [[name, found[2]] for name in found[1].split(", ")]
            else:
                arguments[-1][1] += " " + part
    return text, arguments


def process(app, what, name, thing, options, lines):
    """For autodoc-process-docstring: replaces `lines`."""
    text, arguments = split_arguments(lines, argument_names(thing))
    lines[:] = [*blocks(comment_blocks.parse(text)), *(f":param {argument}: {inline(words)}" for argument, words in arguments), ""]
