"""`data.util.nest`: structures of tuples and dicts alone, in which a list is a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import lockstep.compat.tensorflow as tf
from lockstep.compat.tensorflow.nest import assert_same_structure as assert_same_structure
from tests.conformance.absent import Absent


def is_nested(structure: Any) -> bool:
    # A shape, which is a tuple here, is a leaf.
    return isinstance(structure, (tuple, Mapping)) and not isinstance(structure, tf.TensorShape)


def flatten(structure: Any) -> list[Any]:
    return flatten_up_to(structure, structure)


def flatten_up_to(shallow_tree: Any, input_tree: Any) -> list[Any]:
    """Returns the parts of a structure that stand where another one, which is shallower, has its leaves."""
    if not is_nested(shallow_tree):
        return [input_tree]
    pairs = zip(_values(shallow_tree), _values(input_tree), strict=True)
    return [leaf for shallow, deep in pairs for leaf in flatten_up_to(shallow, deep)]


def map_structure(func: Callable[..., Any], *structure: Any, **kwargs: Any) -> Any:
    return map_structure_up_to(structure[0], func, *structure)


def map_structure_up_to(shallow_tree: Any, func: Callable[..., Any], *inputs: Any) -> Any:
    results = [func(*leaves) for leaves in zip(*(flatten_up_to(shallow_tree, i) for i in inputs), strict=True)]
    return pack_sequence_as(shallow_tree, results)


def pack_sequence_as(structure: Any, flat_sequence: Any) -> Any:
    return _pack(structure, iter(flat_sequence))


def _values(structure: Any) -> list[Any]:
    return [structure[key] for key in sorted(structure)] if isinstance(structure, Mapping) else list(structure)


def _pack(structure: Any, leaves: Any) -> Any:
    if isinstance(structure, Mapping):
        packed = {key: _pack(structure[key], leaves) for key in sorted(structure)}
        return type(structure)((key, packed[key]) for key in structure)  # pyright: ignore[reportCallIssue]
    if isinstance(structure, tuple):
        parts = [_pack(part, leaves) for part in structure]
        return type(structure)(*parts) if hasattr(structure, "_fields") else tuple(parts)
    return next(leaves)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return Absent("internal", f"tensorflow.python.data.util.nest.{name}")
