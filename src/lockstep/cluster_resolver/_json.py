"""JSON as its standard has it, read so that everything wrong with a text is one kind of error."""

from __future__ import annotations

import json
from typing import NoReturn

from ._field import Field, quoted


def read_json(field: Field, example: str) -> object:
    """Returns the value that the JSON text in `field` holds.

    Raises:
        ClusterSpecError: It is no text, not JSON, repeats a key in one object, has NaN or Infinity (which are not
            JSON), or is nested too deeply to be read.
    """
    if not isinstance(field.value, str):
        raise field.error("must be JSON text", example)
    try:
        return json.loads(field.value, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise field.error("must be JSON that is not nested so deeply", example) from None
    except ValueError as error:
        raise field.error(f"must be JSON: {error}", example) from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"key {quoted(key)} must not occur twice in one object")
        members[key] = value
    return members


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
