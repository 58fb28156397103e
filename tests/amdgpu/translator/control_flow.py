"""Steps of instructions that say what comes next, and of those that mean nothing where nothing is
late: waits, hints, caches."""
import re

from step import StepWriter

_CONDITIONS = {"s_branch": "true", "s_cbranch_scc0": "!w.scc", "s_cbranch_scc1": "w.scc",
               "s_cbranch_vccz": "mask<lanes>(w, vcc_register) == 0",
               "s_cbranch_vccnz": "mask<lanes>(w, vcc_register) != 0",
               "s_cbranch_execz": "w.exec() == 0", "s_cbranch_execnz": "w.exec() != 0"}
# Words between functions disassemble to the first; nobody should come there.
_FAILURES = {"v_illegal": "runs into what is no instruction", "s_trap": "is a trap"}
_NOTHING = re.compile(
    r"s_(nop|waitcnt.*|wait_\w+|clause|delay_alu|inst_prefetch|set_inst_prefetch_distance|sleep|setprio"
    r"|icache_inv|dcache_\w+|sendmsg)$"
    r"|buffer_(wbl2|inv|gl0_inv|gl1_inv|wbinvl1|wbinvl1_vol)$")


def step_of(instruction, index_at):
    """`index_at`: {address: index of the step there}. None where it is no such instruction."""
    name = instruction.name
    writer = StepWriter(instruction)
    if _NOTHING.match(name):
        writer.modifiers = {}
        return writer.finish()
    if name in _CONDITIONS:
        away = int(instruction.operands[0])
        target = instruction.following + 4 * (away - 0x10000 if away >= 0x8000 else away)
        if target not in index_at:
            raise writer.unknown("to where no instruction is")
        writer.inside.append(f"if ({_CONDITIONS[name]}) w.next = {writer.number(index_at[target])};")
    elif name == "s_endpgm":
        writer.inside.append("w.state = State::ended;")
    elif name in _FAILURES:
        writer.inside.append(f'w.fail("{_FAILURES[name]}");')
    elif name == "s_barrier":
        writer.inside.append("w.state = State::at_barrier;")
    elif name in ("s_getpc_b64", "s_setpc_b64", "s_swappc_b64"):
        _write_jump(writer, name)
    else:
        return None
    return writer.finish()


def _write_jump(writer, name):
    operands = writer.operands()
    if name != "s_getpc_b64":
        writer.inside.append(f"const u64 to = {writer.value('u64', operands[-1])};")
    if name != "s_setpc_b64":
        following = writer.number(writer.instruction.following)
        writer.inside.append(f"put_scalar<u64>(w, {writer.number(operands[0].number)}, w.base + {following});")
    if name != "s_getpc_b64":
        writer.inside.append("w.jump(to);")
