"""What may be kept beside the arrays: JSON, checked before it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from lockstep.errors import ArgumentError


def snapshot(extra: Any) -> dict[str, Any]:
    """Returns a copy of `extra`, as it will be read again.

    Raises:
        ArgumentError: If something in it is not JSON.
    """
    if not isinstance(extra, Mapping):
        raise ArgumentError(f"What is kept beside the arrays is a dict of JSON values; got {extra!r:.80}.")
    try:
        _check(dict(extra), "extra")
        return json.loads(json.dumps(dict(extra)))
    except RecursionError:
        raise ArgumentError("extra is nested too deeply for JSON, or contains itself. Make it flatter.") from None


def _check(value: Any, place: str) -> None:
    if isinstance(value, dict):
        for key, inner in cast("dict[Any, Any]", value).items():
            _check_key(key, place)
            _check(inner, f"{place}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(cast("list[Any]", value)):
            _check(inner, f"{place}[{index}]")
    elif value is not None and type(value) not in (str, int, float, bool):
        raise ArgumentError(
            f"What is kept beside the arrays must be JSON (dict, list, str, int, float, bool, None); {place} is "
            f"{value!r:.80} of type {type(value).__name__}. Convert it, or save it as an array."
        )


def _check_key(key: Any, place: str) -> None:
    if not isinstance(key, str):
        raise ArgumentError(f"JSON's keys are text; {place} has the key {key!r:.80}. Use str({key!r:.80}).")
