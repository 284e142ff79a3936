"""Values between a notebook and its tasks: plain ones as JSON, arrays as numpy's own format, nothing pickled."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from lockstep.errors import ArgumentError

_SCALARS = (bool, int, float, str, type(None))
_STRUCTURE = "structure"


def is_plain(value: Any) -> bool:
    """Returns whether a value can be shipped: numbers, texts, arrays, and lists, tuples and dicts of them."""
    try:
        _encode(value, {}, "")
    except ArgumentError:
        return False
    return True


def save(path: Path, value: Any, what: str) -> None:
    """Writes a value to a file; `what` names it in errors.

    Raises:
        ArgumentError: If it is not plain.
    """
    import numpy as np

    arrays: dict[str, Any] = {}
    structure = json.dumps(_encode(value, arrays, what))
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with partial.open("wb") as file:
        np.savez(file, **{_STRUCTURE: np.array(structure)}, **arrays)
    os.replace(partial, path)


def load(path: Path) -> Any:
    """Returns the value in a file."""
    import numpy as np

    # numpy's default, said all the same: an array of objects is a pickle, which would run what it holds.
    with np.load(path, allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    return _decode(json.loads(str(arrays.pop(_STRUCTURE))), arrays)


def _encode(value: Any, arrays: dict[str, Any], what: str) -> Any:
    # Each kind in a list of its own: JSON has neither tuples nor keys that are numbers.
    # By the exact type: numpy's float64 is a float to isinstance, and would come back as Python's.
    if type(value) in _SCALARS:
        return value
    if isinstance(value, list | tuple) and type(value) in (list, tuple):
        return [type(value).__name__, [_encode(part, arrays, what) for part in value]]
    if type(value) is dict:
        return ["dict", [[_encode(k, arrays, what), _encode(v, arrays, what)] for k, v in value.items()]]
    if hasattr(value, "__array__") and hasattr(value, "dtype"):
        import numpy as np

        array = np.asarray(value)
        if array.dtype.kind in "biufcUS":
            name = f"array_{len(arrays)}"
            arrays[name] = array
            return ["array", name]
    raise ArgumentError(
        "Between a notebook and its tasks go numbers, texts, arrays, and lists, tuples and dicts of them. Received: "
        f"{what}, which holds a {type(value).__name__}. Give its parts, such as model.get_weights() or history.history."
    )


def _decode(value: Any, arrays: dict[str, Any]) -> Any:
    if not isinstance(value, list):
        return value
    kind, content = value
    if kind == "array":
        # A number of numpy comes back as one.
        return arrays[content][()]
    if kind == "dict":
        return {_decode(key, arrays): _decode(part, arrays) for key, part in content}
    parts = [_decode(part, arrays) for part in content]
    return tuple(parts) if kind == "tuple" else parts
