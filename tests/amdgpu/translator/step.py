"""A step of the translated program: a C++ function, and the numbers that it is called with. Steps of
the same text share a function."""
import dataclasses
import functools
import re

from operand import NULL, Operand

BITS = {"b16": 16, "u16": 16, "i16": 16, "f16": 16, "bf16": 16, "b32": 32, "u32": 32, "i32": 32, "f32": 32,
        "b64": 64, "u64": 64, "i64": 64, "f64": 64}
MOST_NUMBERS = 6


class Unknown(Exception):
    """An instruction that is not known, or not like this; the text is its name and why."""


@dataclasses.dataclass
class Step:
    body: str
    numbers: list


class StepWriter:
    """Collects the body of a step and the numbers that it is called with."""

    def __init__(self, instruction):
        self.instruction = instruction
        self.modifiers = dict(instruction.modifiers)
        self.numbers = []
        self.before, self.inside, self.after = [], [], []

    def unknown(self, why):
        return Unknown(f"{self.instruction.mnemonic} ({why})")

    def number(self, value):
        """How the body calls one of its numbers."""
        self.numbers.append(value)
        return f"s.o[{len(self.numbers) - 1}]"

    def operands(self):
        try:
            return [Operand.parse(text) for text in self.instruction.operands]
        except ValueError as error:
            raise self.unknown(str(error)) from error

    def take(self, name, default=None):
        """The text of a modifier, which is then dealt with."""
        return self.modifiers.pop(name, default)

    def offset(self):
        return self.number(int(self.take("offset", "0"), 0) & (1 << 64) - 1)

    def value(self, kind, operand):
        """C++ for an operand's value, with the signs that it is to have."""
        return _signed(kind, operand, self._plain_value(kind, operand))

    def _plain_value(self, kind, operand):
        if operand.kind == "k":
            return f"constant<{kind}>({self.number(operand.constant(kind, BITS[kind]))})"
        if operand.kind == "s" and operand.number == NULL:
            return f"constant<{kind}>(0)"
        if operand.kind == "off":
            raise self.unknown("an operand that has no value")
        register = self.number(operand.number)
        where = f"w, {register}, lane" if operand.kind == "v" else f"w, {register}"
        if operand.shift is not None:
            return f"{'part' if operand.kind == 'v' else 'scalar_part'}<{kind}>({where}, {operand.shift})"
        return f"{'vector' if operand.kind == 'v' else 'scalar'}<{kind}>({where})"

    def finish(self, loop=None):
        """The step; `inside` is done for each lane of the mask `loop`, if there is one."""
        if self.modifiers:
            raise self.unknown("modifier " + " ".join(sorted(self.modifiers)))
        if len(self.numbers) > MOST_NUMBERS:
            raise self.unknown("so many operands")
        inside = self.inside
        if loop is not None:
            inside = [f"each_lane<lanes>({loop}, [&]([[maybe_unused]] unsigned lane) {{",
                      *["    " + line for line in inside], "});"]
        return Step("\n".join("    " + line for line in [*self.before, *inside, *self.after]), self.numbers)


def _signed(kind, operand, value):
    if not (operand.negate or operand.magnitude):
        return value
    if kind[0] == "f":
        value = f"magnitude({value})" if operand.magnitude else value
        return f"-{value}" if operand.negate else value
    sign = f"(u{BITS[kind]}(1) << {BITS[kind] - 1})"
    value = f"({value} & ~{sign})" if operand.magnitude else value
    return f"({value} ^ {sign})" if operand.negate else value


def mentions(word, expressions):
    return any(_mentions(word, expression) for expression in expressions)


@functools.cache  # the tables have few expressions, and programs have many instructions of each
def _mentions(word, expression):
    return re.search(rf"\b{word}\b", expression) is not None
