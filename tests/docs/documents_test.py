"""What README.md and docs/*.md show is true: their blocks run, their commands are understood, and what they name exists.

document_blocks.py says how a comment above a block changes what is done with it. At the end the test prints how many blocks of
each page have run, and why others have not. QTEST_FULL=1 also runs those that take long.

usage: documents_test.py SOURCE_ROOT BUILD_FOLDER [PAGE...]
"""
import collections
import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

import document_blocks
import page_runner

SOURCE, BUILD = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
PAGES = sys.argv[3:] or ["README.md", *sorted(path.relative_to(SOURCE).as_posix() for path in (SOURCE / "docs").rglob("*.md"))]
HEADERS = ("qccl.h", "mpi.h", "tools.h", "emulated.h", "version.h.in")
# What tests of a program's texts show to be a placeholder.
PLACEHOLDER = re.compile(r"\b[A-Z]{1,}[A-Z_]*\b(?!=)|\.\.\.|\*|%r|cuda:|hip:")
# Commands between words that take seconds to minutes of processor time: run at night.
AT_NIGHT = ("qccl-perf codec", "qccl-perf codec --codec int8,int4,minmax",
            "qccl-perf simulate all_reduce --hosts 64x8 --rate 100gbit --cores 64 -b 1M -e 256M -f 4 --codec none,int8")
# Names of commands that need more words to be run, or a quarter of an hour, and of an option.
ONLY_A_NAME = re.compile(r"qccl-perf (calibrate|codec --rates|simulate|--json)$|qccl-info (advise|attach|calls|explain|plan|schedule|trace|verify|whatif)$")
# A variable of the Python package, placeholders, and a name that is wrong on purpose.
OTHER_NAMES = {"QCCL_LIBRARY", "qcclX", "qcclXConfig", "QCCL_CODC"}
INSIDE = ("docs/architecture.md", "docs/recipes.md")  # they name what is inside of the library
ABOUT_CODE = (*INSIDE, "CONTRIBUTING.md")
PATH_SPAN = re.compile(r"(?:[\w.-]+/)+[\w.-]+\.(?:cpp|hpp|h|c|cu|py|sh|md|build|1|f90|csv|npy|txt|map|dict)$|[\w.-]+/$")


def text_of(page):
    return (SOURCE / page).read_text()


def known_names():
    """Every name of the C API: of functions, their twins, types, constants and macros; and of the Fortran module."""
    text = "\n".join((SOURCE / "include/qccl" / header).read_text() for header in HEADERS)
    names = set(re.findall(r"\b(?:p?qccl\w+|QCCL_\w+)", text))
    names |= {"p" + name for name in names if name.startswith("qccl")}
    modules = "\n".join(path.read_text() for path in (SOURCE / "bindings/fortran").glob("*.[fF]90"))
    return names | set(re.findall(r"\b(?:qccl\w+|QCCL_\w+)", modules))


def names_of_sources():
    """Names inside of the library and of its tests, which pages for those who change it mention."""
    text = "\n".join(path.read_text() for folder in ("lib", "tests") for path in (SOURCE / folder).rglob("*")
                     if path.suffix in (".hpp", ".cpp", ".build", ".sh"))
    return set(re.findall(r"\b(?:qccl\w+|QCCL_\w+)", text))


def texts_of_units():
    """Each pair of a header and a source, or either of them, as one text."""
    units = collections.defaultdict(str)
    for folder in ("lib", "kernels", "bootstrap", "topology", "perf", "tests"):
        for path in (SOURCE / folder).rglob("*"):
            if path.suffix in (".hpp", ".cpp", ".cu"):
                units[path.with_suffix("")] += path.read_text()
    return list(units.values())


def missing_members(text, units):
    """Spans like `Class::member` of which no unit that defines the class, or that member of it, has the member."""
    members = {span for span in document_blocks.spans(text) if re.fullmatch(r"[A-Z]\w*::\w+", span)}
    for owner, member in sorted(span.split("::") for span in members):
        home = re.compile(rf"\b(?:class|struct) (?:alignas\(\w+\) )?{owner}\b(?!;)|\b{owner}::{member}\b")
        if not any(home.search(unit) and re.search(rf"\b{member}\b", unit) for unit in units):
            yield f"{owner}::{member}"


def settings():
    done = subprocess.run([BUILD / "perf/qccl-info", "settings"], stdout=subprocess.PIPE, text=True, check=True,
                          env={**os.environ, "LD_LIBRARY_PATH": str(BUILD / "lib")})
    return set(re.findall(r"(?m)^\s*(QCCL_\w+)", done.stdout))


class Documents(unittest.TestCase):
    counts = collections.Counter()
    reasons = collections.defaultdict(list)

    @classmethod
    def tearDownClass(cls):
        for page in PAGES:
            kinds = [f"{cls.counts[page, kind]} {kind}" for kind in (page_runner.RUN, page_runner.LEFT_OUT, page_runner.MISSING) if cls.counts[page, kind]]
            print(f"{page}: {', '.join(kinds) or 'no blocks'}")
            for reason in cls.reasons[page]:
                print(f"    {reason}")
        print("blocks:", ", ".join(f"{sum(count for (_, one), count in cls.counts.items() if one == kind)} {kind}"
                                   for kind in (page_runner.RUN, page_runner.LEFT_OUT, page_runner.MISSING)))

    def test_blocks(self):
        for page in PAGES:
            runner = page_runner.PageRunner(SOURCE, BUILD)
            self.addCleanup(runner.close)
            for block in document_blocks.read_blocks(page, text_of(page)):
                if not block.language.startswith("{"):  # what Sphinx reads
                    self.run_block(runner, block)

    def run_block(self, runner, block):
        with self.subTest(block.place):
            try:
                kind, reason = runner.run(block)
            except page_runner.Failure as failure:
                self.fail(f"{block.place} ({block.language}): {failure}")
            self.counts[block.page, kind] += 1
            if reason and reason != "text":
                self.reasons[block.page].append(f"line {block.line} {kind}: {reason}")

    def test_commands_between_words(self):
        """Commands of QCCL's tools that have no placeholder are run."""
        if not (BUILD / "perf/qccl-info").exists():
            self.skipTest("configured without the tools")
        runner = page_runner.PageRunner(SOURCE, BUILD)
        self.addCleanup(runner.close)
        found = sorted({span for page in PAGES for span in document_blocks.spans(text_of(page)) if re.match(r"qccl-(info|perf) ", span)})
        left = () if page_runner.IS_NIGHT else AT_NIGHT
        run = [span for span in found if span not in left and not ONLY_A_NAME.match(span) and not PLACEHOLDER.search(span)]
        for command in run:
            with self.subTest(command):
                try:
                    runner.command(*shlex.split(command))
                except page_runner.Failure as failure:
                    self.fail(f"{command}: {failure}")
        print(f"commands between words: {len(run)} run, {len(found) - len(run)} with placeholders or too long")

    def test_names_exist(self):
        """Functions, types, settings and macros."""
        if not (BUILD / "perf/qccl-info").exists():
            self.skipTest("configured without the tools, which know the settings")
        known, inside = known_names() | settings() | OTHER_NAMES, names_of_sources()
        for page in PAGES:
            known_here = known | inside if page in INSIDE else known
            for name in sorted(set(re.findall(r"(?<![\w./-])(?:p?qccl[A-Z]\w*|QCCL_[A-Z]\w*)(?![\w*]|\.[a-z])", text_of(page)))):
                with self.subTest(f"{page}: {name}"):
                    self.assertTrue(name in known_here, f"{page}: {name} does not exist")

    def test_members_exist(self):
        units = texts_of_units()
        for page in ABOUT_CODE:
            for name in missing_members(text_of(page), units):
                with self.subTest(f"{page}: {name}"):
                    self.fail(f"{page}: {name} does not exist")

    def test_names_of_python_exist(self):
        """Functions, attributes and arguments that the page about Python writes between backticks."""
        known = {"bucket_cap_mb", "destroy_process_group", "get_future", "help", "new_group"}  # of Python and PyTorch
        for source in (SOURCE / "bindings/python/qccl").rglob("*.py"):
            known.update(re.findall(r"\w+", source.read_text()))
        for span in document_blocks.spans(text_of("docs/python.md")):
            for name in re.findall(r"(?<=\.)[A-Za-z_]\w+|\b[A-Za-z_]\w+(?=\()|^[a-z]+_[a-z_]+$", span):
                with self.subTest(span):
                    self.assertIn(name, known)

    def test_links_lead_somewhere(self):
        for page in PAGES:
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document_blocks.prose(text_of(page))):
                if not target.startswith("https://"):
                    with self.subTest(f"{page}: {target}"):
                        self.assertTrue((SOURCE / page).parent.joinpath(target).exists(), f"{page}: there is no {target}")

    def test_files_exist(self):
        """Paths from the root of the tree, as pages write them between backticks."""
        for page in PAGES:
            for span in document_blocks.spans(text_of(page)):
                path = span.split(":")[0]
                if PATH_SPAN.match(path) and not re.search(r"NAME|DIR|FOLDER|^build|^docs/OUTPUT", path) and path.split("/")[0] in TOP:
                    with self.subTest(f"{page}: {path}"):
                        self.assertTrue((SOURCE / path).exists(), f"{page}: there is no {path}")


class TheTestItself(unittest.TestCase):
    """What a page may get wrong is found."""

    def setUp(self):
        self.runner = page_runner.PageRunner(SOURCE, BUILD)
        self.addCleanup(self.runner.close)

    def block(self, text):
        block, = document_blocks.read_blocks("page.md", text)
        return block

    def test_markers(self):
        for text in ("```\n1\n```\n", "```cobol\n1\n```\n", "<!-- test: sometimes -->\n```sh\n```\n", "<!-- test: not run -->\n```sh\n```\n",
                     "<!-- test: night -->\nwords\n", "```sh\nls\n", "<!-- test: ranks -->\n```c\n```\n"):
            with self.subTest(text), self.assertRaises(document_blocks.MarkerError):
                document_blocks.read_blocks("page.md", text)
        self.assertEqual(self.block("<!-- test: not run, a, b -->\n```sh\nls\n```\n").marks, {"not run": "a, b"})
        self.assertEqual(self.block("<!-- test: needs cc, file x.c -->\n```c\n1;\n```\n").marks, {"needs": "cc", "file": "x.c"})

    def test_blocks_that_fail(self):
        wrong = {"sh": "false\necho later", "c": "int main(void) { return 1; }", "python": "raise SystemExit(1)",
                 "cpp": "int main() { int unused; }"}
        for language, code in wrong.items():
            with self.subTest(language), self.assertRaises(page_runner.Failure):
                self.runner.run(self.block(f"```{language}\n{code}\n```\n"))
        with self.assertRaises(page_runner.Failure):  # of a job one rank fails
            self.runner.run(self.block("```sh\nfalse &\ntrue &\nwait\n```\n"))

    def test_members(self):
        units = ["class Line;\nstruct alignas(64) Ring { void post(); };", "void Line::send() {}", "void receive(Line);"]
        self.assertEqual(list(missing_members("`Ring::post` and `Line::send`, `Ring::send`, `Line::receive`, Ring::none", units)),
                         ["Line::receive", "Ring::send"])

    def test_fragments(self):
        good = "qcclResult_t result = qcclAllReduce(send, recv, count, qcclFloat32, qcclSum, comm, NULL);"
        self.assertEqual(self.runner.run(self.block(f"<!-- test: fragment -->\n```c\n{good}\n```\n")), (page_runner.RUN, ""))
        for code in (good.replace("count", "unknown"), "if (rank == 0) qcclCommRevoke(comm);"):
            with self.subTest(code), self.assertRaises(page_runner.Failure):
                self.runner.run(self.block(f"<!-- test: fragment -->\n```c\n{code}\n```\n"))

    def test_output(self):
        self.runner.run(self.block("```sh\necho 'took  3.5 us'; echo other\n```\n"))
        output = "<!-- test: output{} -->\n```text\n{}\n```\n"
        for words, line in (("", "took 3.5 us"), (", roughly", "took 71 us"), ("", "other")):
            self.assertEqual(self.runner.run(self.block(output.format(words, line))), (page_runner.RUN, ""))
        for words, line in (("", "took 3.6 us"), (", roughly", "takes 3.5 us")):
            with self.assertRaises(page_runner.Failure):
                self.runner.run(self.block(output.format(words, line)))

    def test_spans(self):
        self.assertEqual(document_blocks.spans("a `b c` ``d`e``\n```sh\n`no`\n```\n`f`"), ["b c", "d`e", "f"])


TOP = {path.name for path in SOURCE.iterdir() if path.is_dir()}

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
