"""The sentences of the C library with this package's names, and the words of programs with the library's.

_library makes exceptions with it, and Comm.explain asks with it. Pure; any thread may call.
"""
import re

# Names of operations that differ from the library's, which have no underscore.
OPERATIONS = {name.replace("_", ""): name for name in ("bit_and", "bit_or", "bit_xor", "logical_and", "logical_or", "logical_xor", "min_loc",
                                                     "max_loc")}
OPERATION = re.compile(rf"\b({'|'.join(OPERATIONS)})\b")
CHOSEN_OPERATION = re.compile(rf"\bop=({'|'.join(OPERATIONS.values())})\b")
# Arguments of calls. Longer sentences, which tell of failures on other ranks, begin with other words.
ARGUMENTS = [(re.compile(r"^send \((.*?)\) and recv \((.*?)\) overlap"), r"x (\1) and out (\2) overlap"),
             (re.compile(r"^peer is (\d+), this rank itself; qcclSendRecv "), r"rank \1 is this rank itself; send_recv ")]


def in_python(sentence):
    for of_c, of_python in ARGUMENTS:
        sentence = of_c.sub(of_python, sentence)
    return OPERATION.sub(lambda found: OPERATIONS[found[1]], sentence)


def in_c(question):
    """A question for qcclExplain, whose operations have their names in Python or in C."""
    return CHOSEN_OPERATION.sub(lambda found: found[0].replace("_", ""), question)
