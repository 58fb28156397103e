"""Converts the plain comments of QCCL's C headers to comments that Doxygen reads, so that the headers stay free of markup.

Doxygen runs it for each header (INPUT_FILTER). The comments keep the rules that stand at the head of qccl.h, and the layout of
comment_blocks.py. The script reports a function without a comment, an argument that is not described and a description of an
argument that no function has, and then ends with status 1. It reads one file and writes to standard output.

A section of the header becomes a group of Doxygen. What a section says of arguments, results and threads of all its functions
is repeated at each of them where Doxygen's ENABLED_SECTIONS has `complete`, as for manual pages.

usage: doxygen_filter.py HEADER
"""
import dataclasses
import pathlib
import re
import sys

import comment_blocks

SECTION = re.compile(r"---- (.*?) -+$")
DESCRIBED = re.compile(r"((?:\w+, )*\w+): (.*)")
TITLES = {"qccl.h": "QCCL", "mpi.h": "QCCL from MPI"}  # of what a header's first comment describes
PRIVATE = re.compile(r"qcclMpi")  # helpers of functions in headers
COMMENT = re.compile(r"/\*.*?\*/", re.S)
LEAD = re.compile(r"^((?:[A-Z]\w+)(?: \w+){0,2}\.) (?=[A-Z])")  # two or three words that say what a paragraph is about
MARKS = re.compile(r"([\\<>&@#%*])")
BETWEEN_FUNCTIONS = re.compile(r"(?m)^(/\*.*?\*/)[ \t]*\n", re.S)


@dataclasses.dataclass
class Function:
    name: str
    arguments: list[str]


@dataclasses.dataclass
class Comment:
    """What a comment says, in lines without the marks of C."""
    text: list[str] = dataclasses.field(default_factory=list)
    arguments: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    of_function: dict[str, dict[str, list[str]]] = dataclasses.field(default_factory=dict)
    returns: list[str] = dataclasses.field(default_factory=list)
    threads: str = ""

    def argument(self, function, name):
        of_this_form = self.of_function.get(function.removesuffix("Config"), {})
        return of_this_form.get(name) or self.arguments.get(name)

    def all_lines(self):
        """What it says, with lists of arguments and results."""
        lines = [*self.text, ""]
        for name, text in self.arguments.items():
            lines += [f"- `{name}`: {text[0]}", *("  " + line for line in text[1:])]
        if self.returns:
            lines += ["", "Results:", "", *("  " + line for line in self.returns)]
        return [*lines, *(["", "Threads: " + self.threads] if self.threads else [])]

    def mentions(self, name):
        """Whether a sentence has the argument, as "`count` values", or speaks of all that it does not name."""
        lists = [self.text, self.returns, *self.arguments.values(), *(text for all in self.of_function.values() for text in all.values())]
        text = "\n".join(line for lines in lists for line in lines)
        kind = name.rpartition("_")[2]  # of send_displs: a comment may speak of displs
        return re.search(rf"\b({name}|{kind})\b|[Tt]he other arguments are those of", text)


# ---- Reading

def plain_lines(comment):
    """The lines of a C comment without /*, * and */."""
    body = comment.removeprefix("/*").removesuffix("*/").rstrip()
    return [re.sub(r"^\s*\* ?", "", line) if number else line.strip() for number, line in enumerate(body.split("\n"))]


def without_comments(code):
    return COMMENT.sub("", code)


def split_declarations(code):
    """The declarations of a piece of code with the comments in them: macros, and all else up to its semicolon."""
    while code.strip():
        code = code.lstrip()
        end = re.match(r"(?:[^\n]*\\\n)*[^\n]*", code).end() if code.startswith("#") else end_of_declaration(code)
        yield code[:end]
        code = code[end:]


def end_of_declaration(code):
    """The place behind the semicolon that stands in no braces."""
    depth = 0
    for found in re.finditer(r"/\*.*?\*/|[{};]", code, re.S):
        depth += {"{": 1, "}": -1}.get(found[0], 0)
        if depth == 0 and found[0] == ";":
            return found.end()
    return len(code)


def function_of(declaration):
    """The function that is declared, or None."""
    text = without_comments(declaration)
    if not text.startswith(("QCCL_API", "static inline")):
        return None
    name = re.search(r"(\w+)\s*\(", text)
    arguments = text[name.end():text.rindex(")")].strip()
    names = [] if arguments in ("", "void") else [re.search(r"(\w+)(\[\w*\])?$", part.strip())[1] for part in arguments.split(",")]
    return Function(name[1], names)


def declared_name(declaration):
    """The name of a type or a macro."""
    found = re.search(r"#define (\w+)|enum (\w+) \{|\(\*(\w+)\)\(|(\w+);$", without_comments(declaration))
    return next(name for name in found.groups() if name)


class CommentReader:
    """Finds what comments say of arguments, by the names that arguments and functions of the header have."""

    def __init__(self, functions):
        self.functions = {function.name for function in functions}
        self.arguments = {name for function in functions for name in function.arguments}

    def describes(self, line):
        """(names, text) of a line that begins to describe arguments, or None."""
        found = DESCRIBED.match(line)
        names = found and found[1].split(", ")
        return (names, found[2]) if found and set(names) <= self.arguments else None

    def read(self, lines):
        comment, place = Comment(), 0
        while place < len(lines):
            line = lines[place]
            body, end = comment_blocks.take(lines, place + 1, lambda text: text.startswith("  "))
            body = [text[2:] for text in body]
            if line in self.functions and body:
                comment.of_function[line] = self.read_arguments(body)
            elif self.describes(line) and (not comment.text or comment.text[-1] == "" or comment.arguments):
                comment.arguments |= self.read_arguments([line, *("  " + text for text in body)])
            elif line == "Returns" or line.startswith("Returns ") and comment.arguments:
                comment.returns = [*filter(None, [line.removeprefix("Returns").strip()]), *body]
            elif line.startswith("Threads: "):
                end = next((later for later in range(place, len(lines)) if not lines[later]), len(lines))
                comment.threads = " ".join(text.strip() for text in lines[place:end]).removeprefix("Threads: ")
            else:
                comment.text.append(line)
                end = place + 1
            place = end
        return comment

    def read_arguments(self, lines):
        """{name: lines}. A line may describe a second argument behind a sentence about the first one."""
        arguments = {}
        for line in lines:
            for part in re.split(r"(?<=\.) (?=\w+: )", line) if not line.startswith(" ") else [line]:
                if described := self.describes(part):
                    names, text = described
                    lines_of = [text]
                    arguments |= {name: lines_of for name in names}
                elif part is line and line.startswith("  "):
                    lines_of.append(line[2:])
                else:
                    lines_of[-1] += " " + part
        return arguments


# ---- Writing

class Writer:
    """Writes blocks as Doxygen's markup. names: what a text may refer to."""

    def __init__(self, names):
        self.name = re.compile(r"(?<![\w:])(" + "|".join(sorted(names, key=len, reverse=True)) + r")\b(?!::|\()")

    def inline(self, text):
        """Text with its special characters marked, and names of the API as references."""
        parts = text.split("`")
        for place in range(0, len(parts), 2):
            parts[place] = self.name.sub(r"#\1", MARKS.sub(r"\\\1", parts[place]))
        return "`".join(parts)

    def blocks(self, blocks):
        out = []
        for block in blocks:
            if block.kind == "text":
                out += [LEAD.sub(r"<b>\1</b> ", self.inline(block.text)), ""]
            elif block.kind == "title":
                out += [f"<b>{self.inline(block.text)}</b>", ""]
            elif block.kind == "code":
                out += [r"\code{.c}", *block.lines, r"\endcode", ""]
            elif block.kind == "table":
                out += [*self.table(block), ""]
            else:
                out += [line for item in block.items for line in self.item(item)] + [""]
        return out

    def item(self, blocks):
        lines = [line for line in self.blocks(blocks)]
        while lines and not lines[-1]:
            lines.pop()
        return ["- " + lines[0], *("  " + line if line else "" for line in lines[1:])]

    def table(self, block):
        for label, text in block.rows:
            yield f"- {self.label(label)}: {self.inline(text)}" if label else f"- {self.inline(text)}"

    def label(self, text):
        marked = self.inline(text)
        return marked if marked.startswith("#") else f"<b>{marked}</b>"

    def lines(self, lines):
        return self.blocks(comment_blocks.parse(lines))


class Header:
    """One header, from its text to Doxygen's comments."""

    def __init__(self, path):
        self.path, self.complaints, self.out = path, [], []
        self.source = without_conditions(path.read_text())
        declarations = list(split_declarations(without_comments(self.source)))
        functions = [function for function in map(function_of, declarations) if function]
        self.reader = CommentReader(functions)
        self.write = Writer(set(re.findall(r"\bqccl\w+\b", without_comments(self.source)))
                            | set(re.findall(r"#define (\w+)", self.source)) | set(re.findall(r"^    (QCCL_\w+) =", self.source, re.M)))

    def convert(self):
        pieces = BETWEEN_FUNCTIONS.split(self.source)
        title = TITLES[self.path.name]
        section = Section(self, re.sub(r"\W+", "_", title.lower()), [title, *plain_lines(pieces[1])], pieces[2])
        for comment, code in zip(pieces[3::2], pieces[4::2]):
            lines = plain_lines(comment)
            if title := SECTION.match(lines[0]):
                self.out += section.write()
                section = Section(self, "qccl_" + re.sub(r"\W+", "_", title[1].lower()), [title[1], *lines[1:]], code)
            else:
                section.add(lines, code)
        self.out += section.write()
        if self.complaints:
            raise SystemExit("\n".join(f"doxygen_filter.py: {self.path}: {complaint}" for complaint in self.complaints))
        return rf"/** \file {self.path.name} */" + "\n" + "\n".join(self.out) + "\n"


def without_conditions(text):
    """Without what only compilers need: guards, visibility, C++, the bodies of functions."""
    text = re.sub(r"\n\{\n.*?^\}\n", ";\n", text, flags=re.M | re.S)
    text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif\n", "", text, flags=re.M | re.S)
    text = re.sub(r"^#if defined.*?^#endif\n", "", text, flags=re.M | re.S)
    return re.sub(r"^#(?:ifndef|endif|include)[^\n]*\n|^#define \w+\n", "", text, flags=re.M)


class Section:
    """A section of a header, which becomes a group."""

    def __init__(self, header, name, lines, code):
        self.header, self.write_text = header, header.write
        self.name, self.title, self.lines = name, lines[0].rstrip("."), lines[1:]
        self.shared = header.reader.read(lines[1:])
        self.members = self.document(Comment(), code)

    def add(self, lines, code):
        """A comment and what follows it: the comment belongs to the section if an empty line does."""
        about, _, rest = ("", "", code) if code.startswith("\n") else code.partition("\n\n")
        if about:
            comment = self.header.reader.read(lines)
            self.members += self.document(comment, about)
            self.look_for_strangers(comment, about)
        else:
            found = re.match(r"(\w+): (.*)", lines[0])
            self.lines += ["", *([f"`{found[1]}`: {found[2]}", *lines[1:]] if found else lines)]
        self.members += self.document(Comment(), rest)

    def write(self):
        text = self.write_text.lines(self.header.reader.read(self.lines).all_lines())
        return ["/**", rf"\defgroup {self.name} {self.title}", *text, "@{", "*/", *self.members, "/** @} */", ""]

    def look_for_strangers(self, comment, code):
        """Describes the comment an argument that no function has?"""
        functions = [function for function in map(function_of, split_declarations(code)) if function]
        has = {name for function in functions for name in function.arguments}
        if functions and not comment.of_function:
            self.header.complaints += [f"{functions[0].name} has no argument {name}" for name in comment.arguments if name not in has]

    def document(self, comment, code):
        """The declarations of `code`, each with what `comment` says of it."""
        out = []
        code = re.sub(r"typedef int32_t (\w+);\nenum \{", r"enum \1 {", code)  # Doxygen then shows the values with the type
        declarations = list(split_declarations(code))
        names = [function.name for function in map(function_of, declarations) if function]
        for declaration in declarations:
            if PRIVATE.search(declaration.partition("(")[0]) or PRIVATE.search(declaration.rpartition("}")[2]):
                continue
            if function := function_of(declaration):
                out += ["/**", *self.of_function(comment, function, names), "*/"]
            elif comment.text or comment.arguments or declaration.startswith("enum q"):
                out += ["/**", *self.of_other(comment, declaration, declarations[0]), "*/"]
            out.append(self.mark_members(declaration))
        return out

    def of_other(self, comment, declaration, first):
        """Of a type or a macro."""
        if declaration is not first:
            return [self.write_text.inline(f"See {declared_name(first)}.")]
        number = ["A number of type int32_t.", ""] if re.match(r"enum \w+", declaration) else []
        return [*number, *self.write_text.lines(comment.all_lines())]

    def mark_members(self, declaration):
        """The comments of members, which stand behind the members or on lines of their own before them."""
        def mark(found):
            text = self.write_text.inline(" ".join(line.strip() for line in plain_lines(found[2])).strip())
            return f"{found[1]}/**{'<' if found[1].strip() else ''} {text} */"
        head, brace, body = declaration.replace("QCCL_API ", "").partition("{")
        return head + brace + re.sub(r"([^\n]*?)(/\*.*?\*/)", mark, body, flags=re.S)

    def of_function(self, comment, function, names):
        base = function.name.removesuffix("Config")
        is_twin = function.name != base and base in names
        if not comment.text:
            self.header.complaints.append(f"{function.name} has no comment")
        if is_twin and "config" not in comment.arguments:
            rest = self.described(comment, function)
            return [f"The same as #{base}, with settings of this call.", "", r"\if complete", *rest, r"\endif"]
        return self.described(comment, function)

    def described(self, comment, function):
        out = self.write_text.lines(comment.text)
        out += [line for name in function.arguments for line in self.argument(comment, function, name)]
        out += self.complete(comment.returns or self.shared.returns, not comment.returns,
                             lambda lines: [r"\return", *self.write_text.blocks([comment_blocks.parse_table(lines)])])
        return out + self.complete(comment.threads or self.shared.threads, not comment.threads,
                                   lambda text: [r"\par Threads", self.write_text.inline(text)])

    @staticmethod
    def complete(what, is_shared, write):
        """What is shared by all functions of the section stands at each of them only where that is asked for."""
        if not what:
            return []
        return [r"\if complete", *write(what), r"\endif", ""] if is_shared else [*write(what), ""]

    def argument(self, comment, function, name):
        lines = comment.argument(function.name, name)
        if lines is None and name not in self.shared.arguments:
            if not comment.mentions(name):
                self.header.complaints.append(f"{function.name} does not describe {name}")
            return []

        def write(described):
            first, *more = self.write_text.lines(described)
            return [rf"\param {name} {first}", *more]
        return self.complete(lines or self.shared.arguments[name], lines is None, write)


if __name__ == "__main__":
    sys.stdout.write(Header(pathlib.Path(sys.argv[1])).convert())
