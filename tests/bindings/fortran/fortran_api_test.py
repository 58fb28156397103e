"""The Fortran module has every function, constant and field of qccl.h, with C's values, and what misuse the compiler refuses.

usage: fortran_api_test.py SOURCE_ROOT BUILD_ROOT MODULES LIBRARY FORTRAN_LIBRARY FC CC
MODULES: the folder of the .mod files; FC, CC: the compilers
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD, MODULES, LIBRARY, FORTRAN_LIBRARY, FC, CC = sys.argv[1:]
HEADER = pathlib.Path(ROOT, "include/qccl/qccl.h")
VERSION = pathlib.Path(BUILD, "include/qccl/version.h")
TEXT = re.sub(r"/\*.*?\*/", "", HEADER.read_text() + VERSION.read_text(), flags=re.S)
FUNCTIONS = re.findall(r"QCCL_API\b[^;(]*?\b(qccl\w+)\(", TEXT)
ENUMERATORS = re.findall(r"^\s*(\w+) = -?\w+", "\n".join(re.findall(r"\benum \{(.*?)\}", TEXT, re.S)), re.M)
MACROS = re.findall(r"^#define (QCCL_\w+)", TEXT, re.M)

# What the module leaves out, and why.
LEFT_OUT_FUNCTIONS = {"qcclConfigInit": "the types of the configs have default values",
                      **{name: "the function without Config has an optional argument config" for name in FUNCTIONS
                         if name.endswith("Config") and name.removesuffix("Config") in FUNCTIONS}}
LEFT_OUT_MACROS = {"QCCL_H": "guards the header", "QCCL_API": "marks functions", "QCCL_VERSION_H": "guards the header",
                   "QCCL_CONFIG_INIT": "the type qcclConfig has default values",
                   "QCCL_COLL_CONFIG_INIT": "the type qcclCollConfig has default values",
                   "QCCL_STATE_CONFIG_INIT": "the type qcclStateConfig has default values",
                   **{f"QCCL_VERSION_{part}": "QCCL_VERSION holds it" for part in ("MAJOR", "MINOR", "PATCH")}}
# Components that the Fortran types do not have: the binding sets them.
LEFT_OUT_FIELDS = {"size", "magic", "version", "reserved", "nlayers"}  # nlayers: the size of layers
SPLIT_FIELDS = {"idle": ("idle", "idle_context"), "log": ("log", "log_context")}
TYPED = ("qcclDataType", "qcclRedOp")


def fields_of(struct):
    body, = re.findall(rf"typedef struct \{{([^{{}}]*)\}} {struct};", TEXT)
    return [re.search(r"(\w+)(\[\w+\])?$", line.strip())[1] for line in body.split(";") if line.strip()]


def enumerators_of(name):
    body, = re.findall(rf"typedef int32_t {name}_t;\s*enum \{{(.*?)\}}", TEXT, re.S)
    return re.findall(r"(\w+) =", body)


def size_of(data_type):
    """The bytes of an element, by its name: that of a pair has the struct's, and a complex number's that of both parts."""
    pairs = {"FloatInt": 8, "DoubleInt": 16, "LongInt": 16, "IntInt": 8, "ShortInt": 8}
    name = data_type.removeprefix("qccl")
    return pairs.get(name) or (1 if name == "Bool" else int(re.search(r"\d+", name)[0]) // 8)


class Compiled(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="qccl_fortran_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def compile(self, body, *options, used="use qccl"):
        source = self.folder / "program.f90"
        source.write_text(f"program p\n{used}\nuse, intrinsic :: iso_c_binding\nimplicit none\n{body}\nend program\n")
        return subprocess.run([FC, "-std=f2018", f"-I{MODULES}", f"-J{self.folder}", source, *options], capture_output=True,
                              text=True, check=False)

    def refused(self, body):
        return self.compile(body, "-fsyntax-only").stderr

    def run_program(self, body, **options):
        program = self.folder / "program"
        done = self.compile(body, "-o", program, FORTRAN_LIBRARY, LIBRARY, f"-Wl,-rpath,{pathlib.Path(FORTRAN_LIBRARY).parent}",
                            **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        library_path = dict(os.environ, LD_LIBRARY_PATH=str(pathlib.Path(LIBRARY).parent))
        done = subprocess.run([program], env=library_path, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return dict(line.split() for line in done.stdout.splitlines())

    def run_c(self, rows):
        """What C has for each name: an expression that is a number."""
        prints = "\n".join(f'printf("{name} %lld\\n", (long long)({value}));' for name, value in rows.items())
        source, program = self.folder / "program.c", self.folder / "c_program"
        source.write_text(f"#include <qccl/qccl.h>\n#include <stdio.h>\nint main(void) {{\n{prints}\n}}\n")
        subprocess.run([CC, f"-I{ROOT}/include", f"-I{BUILD}/include", source, "-o", program], check=True)
        return dict(line.split() for line in subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines())


class Complete(Compiled):
    def test_there_is_something_to_compare(self):
        self.assertGreater(len(FUNCTIONS), 80)
        self.assertGreater(len(ENUMERATORS), 60)

    def test_every_function_is_there(self):
        needed = [name for name in FUNCTIONS if name not in LEFT_OUT_FUNCTIONS]
        for name in [*needed, "qcclNothing"]:
            said = self.compile("", "-fsyntax-only", used=f"use qccl, only: {name}").stderr
            self.assertEqual("not found in module" in said, name == "qcclNothing", f"{name}: {said}")

    def test_the_library_has_no_others(self):
        symbols = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
        exported = set(re.findall(r" T (qccl\w+)", symbols))
        self.assertLessEqual(set(FUNCTIONS), exported)
        tools = pathlib.Path(ROOT, "include/qccl/tools.h").read_text()  # for QCCL's own tools
        self.assertLessEqual(exported - set(FUNCTIONS), set(re.findall(r"\b(qccl\w+)\(", tools)))

    def test_what_is_left_out_is_in_the_header(self):
        self.assertLessEqual(set(LEFT_OUT_FUNCTIONS), set(FUNCTIONS))
        self.assertLessEqual(set(LEFT_OUT_MACROS) - {"QCCL_VERSION_H"}, set(MACROS))

    def test_every_constant_has_the_value_of_c(self):
        names = ENUMERATORS + [name for name in MACROS if name not in LEFT_OUT_MACROS]
        typed = {name for kind in TYPED for name in enumerators_of(kind)}
        value = lambda name: f"transfer({name}%handle, 0_8)" if name == "QCCL_STREAM_SYNC" else name + "%value" * (name in typed)
        found = self.run_program("\n".join(f"print '(a, 1x, i0)', '{name}', {value(name)}" for name in names))
        expected = self.run_c({name: f"(intptr_t){name}" if name == "QCCL_STREAM_SYNC" else name for name in names})
        self.assertEqual(found, expected)

    def test_every_field_of_a_config_has_a_component(self):
        for c_name, name in (("qcclConfig_t", "qcclConfig"), ("qcclCollConfig_t", "qcclCollConfig"),
                             ("qcclLayer_t", "qcclLayer"), ("qcclStateConfig_t", "qcclStateConfig")):
            fields = [part for field in fields_of(c_name) if field not in LEFT_OUT_FIELDS for part in SPLIT_FIELDS.get(field, (field,))]
            self.assertGreater(len(fields), 1)
            components = "\n".join(f"associate (component{i} => config%{field}); end associate" for i, field in enumerate(fields)
                                   if field not in SPLIT_FIELDS)
            pointers = "\n".join(f"config%{field} => null()" for field in fields if field in SPLIT_FIELDS)
            self.assertEqual(self.refused(f"type({name}) :: config\n{components}\n{pointers}"), "")
        self.assertIn("not a member", self.refused("type(qcclConfig) :: config\nprint *, config%nothing"))

    def test_structs_have_the_size_of_c(self):
        structs = re.findall(r"\} (qccl\w+);", TEXT)
        self.assertGreater(len(structs), 6)
        mine = {name: f"c_{name.removesuffix('_t')}" for name in structs}
        body = "\n".join(f"type({name}) :: value{i}" for i, name in enumerate(mine.values()))
        body += "\n" + "\n".join(f"print '(a, 1x, i0)', '{name}', c_sizeof(value{i})" for i, name in enumerate(mine))
        self.assertEqual(self.run_program(body, used="use qccl_c"), self.run_c({name: f"sizeof({name})" for name in structs}))


class Known(Compiled):
    """The binding's own tables have a row for each type and each collective."""

    def results_of(self, declared, calls):
        body = ["type(qcclComm) :: comms(1)", "integer :: ierror", declared, "call qcclCommInitAll(comms)"]
        for name, call in calls.items():
            body += [f"call {call}, ierror=ierror)", f"print '(a, 1x, i0)', '{name}', ierror"]
        return self.run_program("\n".join([*body, "call qcclCommDestroy(comms(1))"]))

    def test_every_data_type(self):
        """The binding knows the size: so many elements lie in 48 bytes, and no more."""
        declared, call = "integer(1) :: bytes(48) = 0", "qcclBroadcast(QCCL_IN_PLACE, bytes, 0, comms(1), datatype={}, count={}_c_size_t"
        counts = {name: 48 // size_of(name) for name in enumerators_of("qcclDataType")}
        fitting = self.results_of(declared, {name: call.format(name, count) for name, count in counts.items()})
        self.assertEqual(fitting, dict.fromkeys(counts, "0"))
        longer = self.results_of(declared, {name: call.format(name, count + 1) for name, count in counts.items()})
        self.assertEqual(longer, dict.fromkeys(counts, "4"))

    def test_every_collective(self):
        names = enumerators_of("qcclCollective")
        self.assertGreater(len(names), 15)
        calls = {name: f"qcclCollCreateV(coll, {name}, a, b, comms(1), n, d, n, d" if name.endswith("V") else
                 f"qcclCollCreate(coll, {name}, a, b, comms(1)" for name in names}
        declared = "type(qcclColl) :: coll\nreal, target :: a(1), b(1)\ninteger(c_size_t) :: n(1) = [1], d(1) = [0]"
        self.assertEqual(set(self.results_of(declared, calls).values()), {"0"})


class Refused(Compiled):
    """Mistakes that the compiler finds."""
    DECLARED = "type(qcclComm) :: comm\ntype(qcclRedOp) :: op\ntype(qcclCodec) :: codec\nreal :: a(3), b(3)\n"

    def test_mistakes_do_not_compile(self):
        self.assertEqual(self.refused(self.DECLARED + "call qcclAllReduce(a, b, comm, op)"), "")
        for mistake, said in (("call qcclAllReduce(a, QCCL_IN_PLACE, comm)", "PROTECTED"),
                              ("call qcclAllReduce(a, b + 1, comm)", "variable definition context"),
                              ("call qcclAllReduce(a, b, comm, qcclFloat32)", "Type mismatch"),
                              ("call qcclAllReduce(a, b, comm, datatype=qcclSum)", "Type mismatch"),
                              ("call qcclAllReduce(a, b, codec)", "Type mismatch"),
                              ("call qcclRedOpCreate(op, main, .true.)\ncontains\nsubroutine main()\nend subroutine", "no specific subroutine")):
            with self.subTest(mistake):
                self.assertIn(said, self.refused(self.DECLARED + mistake))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
