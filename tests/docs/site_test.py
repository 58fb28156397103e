"""The site and the manual pages build without a warning and have the whole C API; docs/doxygen_filter.py reports what is missing.

Skips the site where Doxygen, Sphinx, Breathe or MyST is not installed.

usage: site_test.py SOURCE_ROOT
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zlib

SOURCE = pathlib.Path(sys.argv[1]).resolve()
HEADER = SOURCE / "include/qccl/qccl.h"
PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's Sphinx

sys.path[:0] = [str(SOURCE / "bindings/generate"), str(SOURCE / "docs")]
import api_header  # noqa: E402
import comment_blocks  # noqa: E402


def functions():
    text = api_header.without_comments(HEADER.read_text())
    return re.findall(r"^QCCL_API [\w\s*]+?(\w+)\(", text, re.M)


def run_filter(header):
    return subprocess.run([sys.executable, SOURCE / "docs/doxygen_filter.py", header], capture_output=True, text=True, check=False)


def has_tools():
    modules = "import breathe, myst_parser, sphinx"
    return shutil.which("doxygen") and shutil.which(PYTHON) and subprocess.run([PYTHON, "-c", modules], capture_output=True, check=False).returncode == 0


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not has_tools():
            raise unittest.SkipTest("no Doxygen, Sphinx, Breathe or MyST")
        cls.holder = tempfile.TemporaryDirectory(prefix="qccl_site_")
        cls.addClassCleanup(cls.holder.cleanup)
        cls.output = pathlib.Path(cls.holder.name)
        done = subprocess.run([SOURCE / "docs/build.sh", cls.output], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 0, done.stdout
        cls.printed = done.stdout

    def test_nothing_is_said_but_the_place(self):
        self.assertEqual(self.printed, f"{self.output}/html/index.html\n")

    def names_of_the_site(self):
        """Everything that the site can be searched for, from the inventory that Sphinx writes."""
        data = (self.output / "html/objects.inv").read_bytes()
        head, _, packed = data.partition(b"zlib.\n")
        self.assertIn(b"Sphinx inventory", head)
        return {line.split()[0] for line in zlib.decompress(packed).decode().splitlines()}

    def test_the_site_has_the_whole_api(self):
        names = self.names_of_the_site()
        self.assertGreater(len(functions()), 80)
        self.assertEqual(set(functions()) - names, set())
        api = api_header.read_api(HEADER, self.version_header())
        self.assertEqual({struct.name for struct in api.structs} - names, set())
        self.assertEqual({name for name in api.constants if name.startswith("qccl")} - names, set())
        package = re.search(r"__all__ = \[(.*?)\]", (SOURCE / "bindings/python/qccl/__init__.py").read_text(), re.S)[1]
        self.assertEqual({"qccl." + name for name in re.findall(r"\w+", package)} - names, set())

    def version_header(self):
        path = self.output / "version.h"
        path.write_text("".join(f"#define QCCL_VERSION_{part} 0\n" for part in ("MAJOR", "MINOR", "PATCH")))
        return path

    def test_each_function_has_a_manual_page(self):
        folder = self.output / "man3"
        for name in (*functions(), "qcclCommInitMpi", "qccl", "qcclConfig_t", "qcclResult_t"):
            with self.subTest(name):
                page = (folder / f"{name}.3").read_text()
                if page.startswith(".so"):
                    page = (folder.parent / page.split()[1]).read_text()
                self.assertIn(".SH NAME", page)
                self.assertIn(name.removesuffix("Config"), page)

    def test_a_page_is_complete(self):
        """What the section says of all collectives stands at each."""
        page = (self.output / "man3/qcclAllReduce.3").read_text()
        for words in ("qcclAllReduceConfig", "In place: recv == send", "0 is allowed, with NULL buffers", "one at a time in", "SEE ALSO"):
            self.assertIn(words, " ".join(page.replace("\\fP", "").replace("\\fI", "").replace("\\-", "-").split()), words)


class Filter(unittest.TestCase):
    """A header that lacks something is refused, so that the site lacks nothing."""

    def refused(self, change):
        text = HEADER.read_text()
        changed = change(text)
        self.assertNotEqual(text, changed)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "qccl.h"
            path.write_text(changed)
            done = run_filter(path)
        self.assertEqual(done.returncode, 1, done.stdout[:200])
        return done.stderr

    def test_the_header_passes(self):
        done = run_filter(HEADER)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_function_without_a_comment(self):
        said = self.refused(lambda text: text.replace("/* ---- Memory -", "QCCL_API qcclResult_t qcclBare(qcclComm_t comm);\n\n/* ---- Memory -"))
        self.assertIn("qcclBare has no comment", said)

    def test_an_argument_that_is_not_described(self):
        said = self.refused(lambda text: text.replace(" * version_out: receives the version, as QCCL_VERSION counts it (0.1.0 is 100).\n", "")
                            .replace(" *   qcclInvalidArgument  version_out is NULL.\n", ""))
        self.assertIn("qcclGetVersion does not describe version_out", said)

    def test_an_argument_that_no_function_has(self):
        said = self.refused(lambda text: text.replace(" * spec: a spec string, not NULL.", " * bytes: a spec string, not NULL. spec is one."))
        self.assertIn("qcclCodecCreate has no argument bytes", said)


class Blocks(unittest.TestCase):
    def kinds(self, *lines):
        return [block.kind for block in comment_blocks.parse(list(lines))]

    def test_kinds(self):
        self.assertEqual(self.kinds("A paragraph", "that goes on.", "", "Title", "- item", "  of two lines", "- item"), ["text", "title", "list"])
        self.assertEqual(self.kinds("Values:", "  first   a text", "          that goes on", "  alone"), ["text", "table"])
        self.assertEqual(self.kinds("As in", "", "    int x;", "", "    int y;"), ["text", "code"])

    def test_rows(self):
        block, = comment_blocks.parse(["  qcclTimeout   A rank did not come.", "                The caller waits.", "  handle errors",
                                       "  After any error all ranks may call it again, and the call that follows goes on with", "  what is left."])
        self.assertEqual(block.rows, [("qcclTimeout", "A rank did not come. The caller waits."), (None, "handle errors"),
                                      (None, "After any error all ranks may call it again, and the call that follows goes on with what is left.")])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
