"""Variables that a launcher sets."""

from __future__ import annotations

import os
import re

from ._field import MISSING, Field
from ._task import MOST_TASKS

_DECIMAL = re.compile(r"[0-9]{1,9}")


def variable(name: str) -> Field:
    """Returns an environment variable, with `MISSING` as its value where it is not set or empty."""
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
