"""The manual pages: every option that --help prints and every setting is explained, no other is, and groff has nothing to complain. The documents name every codec and algorithm.

usage: man_test.py MANUAL_FOLDER QCCL_PERF QCCL_INFO
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import tool

FOLDER, PERF, INFO = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def options_of_help(*command):
    """What stands in the first column."""
    lines = tool.run([*command, "--help"]).stdout.splitlines()
    names = re.compile(r"  (-[\w,-]+)")
    return {option for line in lines if (found := names.match(line)) for option in found[1].split(",")}


def page(name):
    return (FOLDER / name).read_text().replace("\\-", "-")


def section(text, name):
    return re.search(rf"^\.SH {name}\n(.*?)(?=^\.SH |\Z)", text, re.M | re.S)[1]


def options_explained(text):
    """Those of the lines that begin a paragraph with a tag."""
    return {option for line in re.findall(r"^\.TP\n(.*)", text, re.M) for option in OPTION.findall(line.replace('"', " "))}


class Options(unittest.TestCase):
    def test_of_a_collective(self):
        text = section(page("qccl-perf.1"), "OPTIONS")
        refused = text[text.index("Refused with the reason:"):]
        self.assertEqual(options_explained(text) | set(OPTION.findall(refused.split("\n.SS")[0])),
                         options_of_help(PERF, "all_reduce"))

    def test_of_the_other_commands(self):
        general = {"-h", "--help", "--version"}
        for command, name in (("simulate", "SIMULATION"), ("codec", "CODECS"), ("calibrate", "CALIBRATION"), ("demo", "DEMONSTRATION")):
            self.assertEqual(options_explained(section(page("qccl-perf.1"), name)) | general,
                             options_of_help(PERF, command))

    def test_of_qccl_info(self):
        commands = ("adapt", "advise", "attach", "calls", "explain", "plan", "schedule", "topology", "trace", "verify", "whatif")
        known = set().union(options_of_help(INFO), *(options_of_help(INFO, command) for command in commands))
        self.assertEqual(options_explained(section(page("qccl-info.1"), "OPTIONS")), known)

    def test_no_page_names_one_that_is_not_there(self):
        for name, commands in (("qccl-perf.1", [[PERF, "all_reduce"], [PERF, "simulate"], [PERF, "codec"], [PERF, "calibrate"], [PERF, "demo"]]),
                               ("qccl-info.1", [[INFO], [INFO, "adapt"], [INFO, "advise"], [INFO, "attach"], [INFO, "calls"], [INFO, "explain"],
                                                [INFO, "plan"], [INFO, "schedule"], [INFO, "topology"], [INFO, "trace"],
                                                [INFO, "verify"], [INFO, "whatif"]])):
            known = set().union(*(options_of_help(*command) for command in commands))
            self.assertEqual(set(OPTION.findall(page(name))) - known, set())


class Settings(unittest.TestCase):
    def test_stand_in_the_manual_with_their_values(self):
        silenced = {name: "" for name in os.environ if name.startswith("QCCL_")}
        printed = tool.run([INFO, "settings"], env=silenced).stdout
        known = {name: value.strip('"') for name, value in re.findall(r"^  (QCCL_\w+) +(\S+) ", printed, re.M)}
        text = section(page("qccl-info.1"), "ENVIRONMENT")
        explained = re.findall(r'^\.TP\n\.BR? (QCCL_\w+)(?: " \((.*)\)")?$', text, re.M)
        self.assertEqual(explained, [*dict(explained).items()], "one is explained twice")
        self.assertEqual(dict(explained), known)

    def test_no_page_names_one_that_is_not_there(self):
        known = set(re.findall(r"^  (QCCL_\w+)", tool.run([INFO, "settings"]).stdout, re.M))
        for path in FOLDER.glob("*.1"):
            self.assertEqual(set(re.findall(r"QCCL_[A-Z_]*[A-Z]", path.read_text())) - known, set(), path)


class Names(unittest.TestCase):
    def names_in(self, path, pattern):
        return set(re.findall(pattern, (FOLDER.parent / path).read_text()))

    def test_of_codecs(self):
        printed = tool.run([INFO, "codecs"]).stdout.split("\nkeys\n")[0]
        known = set(re.findall(r"^  (\w+) +[\d.]+ ", printed, re.M))
        self.assertIn("int8", known)
        self.assertEqual(known - self.names_in("docs/codecs.md", r"`(\w+)"), set())
        self.assertEqual(known - self.names_in("include/qccl/qccl.h", r"\w+"), set())
        self.assertEqual({re.sub(r"^int\d+$", "int", name) for name in known} - self.names_in("lib/codec/WIRE.md", r"\w+"), set())

    def test_of_algorithms(self):
        refused = tool.run([PERF, "all_reduce", "--algo", "?"], expect=2).stderr
        known = set(re.search(r"possible are (.*), auto", refused)[1].split(", "))
        self.assertIn("ring", known)
        self.assertEqual(known - self.names_in("lib/codec/WIRE.md", r"`(\w+)"), set())
        self.assertEqual(known - self.names_in("perf/qccl-info.1", r"(?m)^\.BR? (\w+)"), set())


class Format(unittest.TestCase):
    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_groff_has_nothing_to_complain(self):
        for path in FOLDER.glob("*.1"):
            done = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8", path], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""), path)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
