"""Named values as they were received, and readers of JSON and of environment variables that give them."""

from __future__ import annotations

import json
import os
import re
import reprlib
from dataclasses import dataclass
from typing import Final, NoReturn

from lockstep.errors import ClusterSpecError

# Far above any cluster, and low enough that a list with one entry per index is no danger to memory.
MOST_TASKS: Final = 100_000
# Characters of a received value that a message shows: two lines of a terminal.
_LONGEST = 160
# Nine digits at most: int() of a hostile variable stays quick, and the comparison with a limit does the rest.
_DECIMAL = re.compile(r"[0-9]{1,9}")


# A plain repr() of a list of a million addresses takes seconds and megabytes before it is cut.
_SHORT: Final = reprlib.Repr()
_SHORT.maxlevel = 5
_SHORT.maxstring = _SHORT.maxother = 100
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 8


class _Missing:
    def __repr__(self) -> str:
        return "nothing (it is missing)"


MISSING: Final = _Missing()


@dataclass(frozen=True)
class Field:
    """A value as it was received, with the name under which the user knows it."""

    name: str
    value: object

    def item(self, key: object, value: object) -> Field:
        """Returns what stands under `key` in this field: `cluster["worker"]`, `cluster["worker"][1]`."""
        label = quote(key) if isinstance(key, str) and len(key) <= _LONGEST else shown(key)
        return Field(f"{self.name}[{label}]", value)

    def error(self, rule: str, example: object) -> ClusterSpecError:
        """Returns the error that says what this field must be.

        Args:
            rule: What holds for the field, as the rest of a sentence that starts with its name.
            example: A correct value, in the notation in which the user writes it.
        """
        return ClusterSpecError(f"{self.name} {rule}.\nReceived: {shown(self.value)}\nCorrect example: {example}")


def shown(value: object) -> str:
    """Returns `repr(value)`, cut to a length that fits a message, whatever the value is."""
    try:
        text = _SHORT.repr(value)
    # repr() of an integer of 5000 digits raises ValueError, and that of a user's class may raise anything.
    except Exception:
        return f"<{type(value).__name__} that cannot be printed>"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def quote(text: str) -> str:
    """Returns `text` as both Python and JSON write it."""
    return json.dumps(text)


def list_names(names: list[str]) -> str:
    """Returns `names` as a message lists them: "chief", "worker"."""
    return ", ".join(quote(name) for name in names) or "none"


def read_json(field: Field, example: str) -> object:
    """Returns the value that the JSON text in `field` holds; everything wrong with it is a `ClusterSpecError`."""
    if not isinstance(field.value, str):
        raise field.error("must be JSON text", example)
    try:
        # Python's parser takes repeated keys, of which the last wins, and NaN and Infinity, which are not JSON. A
        # cluster with two "worker" lists is a mistake that must not be decided in silence.
        return json.loads(field.value, object_pairs_hook=_unique_members, parse_constant=_refuse_constant)
    # Python's parser recurses, so brackets without end exhaust its stack instead of being a syntax error.
    except RecursionError:
        raise field.error("must be JSON that is not nested so deeply", example) from None
    except ValueError as error:
        raise field.error(f"must be JSON: {error}", example) from None


def _unique_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"key {quote(key)} must not occur twice in one object")
        members[key] = value
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def variable(name: str) -> Field:
    """Returns an environment variable, with `MISSING` as its value where it is not set or empty."""
    # Pod templates and batch scripts write NAME= for a variable that they do not mean to set.
    return Field(name, os.environ.get(name) or MISSING)


def first_variable(*names: str) -> Field:
    """Returns the first of several variables that is set, or the first of all, which is then missing."""
    fields = [variable(name) for name in names]
    return next((field for field in fields if field.value is not MISSING), fields[0])


def check_set(field: Field, example: str) -> str:
    """Returns the text of a variable; raises `ClusterSpecError` if it is not set."""
    if not isinstance(field.value, str):
        raise field.error("must be set, as its launcher does", f"{field.name}={example}")
    return field.value


def check_number(field: Field, lowest: int = 0) -> int:
    """Returns the number in a variable; raises `ClusterSpecError` unless it is from `lowest` to 100000."""
    text = check_set(field, str(lowest))
    if not _DECIMAL.fullmatch(text) or not lowest <= int(text) <= MOST_TASKS:
        raise field.error(f"must be a whole number from {lowest} to {MOST_TASKS}", f"{field.name}={lowest}")
    return int(text)


def check_rank(field: Field, size: int, size_name: str) -> int:
    """Returns the rank in a variable; raises `ClusterSpecError` unless it is below `size`, that of `size_name`."""
    rank = check_number(field)
    if rank >= size:
        raise field.error(f"must be less than {size_name}, which is {size}", f"{field.name}=0")
    return rank
