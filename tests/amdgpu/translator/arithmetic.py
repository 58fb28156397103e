"""Steps of instructions that compute, from the tables of scalar and vector instructions."""
import instruction_table
from step import StepWriter, mentions

SCALAR = instruction_table.read("scalar")
VECTOR = instruction_table.read("vector")
_OUTPUT_FACTORS = (("mul", "2", "2"), ("mul", "4", "4"), ("div", "2", "0.5"))
_NOT_PRINTED = {"scc", "exec"}


def step_of(instruction):
    """None where the tables do not have the instruction."""
    name = instruction.name.replace("v_cmpx_", "v_cmp_")
    if name == "fetch":
        return _fetch_step(instruction)
    if name in SCALAR:
        return _scalar_step(instruction, SCALAR[name])
    if "clamp" in instruction.modifiers and name + ".clamp" in VECTOR:
        return _vector_step(instruction, VECTOR[name + ".clamp"], clamps=True)
    return _vector_step(instruction, VECTOR[name]) if name in VECTOR else None


def _without_mark(kind):
    return kind.rstrip("+!")


def _scalar_step(instruction, row):
    writer = StepWriter(instruction)
    operands = writer.operands()
    printed = [kind for kind in row.left if kind not in _NOT_PRINTED]
    if len(operands) != len(printed) + len(row.right):
        raise writer.unknown("another number of operands")
    _name_masks(writer, row)
    for letter, kind, operand in zip("abc", row.right, operands[len(printed):]):
        writer.inside.append(f"const auto {letter} = {writer.value(kind, operand)};")
    targets = iter(operands)
    for letter, kind, expression in zip("def", row.left, row.expressions):
        if kind == "scc":
            writer.inside.append(f"const bool {letter} = ({expression}) != 0;")
            writer.after.append(f"w.scc = {letter};")
        elif kind == "exec":
            writer.inside.append(f"const auto {letter} = static_cast<{row.left[0]}>({expression});")
            writer.after.append(f"put_exec(w, {letter});")
        else:
            register = writer.number(next(targets).number)
            plain = _without_mark(kind)
            old = f"scalar<{plain}>(w, {register})" if kind.endswith("+") else ""
            writer.inside += [f"{plain} {letter}{{{old}}};", f"{letter} = static_cast<{plain}>({expression});"]
            writer.after.append(f"put_scalar<{plain}>(w, {register}, {letter});")
    return writer.finish()


def _name_masks(writer, row):
    for name, value in (("scc", "const bool scc = w.scc;"), ("exec", "const u64 exec = w.exec();"),
                        ("count", "constexpr u32 count = lanes;")):
        if mentions(name, row.expressions):
            writer.before.append(value)
    if mentions("offset", row.expressions):
        writer.before.append(f"const u64 offset = {writer.offset()};")


def _vector_step(instruction, row, clamps=False):
    writer = StepWriter(instruction)
    if clamps:
        writer.take("clamp")
    operands = writer.operands()
    is_cmpx = instruction.name.startswith("v_cmpx_")
    prints_target = not is_cmpx or len(operands) > len(row.right)  # newer machines do not, for v_cmpx
    if len(operands) != len(row.left) * prints_target + len(row.right):
        raise writer.unknown("another number of operands")
    loop = "w.exec() & w.reached" if writer.take("reached") is not None else "w.exec()"
    _name_masks(writer, row)
    if mentions("vcc", row.expressions):
        writer.inside.append("const bool vcc = lane_bit(w, vcc_register, lane);")
    for letter, kind, operand in zip("abc", row.right, operands[len(row.left) * prints_target:]):
        _read(writer, letter, kind, operand)
    if row.section == "once":
        return _once(writer, row, operands)
    targets = operands if prints_target else [None]
    for letter, kind, expression, target in zip("def", row.left, row.expressions, targets):
        _write(writer, row, letter, kind, expression, target)
    if is_cmpx:
        writer.after.append("put_exec(w, d);")
    return writer.finish(loop)


def _read(writer, letter, kind, operand):
    if kind == "mask":
        if operand.kind != "s":
            raise writer.unknown("a constant mask")
        writer.inside.append(f"const bool {letter} = lane_bit(w, {writer.number(operand.number)}, lane);")
    elif kind == "lanes":
        if operand.kind != "v":
            raise writer.unknown("lanes of what is no vector register")
        writer.before.append(f"const Lanes {letter} = w.v[{writer.number(operand.number)}];")
    else:
        writer.inside.append(f"const auto {letter} = {writer.value(kind, operand)};")


def _write(writer, row, letter, kind, expression, target):
    """Computes a result and puts it where it belongs."""
    plain = _without_mark(kind)
    if plain == "mask":
        writer.before.append(f"u64 {letter} = 0;")
        writer.inside.append(f"{letter} |= u64{{({expression}) != 0}} << lane;")
        if target is not None:
            writer.after.append(f"put_mask<lanes>(w, {writer.number(target.number)}, {letter});")
        return
    register = writer.number(target.number)
    where = f"w, {register}, lane" + ("" if target.shift is None else f", {target.shift}")
    access = "vector" if target.shift is None else "part"
    old = f"{access}<{plain}>({where})" if kind.endswith("+") else ""
    writer.inside += [f"Value<{plain}> {letter}{{{old}}};",
                      f"{letter} = static_cast<Value<{plain}>>({_settled(row, kind, expression)});"]
    for name, text, factor in _OUTPUT_FACTORS:
        if plain[0] == "f" and writer.modifiers.get(name) == text:
            writer.take(name)
            writer.inside.append(f"{letter} *= {factor};")
    if plain[0] == "f" and writer.take("clamp") is not None:
        writer.inside.append(f"{letter} = clamp({letter});")
    writer.inside.append(f"put_{access}<{plain}>({where}, {letter});")


def _settled(row, kind, expression):
    """Where all floats have one format, a NaN that comes in goes out."""
    floats = [source for source in row.right if source in ("f16", "f32", "f64")]
    plain = _without_mark(kind)
    if kind.endswith("!") or not floats or set(floats) != {plain}:
        return expression
    same = [letter for letter, source in zip("abc", row.right) if source == plain]
    return f"settle<Value<{plain}>>({', '.join([expression, *same, *(['d'] if kind.endswith('+') else [])])})"


def _once(writer, row, operands):
    """For the whole wave: one lane's value into a scalar register, or the reverse."""
    target = writer.number(operands[0].number)
    if row.left == ["lane"]:
        value, lane = row.expressions
        writer.inside.append(f"w.v[{target}][{lane}] = {value};")
    else:
        access = "put_scalar" if operands[0].kind == "s" else None
        if access is None:
            raise writer.unknown("a vector register for a scalar")
        writer.inside.append(f"{access}<{row.left[0]}>(w, {target}, {row.expressions[0]});")
    return writer.finish()


def _fetch_step(instruction):
    writer = StepWriter(instruction)
    pattern = writer.take("pattern")
    to, source = (writer.number(operand.number) for operand in writer.operands())
    how = f"{{.zero_outside = {str(pattern.zero_outside).lower()}, .from_all = {str(pattern.from_all).lower()}}}"
    writer.inside.append(f"fetch<lanes>(w, {to}, {source}, {pattern.literal()}, {how});")
    return writer.finish()
