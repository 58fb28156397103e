"""The GPUs' modules from outside: what they export and need, that they hold every kernel for every target, and what they say
where there is no GPU.

usage: gpu_modules_test.py SOURCE_ROOT MODULE...   each libqccl_VENDOR.so
"""
import ctypes
import os
import pathlib
import re
import struct
import subprocess
import sys
import unittest

ROOT = pathlib.Path(sys.argv[1])
MODULES = {pathlib.Path(path).stem.removeprefix("libqccl_"): pathlib.Path(path) for path in sys.argv[2:]}
KERNELS = re.findall(r"^    X\((\w+)\)", (ROOT / "lib/device/batch.hpp").read_text(), re.M)
SYMBOLS = [f"_ZN4qccl3gpu{len(name)}{name}ENS_5BatchE".encode() for name in KERNELS]
TARGETS = [int(target) for target in os.environ.get("NVIDIA_TARGETS", "").split()]
NVIDIA = {*((2, target) for target in TARGETS), *((1, target) for target in TARGETS[-1:])}  # and PTX for whatever is newer
AMD = os.environ.get("AMD_TARGETS", "").split()


class ModuleTable(ctypes.Structure):
    """GpuModule of lib/device/gpu.hpp."""
    _fields_ = [("abi", ctypes.c_uint32), ("vendor", ctypes.c_char_p),
                ("count", ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)),
                ("open", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p))]


class ModuleError(ctypes.Structure):
    """Error of lib/base/result.hpp."""
    _fields_ = [("code", ctypes.c_int32), ("rank", ctypes.c_int32), ("expected", ctypes.c_int64), ("got", ctypes.c_int64),
                ("text", ctypes.c_char * 488)]


def exported(path):
    listing = subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in listing.splitlines()}


def dynamic(path):
    return subprocess.run(["readelf", "-dW", path], check=True, capture_output=True, text=True).stdout


def section(path, name):
    listing = subprocess.run(["readelf", "-SW", path], check=True, capture_output=True, text=True).stdout
    offset, size = re.search(rf"\] {re.escape(name)}\s+\w+\s+\w+\s+(\w+)\s+(\w+)", listing).groups()
    return path.read_bytes()[int(offset, 16):][:int(size, 16)]


def nvidia_codes(fatbins):
    """(1 PTX or 2 machine code, architecture) of each piece of code; there is a container for each source."""
    start = 0
    while start + 16 <= len(fatbins):
        magic, _, head_bytes, bytes_ = struct.unpack_from("<IHHQ", fatbins, start)
        if magic != 0xBA55ED50:
            start += 8  # containers are aligned
            continue
        at, end = start + head_bytes, start + head_bytes + bytes_
        while at < end:
            kind, _, entry_bytes, code_bytes = struct.unpack_from("<HHIQ", fatbins, at)
            yield kind, struct.unpack_from("<I", fatbins, at + 28)[0]
            at += entry_bytes + code_bytes
        start = end


def amd_codes(bundle):
    """Target -> code."""
    magic = b"__CLANG_OFFLOAD_BUNDLE__"
    assert bundle.startswith(magic)
    count, = struct.unpack_from("<Q", bundle, len(magic))
    at, codes = len(magic) + 8, {}
    for _ in range(count):
        offset, size, name_bytes = struct.unpack_from("<QQQ", bundle, at)
        name = bundle[at + 24:at + 24 + name_bytes].decode()
        codes[name.split("--")[-1]] = bundle[offset:offset + size]
        at += 24 + name_bytes
    return codes


class GpuModules(unittest.TestCase):
    def test_there_are_kernels(self):
        self.assertGreater(len(KERNELS), 30)
        self.assertIn("encode_integer_float", KERNELS)

    def test_exports(self):
        header = (ROOT / "include/qccl/emulated.h").read_text()
        declared = set(re.findall(r"\b(qcclEmulated\w+)\(", re.sub(r"/\*.*?\*/", "", header, flags=re.S)))
        self.assertGreater(len(declared), 50)
        for vendor, path in MODULES.items():
            self.assertEqual(exported(path), {"qccl_gpu_module"} | (declared if vendor == "emulated" else set()), vendor)

    def test_needs(self):
        allowed = {"hip": r"|amdhip64"}
        for vendor, path in MODULES.items():
            self.assertIn("NODELETE", dynamic(path))
            for library in re.findall(r"NEEDED.*\[(.*?)\]", dynamic(path)):
                self.assertRegex(library, r"^(lib(c|m|gcc_s|stdc\+\+|pthread|dl|rt|boost_context|[a-z]*san" + allowed.get(vendor, "") +
                                 r")\.so|ld-linux)", vendor)

    def test_table(self):
        current_abi = int(re.search(r"current_abi = (\d+);", (ROOT / "lib/device/gpu.hpp").read_text())[1])
        for vendor, path in MODULES.items():
            library = ctypes.CDLL(path)
            library.qccl_gpu_module.restype = ctypes.POINTER(ModuleTable)
            module = library.qccl_gpu_module().contents
            self.assertEqual((module.abi, module.vendor.decode()), (current_abi, vendor))
            why = ctypes.create_string_buffer(300)
            count = module.count(why, len(why))
            self.assertNotEqual(count == 0, why.value == b"", vendor)
            error = ModuleError()
            self.assertIsNone(module.open(count, ctypes.byref(error)))
            self.assertEqual(error.code, 1)
            self.assertRegex(error.text.decode(), rf"^{vendor}:{count}: cannot ")

    @unittest.skipUnless("cuda" in MODULES, "no nvcc here")
    def test_every_kernel_for_nvidia(self):
        library = MODULES["cuda"].read_bytes()
        self.assertEqual([name for name in SYMBOLS if name + b"\0" not in library], [])
        self.assertTrue(NVIDIA)
        self.assertLessEqual(NVIDIA, set(nvidia_codes(section(MODULES["cuda"], ".nv_fatbin"))))

    @unittest.skipUnless("hip" in MODULES, "no clang for AMD GPUs here")
    def test_every_kernel_for_amd(self):
        library = MODULES["hip"].read_bytes()
        self.assertEqual([name for name in SYMBOLS if name + b"\0" not in library], [])
        codes = amd_codes(section(MODULES["hip"], ".hip_fatbin"))
        for target in AMD:
            self.assertEqual([name for name in SYMBOLS if name + b".kd\0" not in codes[target]], [], target)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
