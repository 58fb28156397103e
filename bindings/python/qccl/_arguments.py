"""Checks of numbers and texts, whose errors name the argument. ctypes would refuse them without a name, or cut them to its size.

Every module uses it that hands such arguments to the C library. Pure; any thread may call.
"""
from __future__ import annotations

import operator
from typing import Any

from . import _errors

INT_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1


def whole(value: Any, name: str, what: str, least: int = -INT_MAX - 1, most: int = INT_MAX, *, hint: str = "") -> int:
    """The int that `value` is: an int, or an integer of another library. what, hint: parts of the error's sentence."""
    try:
        number = operator.index(value)
        if least <= number <= most:
            return number
    except TypeError:
        number = 0
    is_usual = most in (INT_MAX, INT64_MAX, UINT64_MAX) and number <= most
    limits = f" from {least} to {most}" if not is_usual else f" of {least} or more" if least >= 0 else ""
    raise _errors.InvalidArgument(f"{name}: {value!r} is no {what}; pass an int{limits}{hint}")


def rank(value: Any, name: str, size: int) -> int:
    """A rank of a communicator of `size` ranks."""
    return value if value.__class__ is int and 0 <= value < size else whole(value, name, "rank", 0, size - 1)


def seconds(value: Any, name: str) -> float:
    try:
        if not isinstance(value, (str, bytes)):  # of which float() would make a number
            return float(value)
    except (TypeError, ValueError):
        pass
    raise _errors.InvalidArgument(f"{name}: {value!r} is no number of seconds; pass an int or a float")


def text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise _errors.InvalidArgument(f"{name}: a text is expected, not {value!r}")
    if "\0" in value:  # where C would end it
        raise _errors.InvalidArgument(f"{name}: {value!r} has a character with the number 0")
    return value


def function(value: Any, name: str) -> Any:
    if not callable(value):
        raise _errors.InvalidArgument(f"{name}: a function is expected, not {value!r}")
    return value
