"""Finds and loads the C library, and turns its results into exceptions.

The other modules call C functions through `lib`, whose attributes are the functions of qccl.h with their types. The library is
loaded when a function is used for the first time. Any thread may call every function here; a call blocks as its C function does,
and does not hold the interpreter's lock meanwhile.

Search. The first of these that is there: the file that QCCL_LIBRARY names; a libqccl that the process has loaded already; the
one inside the package (of a wheel); the one that was installed with the package; the one that the loader finds.
"""
import ctypes
import ctypes.util
import os
import pathlib
import threading

from . import _declarations as c
from . import _errors
from ._folders import FOLDERS
from ._sentences import in_python

FILE_NAME = "libqccl.so.0"
PACKAGE = pathlib.Path(__file__).resolve().parent
SUCCESS, IN_PROGRESS = c.qcclSuccess, c.qcclInProgress
REFUSALS = c.qcclInvalidArgument, c.qcclInvalidUsage
RESULT_NAMES = {value: name for name, value in vars(c).items()
                if name in _errors.BY_NAME or name in ("qcclSuccess", "qcclInProgress")}


def loaded_paths():
    """The paths of all libqccl that this process has loaded."""
    with open("/proc/self/maps") as maps:
        paths = {line.rstrip("\n").split(maxsplit=5)[5] for line in maps if "/libqccl.so" in line}
    return sorted(path for path in paths if os.path.basename(path.removesuffix(" (deleted)")).startswith("libqccl.so"))


def installed_path():
    """The path of the library that was installed, or built, together with this package, or None."""
    paths = [PACKAGE / folder / FILE_NAME for folder in FOLDERS]
    return next((os.path.normpath(path) for path in paths if path.exists()), None)


def library_path():
    """Returns the path of the C library that the package uses, or the bare name if only the loader knows where it is."""
    named = os.environ.get("QCCL_LIBRARY")
    loaded = loaded_paths()
    if len(loaded) > 1:
        raise _errors.LibraryError(f"two QCCL libraries are loaded in this process, {' and '.join(loaded)}: their communicators and "
                                   "settings would not know of each other. Let the program load one of them only")
    if named and not os.path.exists(named):
        raise _errors.LibraryError(f"QCCL_LIBRARY names {named}, which does not exist")
    if named and loaded and not os.path.samefile(named, loaded[0]):
        raise _errors.LibraryError(f"QCCL_LIBRARY names {named}, but this process has already loaded {loaded[0]}")
    inside = PACKAGE / "lib" / FILE_NAME
    found = named or (loaded and loaded[0]) or (inside.exists() and str(inside)) or installed_path()
    return found or FILE_NAME


def include_dir():
    """Returns the folder that has qccl/qccl.h for this library, or None if only the library is installed."""
    # The library lies in PREFIX/lib, or in PREFIX/lib/x86_64-linux-gnu.
    prefixes = pathlib.Path(library_path()).resolve().parents[1:3]
    folders = [PACKAGE / "include", *(prefix / "include" for prefix in prefixes)]
    # A source tree has the one header, and its build folder the other.
    return next((str(folder) for folder in folders if all((folder / "qccl" / name).exists() for name in ("qccl.h", "version.h"))), None)


def check_version(library, path):
    version = ctypes.c_int()
    library.qcclGetVersion(ctypes.byref(version))
    if version.value < c.QCCL_VERSION:
        dotted = lambda number: f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        raise _errors.LibraryError(f"{path} is QCCL {dotted(version.value)}, which is older than this package "
                                   f"({dotted(c.QCCL_VERSION)}). Update the library, or let QCCL_LIBRARY name a newer one")


def load():
    path = library_path()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise _errors.LibraryError(f"the QCCL library cannot be loaded: {error}. Install it, or let QCCL_LIBRARY name {FILE_NAME}") from None
    try:
        check_version(library, path)
        for name, (result, arguments) in c.FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, list(arguments.values())
    except AttributeError as error:
        raise _errors.LibraryError(f"{path} is no QCCL library of this release: {error}") from None
    return library


class Library:
    """The C functions as attributes. The first use loads the library."""

    def __init__(self):
        self._loading = threading.Lock()

    def __getattr__(self, name):
        if not name.startswith("qccl"):
            raise AttributeError(name)
        with self._loading:
            if "handle" not in self.__dict__:
                self.handle = load()
        function = getattr(self.handle, name)
        setattr(self, name, function)  # the next use finds it at once
        return function


lib = Library()


def sentence_of(comm=None):
    return lib.qcclGetLastError(comm).decode(errors="replace")


def error_info(comm):
    """The parts of a communicator's latest error. Their code is SUCCESS if there is none, or no such communicator."""
    info = c.qcclErrorInfo_t(size=ctypes.sizeof(c.qcclErrorInfo_t))
    return info if lib.qcclGetErrorInfo(comm, ctypes.byref(info)) == SUCCESS else c.qcclErrorInfo_t()


def make_error(result, comm=None, sentence=None):
    """The exception for a result that is no success. comm: the handle of the communicator of the call, if it has one."""
    name = RESULT_NAMES.get(result, "")
    kind = _errors.BY_NAME.get(name, _errors.Error)
    sentence = sentence or sentence_of() or lib.qcclGetErrorString(result).decode()
    parts = {}
    if comm is not None:
        info = error_info(comm)
        if info.code == result:
            compared = info.expected or info.got
            parts = {"rank": info.rank, "peer": info.peer if info.peer >= 0 else None, "call": info.call or None, "tag": info.tag or None,
                     "collective": COLLECTIVES.get(info.collective), "expected": info.expected if compared else None,
                     "got": info.got if compared else None}
    return kind(in_python(sentence), **parts)


def check(result, comm=None):
    if result != SUCCESS:
        raise make_error(result, comm)


def told_text(function, *arguments, comm=None):
    """The text that a function of C tells, which takes a buffer and its size last. comm: as in make_error."""
    size = ctypes.c_size_t()
    check(function(*arguments, None, ctypes.byref(size)), comm)
    text = ctypes.create_string_buffer(size.value)
    check(function(*arguments, text, ctypes.byref(size)), comm)
    return text.value.decode()


# The numbers of qcclErrorInfo_t::collective by the names of the package's methods.
COLLECTIVES = {0: "all_reduce", 1: "reduce_scatter", 2: "all_gather", 3: "broadcast", 4: "barrier", 5: "split", 6: "shrink", 7: "reduce",
               8: "gather", 9: "scatter", 10: "all_to_all", 11: "scan", 12: "exscan", 13: "send or recv", 14: "all_gather_v",
               15: "reduce_scatter_v", 16: "gather_v", 17: "scatter_v", 18: "all_to_all_v"}


def version():
    """Returns the version of the C library that is running, as "0.1.0"."""
    number = ctypes.c_int()
    check(lib.qcclGetVersion(ctypes.byref(number)))
    return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"
