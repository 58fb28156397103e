"""What llvm-objdump prints of a code object, as instructions: mnemonic, operands, modifiers. What an
instruction means is left to the translator."""
import dataclasses
import re
import subprocess

_LINE = re.compile(r"^\t(\S+)\s*(.*?)\s*// ([0-9A-F]{12}): ((?:[0-9A-F]{8} ?)+)")
_FORM = re.compile(r"(_e32|_e64)?(_dpp8?|_sdwa)?$")
_MODIFIER = re.compile(r"^(\w+):(\S+)$")
_BRACKET = re.compile(r"[\[(]")


@dataclasses.dataclass
class Instruction:
    text: str
    address: int
    size: int
    mnemonic: str
    name: str  # the mnemonic without what says how it is encoded
    operands: list
    modifiers: dict  # name: text, "" for those that are there or not

    @property
    def following(self):
        return self.address + self.size


def disassemble(objdump, path):
    """In the order of addresses. The two halves of a dual instruction follow each other, with the
    same address; the second has no size."""
    done = subprocess.run([objdump, "-d", path], capture_output=True, text=True, check=True)
    found = []
    for line in done.stdout.splitlines():
        match = _LINE.match(line)
        if match is None or match[1] == "s_code_end":
            continue
        text = f"{match[1]} {match[2]}".strip()
        size = 4 * len(match[4].split())
        for number, half in enumerate(text.split(" :: ")):
            found.append(parse(half, int(match[3], 16), 0 if number else size))
    return found


def parse(text, address=0, size=4):
    mnemonic, _, rest = text.partition(" ")
    operands, modifiers = _split(rest)
    name = _FORM.sub("", mnemonic)
    if name.startswith("v_dual_"):
        name = "v_" + name.removeprefix("v_dual_")
        if name == "v_cndmask_b32":
            operands.append("vcc_lo")  # is not printed there
    return Instruction(text, address, size, mnemonic, name, operands, modifiers)


def _split(text):
    """Operands stand between commas; modifiers follow the last of them between spaces."""
    operands, modifiers = [], {}
    for part in _between_commas(text):
        first, *more = part.split()
        words = more
        if _MODIFIER.match(first):
            words = [first, *more]
        else:
            operands.append(first)
        for word in words:
            match = _MODIFIER.match(word)
            modifiers[match[1] if match else word] = match[2] if match else ""
    return operands, modifiers


def _between_commas(text):
    if not _BRACKET.search(text):
        yield from (part for part in text.split(",") if part.strip())
        return
    depth, part = 0, ""
    for letter in text:
        depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            yield part
            part = ""
        else:
            part += letter
    if part.strip():
        yield part
