"""Structures of arguments and results of saved functions, as JSON has them.

A tensor is `{"tensor": number, "shape": [...], "dtype": "float32"}`, `null` in place of sizes and shapes that are open;
what is the same in each call is `{"value": ...}`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep._types import JSON
from lockstep.compat.tensorflow._ops.create import convert_to_tensor
from lockstep.compat.tensorflow._types import Argument
from lockstep.errors import UnsupportedError

_PLAIN = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Slot:
    """Place of a tensor among the arguments or results of a function.

    Attributes:
        number: Its place among the tensors.
        shape: Its sizes, `None` for those that are open, or for all.
        dtype: The name of its type.
    """

    number: int
    shape: Sequence[int | None] | None
    dtype: str


def encode(value: Argument) -> Any:
    """Returns a structure with a `Slot` for each tensor as JSON.

    Raises:
        UnsupportedError: If there is something in it that is neither a tensor nor a plain value.
    """
    if isinstance(value, Slot):
        shape = None if value.shape is None else list(value.shape)
        return {"tensor": value.number, "shape": shape, "dtype": value.dtype}
    if isinstance(value, Mapping):
        return {"dict": {str(key): encode(part) for key, part in value.items()}}
    if isinstance(value, (list, tuple)):
        return {"list" if isinstance(value, list) else "tuple": [encode(part) for part in value]}
    if isinstance(value, _PLAIN):
        return {"value": value}
    raise UnsupportedError(
        f"A saved function takes and returns tensors, and numbers and text that stay the same. Received: {value!r:.80}."
    )


def decode(document: JSON, tensor: Callable[[Slot], Any]) -> Any:
    """Returns a structure of JSON with what a function makes of each tensor's slot."""
    if "tensor" in document:
        return tensor(Slot(document["tensor"], document["shape"], document["dtype"]))
    if "dict" in document:
        return {key: decode(part, tensor) for key, part in document["dict"].items()}
    if "value" in document:
        return document["value"]
    parts = [decode(part, tensor) for part in document.get("list", document.get("tuple"))]
    return parts if "list" in document else tuple(parts)


def encode_signature(signature: inspect.Signature) -> list[dict[str, Any]]:
    """Returns a function's parameters as JSON."""
    return [
        {"name": p.name, "kind": p.kind.name, **({} if p.default is p.empty else {"default": encode(p.default)})}
        for p in signature.parameters.values()
    ]


def decode_signature(document: JSON) -> inspect.Signature:
    """Returns a function's parameters."""

    def default(one: Any) -> Any:
        return decode(one["default"], lambda slot: slot) if "default" in one else inspect.Parameter.empty

    kinds = {kind.name: kind for kind in type(inspect.Parameter.KEYWORD_ONLY)}
    return inspect.Signature([inspect.Parameter(p["name"], kinds[p["kind"]], default=default(p)) for p in document])


def match(document: JSON, value: Argument, arrays: dict[int, Any]) -> bool:
    """Returns whether a value fits a structure of JSON, and keeps its tensors by their numbers."""
    if "tensor" in document:
        array = _fit(document, value)
        arrays[document["tensor"]] = array
        return array is not None
    if "dict" in document:
        parts = document["dict"]
        is_same = isinstance(value, Mapping) and set(value) == set(parts)
        return is_same and all(match(part, value[key], arrays) for key, part in parts.items())
    if "value" in document:
        known = document["value"]
        # A flag that is left open is off, as `training=None`.
        return (known is False and value is None) or (type(value) is type(known) and value == known)
    parts = document.get("list", document.get("tuple"))
    is_same = isinstance(value, (list, tuple)) and len(value) == len(parts)
    return is_same and all(match(part, one, arrays) for part, one in zip(parts, value, strict=True))


def _fit(document: JSON, value: Argument) -> Any:
    wanted = document["dtype"]
    try:
        array = convert_to_tensor(value, None if hasattr(value, "dtype") else wanted)
    except (TypeError, ValueError):
        return None
    shape = document["shape"]
    sizes = tuple(array.shape)
    is_fit = shape is None or (
        len(sizes) == len(shape) and all(w in (None, size) for w, size in zip(shape, sizes, strict=True))
    )
    # Types are JAX's: 64 bits stand for 32.
    return convert_to_tensor(array, wanted) if is_fit and _kind(array.dtype) == _kind(wanted) else None


def _kind(dtype: Any) -> str:
    name = str(getattr(dtype, "name", dtype))
    return name.rstrip("0123456789") if name in ("float32", "float64", "int32", "int64", "uint32", "uint64") else name
