"""Which batches are profiled."""

from __future__ import annotations

from typing import Any

from lockstep.errors import ArgumentError


def batch_range(profile_batch: Any) -> tuple[int, int] | None:
    """Returns the first and the last batch to profile, counted from 1, or None for none.

    Args:
        profile_batch: A number, a pair of numbers, or a text `"first,last"`; 0 for none.

    Raises:
        ArgumentError: If it is something else.
    """
    first, last = _pair(profile_batch)
    if (first, last) == (0, 0):
        return None
    if not 0 < first <= last:
        raise _wrong(profile_batch)
    return first, last


def _pair(given: Any) -> tuple[int, int]:
    parts = given.split(",") if isinstance(given, str) else given
    parts = [parts, parts] if isinstance(parts, int) else list(parts) if isinstance(parts, (list, tuple)) else []
    if len(parts) == 1:
        parts *= 2
    try:
        first, last = (int(part) for part in parts)
    except (TypeError, ValueError):
        raise _wrong(given) from None
    return first, last


def _wrong(given: Any) -> ArgumentError:
    return ArgumentError(
        "profile_batch is 0, the number of a batch from 1 on, or a pair of first and last batch: received "
        f"{given!r}. Leave it out to profile nothing."
    )
