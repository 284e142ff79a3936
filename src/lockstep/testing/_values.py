"""Arguments and results of tasks as files: JSON for the structure, npz for the arrays. Nothing is unpickled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from lockstep._types import PyTree
from lockstep.errors import ArgumentError

_STRUCTURE = "structure"
# By exact type: a subclass, such as an enum or numpy's float64, would come back as another type.
_PLAIN = (bool, int, float, str)


def save(path: Path, value: object, what: str) -> None:
    """Writes a value; raises `ArgumentError`, in which `what` names it, if something in it cannot travel."""
    arrays: list[np.ndarray] = []
    structure = _encode(value, what, arrays)
    text = np.frombuffer(json.dumps(structure).encode(), np.uint8)
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **{_STRUCTURE: text}, **{str(i): array for i, array in enumerate(arrays)})


def load(path: Path) -> Any:
    """Reads what `save` has written. Arrays are numpy's, whatever they were."""
    with np.load(path, allow_pickle=False) as file:
        return _decode(json.loads(file[_STRUCTURE].tobytes()), file)


def _encode(value: object, what: str, arrays: list[np.ndarray]) -> Any:
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, Path):
        return {"path": str(value)}
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str | int):
                raise _travel_error(f"the key {key!r} of {what}", type(key).__name__)
        return {"dict": [[k, _encode(v, f"{what}[{k!r}]", arrays)] for k, v in value.items()]}
    if type(value) in (list, tuple) and isinstance(value, Sequence):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_encode(v, f"{what}[{i}]", arrays) for i, v in enumerate(value)]}
    if isinstance(value, bytes):
        return {"bytes": _add_array(np.frombuffer(value, np.uint8), arrays)}
    if hasattr(value, "__array__"):
        return _encode_array(value, what, arrays)
    raise _travel_error(what, type(value).__name__)


def _encode_array(value: PyTree, what: str, arrays: list[np.ndarray]) -> Any:
    found = np.asarray(value)
    if found.dtype.hasobject:
        raise _travel_error(what, "an array of Python objects")
    kind = "scalar" if isinstance(value, np.generic) else "array"
    # npz writes bfloat16 as two bytes without a name: the name and the shape go beside the bytes.
    raw = np.frombuffer(found.tobytes(), np.uint8) if hasattr(ml_dtypes, found.dtype.name) else found
    return {kind: _add_array(raw, arrays), "dtype": found.dtype.name, "shape": list(found.shape)}


def _add_array(array: np.ndarray, arrays: list[np.ndarray]) -> int:
    arrays.append(array)
    return len(arrays) - 1


def _travel_error(what: str, found: str) -> ArgumentError:
    return ArgumentError(
        "Between the test and its tasks travel None, numbers, text, bytes, paths, arrays, and lists, tuples and "
        f"dictionaries of them. Here {what} is {found}. Pass what it is made from, or return what the test compares."
    )


def _decode(value: PyTree, file: Any) -> Any:
    if not isinstance(value, dict):
        return value
    kind, inner = next(iter(value.items()))
    if kind == "path":
        return Path(inner)
    if kind == "dict":
        return {k: _decode(v, file) for k, v in inner}
    if kind == "bytes":
        return file[str(inner)].tobytes()
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(_decode(v, file) for v in inner)
    found = file[str(inner)]
    # Kept as bytes: a type of ml_dtypes.
    if found.dtype.name != value["dtype"]:
        found = np.frombuffer(found.tobytes(), getattr(ml_dtypes, value["dtype"])).reshape(value["shape"])
    return found[()] if kind == "scalar" else found
