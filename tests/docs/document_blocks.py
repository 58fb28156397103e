"""The code blocks of a Markdown page, the commands between its words, and what its comments tell the test.

documents_test.py uses it. A comment above a block says what the test does with the block, in words between commas:

    <!-- test: fragment -->          C inside of a function: compiled, and run on two ranks that have fragment_frame.c's variables
    <!-- test: fragment, compiled -->  the same, but only compiled
    <!-- test: ranks 4 -->           a program that is started as so many ranks by hand
    <!-- test: file NAME -->         only saved under this name, for the blocks that follow
    <!-- test: example NAME -->      before the block, a file of examples/ is copied
    <!-- test: needs NAME -->        left out where there is no such program
    <!-- test: output -->            what the block before prints: each of these lines stands there, up to blanks
    <!-- test: output, roughly -->   the same, up to numbers
    <!-- test: night -->             only with QTEST_FULL=1
    <!-- test: not run, REASON -->   the rest of the comment is the reason

A block without a comment is run as its language says: sh in the page's folder, and complete programs in c, cpp, python and
fortran, as two ranks if they join a launcher's job. Blocks of text, and directives of Sphinx, are not run.
"""
import dataclasses
import re

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<language>\{[\w:-]+\}(?= .*|$)|\S*)")
COMMENT = re.compile(r"^ *<!-- test: (?P<words>.*?) -->\s*$")
SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
WORDS = {"fragment": 0, "compiled": 0, "ranks": 1, "file": 1, "example": 1, "needs": 1, "output": 0, "roughly": 0, "night": 0}
LANGUAGES = ("c", "cpp", "fortran", "json", "python", "sh", "text", "toml", "yaml")
RUN_LANGUAGES = ("c", "cpp", "fortran", "python", "sh")


class MarkerError(Exception):
    """A block or a comment that the test does not understand."""


@dataclasses.dataclass
class Block:
    page: str
    line: int
    language: str
    text: str
    marks: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def read_marks(place, comment):
    """{word: its argument} of the words of a comment."""
    if comment.startswith("not run"):
        reason = comment.removeprefix("not run").removeprefix(",").strip()
        if not reason:
            raise MarkerError(f"{place}: \"not run\" needs a reason")
        return {"not run": reason}
    marks = {}
    for words in comment.split(", "):
        name, *arguments = words.split(" ")
        if name not in WORDS or len(arguments) != WORDS[name]:
            raise MarkerError(f"{place}: \"{words}\" is none of {', '.join(WORDS)}, not run")
        marks[name] = " ".join(arguments)
    return marks


def read_blocks(page, text):
    """The blocks of a page in their order. Raises MarkerError for a block without a language."""
    blocks, comment, fence, lines = [], "", None, []
    for number, line in enumerate(text.splitlines(), 1):
        if fence is None and (found := COMMENT.match(line)):
            comment = found["words"]
        elif fence is None and (found := FENCE.match(line)):
            place = f"{page}:{number}"
            language = found["language"]
            if language not in LANGUAGES and not language.startswith("{"):
                raise MarkerError(f"{place}: a block in language \"{language}\"; possible are {', '.join(LANGUAGES)}")
            fence, lines = found, []
            blocks.append(Block(page, number, language, "", read_marks(place, comment) if comment else {}))
            comment = ""
        elif fence is not None and line.strip() == fence["fence"]:
            blocks[-1].text = "\n".join(lines) + "\n"
            fence = None
        elif fence is not None:
            lines.append(line[len(fence["indent"]):])
        elif line.strip() and comment:
            raise MarkerError(f"{page}:{number}: the comment above belongs to no block")
    if fence is not None:
        raise MarkerError(f"{page}: the last block has no end")
    return blocks


def prose(text):
    """The page without its blocks and comments."""
    text = re.sub(r"^( *)(```+|~~~+).*?^\1\2\s*$", "", text, flags=re.M | re.S)
    return re.sub(r"<!--.*?-->", "", text, flags=re.S)


def spans(text):
    """What stands between backticks in the page's prose."""
    return [found[2].strip() for found in SPAN.finditer(prose(text))]
