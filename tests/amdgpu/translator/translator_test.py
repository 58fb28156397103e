"""The translator's parts: what it reads of code objects and disassembly, how it takes instructions apart, and that
every row of its tables is C++. What instructions compute is tested by running them (machine_code_test.cpp).

usage: translator_test.py [COMPILER]    of C++, which reads what the tables give
"""
import pathlib
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import arithmetic  # noqa: E402
import control_flow  # noqa: E402
import disassembly  # noqa: E402
import lane_pattern  # noqa: E402
import memory_access  # noqa: E402
import message_pack  # noqa: E402
import rewriting  # noqa: E402
from operand import Operand  # noqa: E402
from step import Unknown  # noqa: E402

COMPILER = sys.argv[1:] or ["c++"]


def plain(*texts):
    """What instructions become; the second is the other half of a dual one."""
    found = rewriting.plain([disassembly.parse(text, 0x100, 0 if number else 8) for number, text in enumerate(texts)])
    return [f"{part.name} {', '.join(part.operands)}" for part in found]


class Reading(unittest.TestCase):
    def test_message_pack(self):
        data = b"\x84\xa1a\x01\xa2bc\x93\xff\xc3\xc0\xa1d\xcd\x01\x02\xa1e\xd9\x03xyz"
        self.assertEqual(message_pack.unpack(data), {"a": 1, "bc": [-1, True, None], "d": 258, "e": "xyz"})
        self.assertEqual(message_pack.unpack(b"\xdc\x00\x02\xd1\xff\xfe\xcb\x3f\xf8" + bytes(6)), [-2, 1.5])
        with self.assertRaises(ValueError):
            message_pack.unpack(b"\xc1")

    def test_instructions(self):
        read = disassembly.parse("v_fma_f32 v7, -v3, |s5|, 1.0 clamp mul:2")
        self.assertEqual((read.name, read.operands), ("v_fma_f32", ["v7", "-v3", "|s5|", "1.0"]))
        self.assertEqual(read.modifiers, {"clamp": "", "mul": "2"})
        read = disassembly.parse("global_load_b32 v2, v[2:3], off offset:-16 glc")
        self.assertEqual((read.operands, read.modifiers), (["v2", "v[2:3]", "off"], {"offset": "-16", "glc": ""}))
        for mnemonic, name in (("v_mov_b32_e64_dpp", "v_mov_b32"), ("v_or_b32_sdwa", "v_or_b32"),
                               ("v_dual_mov_b32", "v_mov_b32"), ("v_cmp_eq_u32_e32", "v_cmp_eq_u32")):
            self.assertEqual(disassembly.parse(mnemonic).name, name)

    def test_operands(self):
        self.assertEqual(Operand.parse("-|v[4:5]|"), Operand("v", 4, negate=True, magnitude=True))
        self.assertEqual(Operand.parse("sext(v3)"), Operand("v", 3, extend=True))
        self.assertEqual(Operand.parse("v9.h"), Operand("v", 9, 16))
        self.assertEqual(Operand.parse("a1").number, 257)
        self.assertEqual(Operand.parse("vcc_hi").number, 107)
        with self.assertRaises(ValueError):
            Operand.parse("hwreg(HW_REG_MODE)")

    def test_constants(self):
        for text, kind, bits, value in (("1.0", "f16", 16, "0x3c00"), ("1.0", "u32", 32, "0x3f800000"),
                                        ("-0.5", "f64", 64, "0xbfe0000000000000"), ("0x40080000", "f64", 64, "0x4008000000000000"),
                                        ("-1", "u64", 64, "0xffffffffffffffff"), ("0xffffffff", "u64", 64, "0xffffffff"),
                                        ("0xfffffffe", "i64", 64, "0xfffffffffffffffe"), ("lit(0x7f)", "u32", 32, "0x7f")):
            self.assertEqual(Operand.parse(text).constant(kind, bits), value, (text, kind))


class TakingApart(unittest.TestCase):
    def test_dual_instructions_read_before_they_write(self):
        move, add = "v_dual_mov_b32 v1, v2", "v_dual_add_f32 v3, v1, v4"
        self.assertEqual(plain(move, add), ["v_add_f32 v3, v1, v4", "v_mov_b32 v1, v2"])
        self.assertEqual(plain(move, "v_dual_add_f32 v3, v5, v4"), ["v_mov_b32 v1, v2", "v_add_f32 v3, v5, v4"])
        self.assertEqual(plain("v_dual_mov_b32 v1, v2", "v_dual_mov_b32 v2, v1"),
                         ["v_mov_b32 v512, v1", "v_mov_b32 v512, v2", "v_mov_b32 v2, v1", "v_mov_b32 v1, v512"])

    def test_packed(self):
        self.assertEqual(plain("v_pk_mul_f16 v0, v1, s2 op_sel:[0,1] op_sel_hi:[0,1] neg_hi:[1,0]"),
                         ["v_mul_f16 v512.l, v1.l, s2.h", "v_mul_f16 v512.h, -v1.l, s2.h", "v_mov_b32 v0, v512"])
        self.assertEqual(plain("v_pk_add_f32 v[0:1], v[2:3], v[4:5] op_sel_hi:[1,0]"),
                         ["v_add_f32 v512, v2, v4", "v_add_f32 v513, v3, v4", "v_mov_b64 v[0:1], v[512:513]"])
        self.assertEqual(plain("v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:[1,0]")[:2],
                         ["v_mov_b32 v512, v3", "v_mov_b32 v513, v4"])

    def test_parts(self):
        self.assertEqual(plain("v_add_u32_sdwa v0, sext(v1), v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE "
                               "src0_sel:BYTE_2 src1_sel:DWORD"),
                         ["v_bfe_i32 v512, v1, 16, 8", "v_add_u32 v514, v512, v2", "v_lshlrev_b32 v514, 16, v514",
                          "v_bfi_b32 v0, 0xffff0000, v514, v0"])
        self.assertEqual(plain("v_add_u16 v0, v1, v2 op_sel:[0,1,1]"), ["v_add_u16 v0.h, v1.l, v2.h"])
        self.assertEqual(plain("v_and_b16 v0.h, 0xff, v1.h op_sel:[0,1,1]"), ["v_and_b16 v0.h, 0xff, v1.h"])
        self.assertEqual(plain("v_fma_mix_f32 v0, v1, -v2, s3 op_sel:[0,1,0] op_sel_hi:[0,1,0]"),
                         ["v_cvt_f32_f16 v513, v2.h", "v_fma_f32 v0, v1, -v513, s3"])

    def test_patterns(self):
        self.assertEqual(plain("v_add_f32_dpp v0, -v1, v2 row_shr:1 row_mask:0xf bank_mask:0xf"),
                         ["fetch v512, v1", "v_add_f32 v0, -v512, v2"])
        self.assertEqual(plain('ds_swizzle_b32 v0, v1 offset:swizzle(SWAP,16)'), ["fetch v512, v1", "v_mov_b32 v0, v512"])
        pattern, rest = lane_pattern.of_modifiers({"row_bcast": "15", "row_mask": "0xa", "bank_mask": "0xf", "clamp": ""})
        self.assertEqual(pattern.sources[:33:16] + pattern.sources[48:49], [-2, 15, -2, 47])
        self.assertEqual(rest, {"clamp": ""})
        pattern, _ = lane_pattern.of_modifiers({"row_bcast": "31", "row_mask": "0xc"})
        self.assertEqual([pattern.sources[lane] for lane in (0, 31, 32, 63)], [-2, -2, 31, 31])
        self.assertEqual(lane_pattern.of_swizzle('swizzle(BITMASK_PERM,"01pip")').sources[5], 0b01111)

    def test_what_is_unknown_has_a_name(self):
        for text in ("v_add_f32 v0, v1, v2 unheard:1", "v_add_f32 v0, v1", "v_add_f32 v0, v1, hwreg(1)"):
            with self.assertRaisesRegex(Unknown, "^v_add_f32 "):
                arithmetic.step_of(disassembly.parse(text))
        self.assertIsNone(arithmetic.step_of(disassembly.parse("v_sin_f32 v0, v1")))
        self.assertIsNone(control_flow.step_of(disassembly.parse("s_setreg_b32 hwreg(1), s0"), {}))


REGISTERS = {16: "v{}", 32: "v{}", 64: "v[{}:{}]"}


def operands_of(row, is_scalar):
    for number, kind in enumerate([kind for kind in row.left if kind not in ("scc", "exec")] + row.right):
        kind = kind.rstrip("+!")
        if kind == "mask":
            yield f"s[{4 * number}:{4 * number + 1}]"
        elif kind in ("lanes", "lane"):
            yield f"v{number}"
        else:
            text = REGISTERS[rewriting.BITS[kind]].format(4 * number, 4 * number + 1)
            is_once = row.section == "once" and kind != "lanes"
            yield text.replace("v", "s") if is_scalar or is_once else text


def memory_instructions():
    for name, row in memory_access.TABLE.items():
        words = "v[4:7]" if "words" in row.left + row.right else "v4"
        for space, tail in (("global", "v[0:1], off"), ("flat", "v[0:1]"), ("scratch", "v0, s3"), ("ds", "v0")):
            address, _, base = tail.partition(", ")
            base = f", {base}" if base else ""
            if row.section == "load":
                yield f"{space}_{name} {words}, {tail} offset:16"
            elif row.section == "store":
                yield f"{space}_{name} {address}, {words}{base}"
            elif space == "ds":
                yield f"ds_{name} v0, v[4:5], v[6:7]"
            elif space != "scratch" and not name.startswith("cmpst"):
                yield f"{space}_atomic_{name} v[8:9], {address}, v[4:7]{base} glc"


class InstructionTables(unittest.TestCase):
    def test_every_row_is_cpp(self):
        found = [disassembly.parse(f"{name.partition('.')[0]} {', '.join(operands_of(row, table is arithmetic.SCALAR))}"
                                   + (" clamp" if name.endswith(".clamp") else ""))
                 for table in (arithmetic.SCALAR, arithmetic.VECTOR) for name, row in table.items()]
        steps = [arithmetic.step_of(instruction) for instruction in found]
        steps += [memory_access.step_of(disassembly.parse(text)) for text in memory_instructions()]
        self.assertGreater(len(steps), 500)
        self.assertNotIn(None, steps)
        lines = ['#include "guarded_memory.hpp"', '#include "lane_access.hpp"', '#include "lane_division.hpp"',
                 "namespace amdgpu {", "constexpr unsigned lanes = 64;"]
        for number, step in enumerate(steps):
            lines.append(f"void step_{number}([[maybe_unused]] Wave &w, [[maybe_unused]] const Step &s) {{\n{step.body}\n}}")
        lines.append("}")
        done = subprocess.run([*COMPILER, "-std=c++20", "-fsyntax-only", "-I", HERE.parent, "-x", "c++", "-"],
                              input="\n".join(lines), capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr[:4000])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
