"""The tree's looks: clang-format's style, sizes that a person can read, names that stand once.

usage: style_test.py SOURCE_ROOT [--format]   with --format the formatter rewrites what it would complain about
"""
import ast
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import source_files

ROOT = pathlib.Path(sys.argv[1])
FORMATTER = "clang-format-14"  # other releases format otherwise
LONGEST_FILE = 600
LONGEST_FUNCTION = 60
WIDEST_LINE = 100  # of the C header, which is wrapped by hand so that its comments line up
HAND_WRAPPED = "include/"
MANUAL = "include/qccl/qccl.h"  # the whole API in reading order, which has no second file
# Each folder has these.
COMMON_NAMES = {"meson.build", "__init__.py"}
# Each line: a name that code does not use, and the one that the field has for it.
OLD_NAMES = dict(line.split() for line in (pathlib.Path(__file__).parent / "old_names.txt").read_text().splitlines() if not line.startswith("#"))
OLD_NAME = re.compile(rf"\b({'|'.join(OLD_NAMES)})\b")
NOT_CODE = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"')
# Subjects that make a reader search for the actor.
RIDDLE = re.compile(r"\b(whom|whoever|whomever|knows no|knows not|knows nothing of)\b", re.IGNORECASE)
# A tree speaks of itself alone, and what is to be done is done or written down elsewhere.
ELSEWHERE = re.compile(r"\bTODO\b|\bFIXME\b|\bXXX\b|\bissues? #?\d|\bpull request\b|(?<![\w.])/(home|root|Users|work)/")

# With libstdc++ 12, Clang 14 compiles no function that returns a subrange, and no view.
NOT_IN_CLANG_14 = re.compile(r"\branges::(?:rotate|unique|remove|remove_if|partition|stable_partition|search|find_end|equal_range|subrange)\b"
                             r"|\bviews::")


def files(*suffixes):
    return source_files.paths(ROOT, *suffixes)


def lines_of(path):
    return (ROOT / path).read_text().splitlines()


def functions_of(lines):
    """(first line, length) of each function, and of some blocks that are shorter: a brace that stands alone
    closes what the last line of the same indentation before it began. Relies on the formatter."""
    for indent in ("", "    "):
        first = None
        for number, line in enumerate(lines, 1):
            if line == indent + "}" and first is not None:
                yield first, number - first + 1
            elif re.match(indent + r"[^\s{}#/*]", line):
                first = number


def python_functions_of(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            yield node.lineno, node.end_lineno - node.lineno + 1


def style_of(braces):
    """The house's style, with `braces` where functions have them."""
    rows = [line for line in lines_of(".clang-format") if line] + [f"BreakBeforeBraces: {braces}"]
    return "{" + ", ".join(rows) + "}"


def cpp_files():
    return list(files(".cpp", ".hpp"))


def c_files():
    return [path for path in files(".c", ".h") if not path.startswith(HAND_WRAPPED)]


def run_formatter(braces, paths, *options):
    return subprocess.run([FORMATTER, *options, "--style=" + style_of(braces), *paths], cwd=ROOT, capture_output=True,
                          text=True, check=False)


class Style(unittest.TestCase):
    def complain(self, found, what):
        if found:
            self.fail(what + ":\n  " + "\n  ".join(found))

    def test_sources_are_formatted(self):
        if shutil.which(FORMATTER) is None:
            self.skipTest(f"{FORMATTER} is not installed")
        for braces, paths in STYLES:
            self.assertGreater(len(paths()), 10)
            done = run_formatter(braces, paths(), "--dry-run", "-Werror")
            if done.returncode != 0:
                self.fail(f"`python3 tests/tree/style_test.py . --format` mends:\n{done.stderr[:4000]}")

    def test_the_header_is_narrow(self):
        self.complain([f"{path}:{number}" for path in files(".h", ".in") if path.startswith(HAND_WRAPPED)
                       for number, line in enumerate(lines_of(path), 1) if len(line) > WIDEST_LINE],
                      f"lines of more than {WIDEST_LINE} columns")

    def test_files_are_short(self):
        sizes = {path: len(lines_of(path)) for path in files(".c", ".h", ".cpp", ".hpp", ".py", ".sh")
                 if path != MANUAL}
        self.complain([f"{path}: {size}" for path, size in sizes.items() if size > LONGEST_FILE],
                      f"files of more than {LONGEST_FILE} lines")

    def test_functions_fit_a_screen(self):
        found = [(path, *function) for path in files(".c", ".h", ".cpp", ".hpp") for function in functions_of(lines_of(path))]
        found += [(path, *function) for path in files(".py") for function in python_functions_of((ROOT / path).read_text())]
        self.complain([f"{path}:{first}: {length}" for path, first, length in found if length > LONGEST_FUNCTION],
                      f"functions of more than {LONGEST_FUNCTION} lines")

    def test_file_names_are_unique(self):
        seen, found = {}, []
        for path in files(".c", ".h", ".cpp", ".hpp", ".in", ".py", ".sh", ".build"):
            name = pathlib.PurePosixPath(path).name
            if name in seen and name not in COMMON_NAMES:
                found.append(f"{path} and {seen[name]}")
            seen[name] = path
        self.complain(found, "names that stand twice")

    def test_headers_say_what_they_are(self):
        self.complain([path for path in files(".hpp") if not lines_of(path)[0].startswith("// ")],
                      "headers that do not begin with a comment")

    def test_names_are_the_fields(self):
        found = [f"{path}: {name} (say {OLD_NAMES[name]}, or what it is)" for path in files(".cpp", ".hpp", ".cu")
                 for name in sorted(set(OLD_NAME.findall(NOT_CODE.sub(" ", (ROOT / path).read_text()))))]
        self.complain(found, "names that the field has better ones for")

    def test_the_oldest_compilers_compile_it(self):
        found = [f"{path}: {words}" for path in files(".cpp", ".hpp")
                 for words in sorted(set(NOT_IN_CLANG_14.findall(NOT_CODE.sub(" ", (ROOT / path).read_text()))))]
        self.complain(found, "what Clang 14 does not compile")

    def test_comments_name_the_actor(self):
        found = [f"{path}:{number}" for path in files(".cpp", ".hpp", ".cu") for number, line in enumerate(lines_of(path), 1)
                 if RIDDLE.search(line.partition("//")[2])]
        found += [f"{path}:{number}" for path in files(".c", ".h", ".in", ".py", ".sh") if path != "tests/tree/style_test.py"
                  for number, line in enumerate(lines_of(path), 1) if RIDDLE.search(line)]
        self.complain(found, "comments that leave out who acts")

    def test_the_tree_speaks_of_itself(self):
        found = [f"{path}:{number}" for path in files(".c", ".h", ".cpp", ".hpp", ".in", ".py", ".sh", ".build", ".md", ".1")
                 if path != "tests/tree/style_test.py"
                 for number, line in enumerate(lines_of(path), 1) if ELSEWHERE.search(line)]
        self.complain(found, "lines that speak of what is not in the tree")


class TheTestItself(unittest.TestCase):
    """The patterns find what they are for."""

    def test_functions(self):
        code = ["int f(int a,", "      int b) {", "    if (a) {", "        b++;", "    }", "    return b;", "}", "",
                "struct S {", "    int g() {", "        return 1;", "    }", "};"]
        self.assertEqual(set(functions_of(code)), {(1, 7), (3, 3), (10, 3)})
        c_code = ["static int f(void)", "{", "    return 1;", "}"]
        self.assertEqual(list(functions_of(c_code)), [(1, 4)])
        self.assertEqual(list(python_functions_of("x = 1\n\ndef f():\n    return x\n")), [(3, 2)])

    def test_words(self):
        in_code, in_comment, in_string = list(OLD_NAMES)[:3]
        line = f'{in_code} &one; // the {in_comment}\nsay("{in_string}");'
        self.assertEqual(OLD_NAME.findall(NOT_CODE.sub(" ", line)), [in_code])
        for text in ("Knows no ranks", "for whoever waits", "knows nothing of GPUs"):
            self.assertRegex(text, RIDDLE)
        self.assertNotRegex("the rank knows nothing", RIDDLE)

    def test_compilers(self):
        self.assertRegex("std::ranges::rotate(ring, begin);", NOT_IN_CLANG_14)
        self.assertNotRegex("std::ranges::reverse(ring);", NOT_IN_CLANG_14)

    def test_elsewhere(self):
        for text in ("// TODO: more", "see issue 12", "see /home/someone/notes"):
            self.assertRegex(text, ELSEWHERE)
        for text in ("qccl_test_XXXXXX", "the steps that it issues at once", "lib/work/x"):
            self.assertNotRegex(text, ELSEWHERE)


# C functions begin with a brace on a line of its own.
STYLES = (("Attach", cpp_files), ("Linux", c_files))

if sys.argv[2:] == ["--format"]:
    for formatted_braces, formatted_paths in STYLES:
        run_formatter(formatted_braces, formatted_paths(), "-i").check_returncode()
elif __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
