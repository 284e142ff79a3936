"""Arrays of any kind, copied to the host's memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.checkpoint._dtypes import text_of
from lockstep.checkpoint._members import LONGEST, member_of
from lockstep.errors import ArgumentError

_ALIGNMENT = 64


def copied(arrays: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Returns copies that nobody else changes; all transfers from devices are under way before the first is awaited.

    Raises:
        ArgumentError: If a key is not text, or a value not an array that can be kept in a file.
    """
    for key, value in arrays.items():
        _check_key(key)
        if start := getattr(value, "copy_to_host_async", None):
            _attempt(key, start)
    # On a CPU, jax hands out its own buffer, which a step may be given to write to: always copied.
    found = {key: _on_host(key, value) for key, value in arrays.items()}
    places = _places(list(found.values()))
    for place, array in zip(places, found.values(), strict=True):
        np.copyto(place, array)
    return dict(zip(found, places, strict=True))


def _places(arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Returns new arrays of the same shapes, in one piece of memory: the system hands that out faster than many."""
    starts = [0, *itertools.accumulate(-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays)]
    memory = np.empty(starts[-1], np.uint8)
    return [
        np.ndarray(array.shape, array.dtype, buffer=memory.data, offset=start)
        for array, start in zip(arrays, starts, strict=False)
    ]


def _on_host(key: str, value: Any) -> NDArray[Any]:
    array: NDArray[Any] = _attempt(key, lambda: np.asarray(value))
    if text_of(array.dtype) is None:
        raise ArgumentError(
            f"Checkpoints keep arrays of numbers, truth values, text of fixed length and times; variable {key!r} has "
            f"dtype {array.dtype}. Convert it, or keep it in `extra` as JSON."
        )
    return array


def _attempt(key: str, work: Any) -> Any:
    try:
        return work()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(
            f"The value of variable {key!r} cannot be copied to the host ({error}). Pass a numpy array, or a jax array "
            "of this process that is still alive (not donated to a step)."
        ) from error


def _check_key(key: Any) -> None:
    if not isinstance(key, str):
        raise ArgumentError(f"Variables are saved by names, which are text; {key!r:.80} is {type(key).__name__}.")
    if (length := len(member_of(key).encode())) > LONGEST:
        raise ArgumentError(f"A variable's name has at most {LONGEST} bytes; {key[:40]!r}... has {length}.")
