"""The header for Python's cffi, as it is installed: cffi parses it unmodified, finds every function in the library, lays out structs
as C does, and sums over ranks that are threads.

usage: cffi_test.py MESON BUILD_FOLDER CC...
"""
import pathlib
import sys
import tempfile
import threading
import unittest

from installed_tree import SOURCE, InstalledTree, run

sys.path.insert(0, str(SOURCE / "bindings" / "generate"))
import api_header  # noqa: E402

try:
    import cffi
except ImportError:
    cffi = None

MESON, BUILD, CC = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
RANKS = 3


def shape_program(structs):
    """C that prints the size of each struct, and the place of each field, in the order of the header."""
    lines = []
    for struct in structs:
        lines.append(f'printf("%zu\\n", sizeof({struct.name}));')
        lines += [f'printf("%zu\\n", offsetof({struct.name}, {field.name}));' for field in struct.fields]
    return "#include <qccl/qccl.h>\n#include <stdio.h>\nint main(void)\n{\n" + "\n".join(lines) + "\nreturn 0;\n}\n"


@unittest.skipIf(cffi is None, "Python has no cffi")
class Cffi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = InstalledTree(MESON, BUILD)
        cls.addClassCleanup(cls.tree.remove)
        cls.api = api_header.read_api(cls.tree.headers / "qccl/qccl.h", cls.tree.headers / "qccl/version.h")
        cls.ffi = cffi.FFI()
        cls.ffi.cdef((cls.tree.headers / "qccl/qccl_cffi.h").read_text())
        if cls.tree.has("libqccl.so.0"):
            cls.qccl = cls.ffi.dlopen(str(cls.tree.libraries / "libqccl.so.0"))
        else:
            raise unittest.SkipTest("configured without the shared library")

    def test_every_function_is_there(self):
        self.assertGreater(len(self.api.functions), 80)
        for function in self.api.functions:
            self.assertEqual(self.ffi.typeof(getattr(self.qccl, function.name)).kind, "function")

    def test_constants(self):
        for name, value in self.api.constants.items():
            self.assertEqual(getattr(self.qccl, name), value, name)
        version = self.ffi.new("int *")
        self.assertEqual(self.qccl.qcclGetVersion(version), self.qccl.qcclSuccess)
        self.assertEqual(version[0], self.qccl.QCCL_VERSION)

    def test_structs_are_those_of_c(self):
        with tempfile.TemporaryDirectory() as folder:
            source, program = pathlib.Path(folder) / "shapes.c", pathlib.Path(folder) / "shapes"
            source.write_text(shape_program(self.api.structs))
            run(*CC, f"-I{self.tree.headers}", source, "-o", program)
            in_c = list(map(int, run(program).split()))
        here = []
        for struct in self.api.structs:
            here.append(self.ffi.sizeof(struct.name))
            here += [self.ffi.offsetof(struct.name, field.name) for field in struct.fields]
        self.assertEqual(here, in_c)

    def test_ranks_sum(self):
        ffi, qccl = self.ffi, self.qccl
        comms, results = ffi.new("qcclComm_t[]", RANKS), [None] * RANKS
        self.assertEqual(qccl.qcclCommInitAll(comms, RANKS, ffi.NULL), qccl.qcclSuccess, ffi.string(qccl.qcclGetLastError(ffi.NULL)))

        def take_part(rank):
            values, config = ffi.new("float[]", [rank, 10 * rank]), ffi.new("qcclCollConfig_t *")
            done = [qccl.qcclConfigInit(config, ffi.sizeof(config[0]))]
            algorithm = ffi.new("char[]", b"ring")  # it lives as long as the call
            config.algorithm = algorithm
            done.append(qccl.qcclAllReduceConfig(values, values, 2, qccl.qcclFloat32, qccl.qcclSum, comms[rank], ffi.NULL, config))
            done.append(qccl.qcclAllReduce(values, values, 2, qccl.qcclFloat32, qccl.qcclMax, comms[rank],
                                           ffi.cast("qcclStream_t", -1)))
            done.append(qccl.qcclCommDestroy(comms[rank]))
            results[rank] = done, list(values)

        ranks = [threading.Thread(target=take_part, args=[rank]) for rank in range(RANKS)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        total = sum(range(RANKS))
        self.assertEqual(results, [([qccl.qcclSuccess] * 4, [total, 10 * total])] * RANKS)

    def test_the_library_calls_python(self):
        """Functions in structs are those of C, too: an all-gather of one rank, in Python."""
        ffi, qccl, seen = self.ffi, self.qccl, []

        @ffi.callback("int(const void *, void *, size_t, void *)")
        def allgather(mine, everybodys, size, context):
            seen.append(size)
            ffi.memmove(everybodys, mine, size)
            return 0

        meeting, comm = ffi.new("qcclOob_t *", {"allgather": allgather}), ffi.new("qcclComm_t *")
        self.assertEqual(qccl.qcclCommInitOob(comm, 1, 0, meeting, ffi.NULL), qccl.qcclSuccess, ffi.string(qccl.qcclGetLastError(ffi.NULL)))
        self.assertEqual(qccl.qcclCommDestroy(comm[0]), qccl.qcclSuccess)
        self.assertTrue(seen)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
