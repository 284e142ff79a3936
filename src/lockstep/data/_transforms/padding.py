"""Makes elements of different sizes one size."""

from __future__ import annotations

import operator
from typing import Any

import jax
import numpy as np

from lockstep._nest import canonical
from lockstep.data import _spec
from lockstep.data._columns import Columns, Ragged
from lockstep.data._structure import TEXT
from lockstep.errors import ArgumentError, InputError


class Padding:
    """The sizes and values of `padded_batch`.

    Args:
        shapes: A structure of shapes like the elements', where `None` or -1 stands for the longest of the batch; or
            `None` for that everywhere.
        values: A structure of values, one value for all, or `None`: 0, or empty text.
    """

    def __init__(self, shapes: Any, values: Any) -> None:
        self._shapes = shapes
        self._values = values

    def spec(self, spec: Any) -> Any:
        """What the padded elements look like."""
        leaves, structure = jax.tree.flatten(spec)
        shapes = self._leaf_shapes(structure, leaves)
        return structure.unflatten([_spec.TensorSpec(s, leaf.dtype) for s, leaf in zip(shapes, leaves, strict=True)])

    def __call__(self, columns: Columns) -> Columns:
        """Returns columns without any that are ragged."""
        leaves, structure = jax.tree.flatten(columns)
        shapes = self._leaf_shapes(structure, leaves)
        values = self._leaf_values(structure, len(leaves))
        return structure.unflatten([_pad_column(c, s, v) for c, s, v in zip(leaves, shapes, values, strict=True)])

    def _leaf_shapes(self, structure: Any, leaves: list[Any]) -> list[Any]:
        if self._shapes is None:
            return [_free_shape(leaf) for leaf in leaves]
        given = jax.tree.leaves(canonical(self._shapes), is_leaf=_is_shape)
        if len(given) != len(leaves):
            raise ArgumentError(
                f"padded_shapes must have a shape for each of the {len(leaves)} arrays of an element. Received: "
                f"{self._shapes}. Example: ([None], [])"
            )
        return [_shape(shape) for shape in given]

    def _leaf_values(self, structure: Any, count: int) -> list[Any]:
        if self._values is None or not isinstance(self._values, (tuple, dict)):
            return [self._values] * count
        given = jax.tree.leaves(canonical(self._values), is_leaf=lambda v: v is None)
        if len(given) != count:
            raise ArgumentError(
                f"padding_values must be one value, or have one for each of the {count} arrays of an element. "
                f"Received: {self._values}."
            )
        return given


def _free_shape(leaf: Any) -> Any:
    """Returns all sizes that may differ are the longest of the batch."""
    if isinstance(leaf, Ragged):
        return (None,) * np.ndim(leaf.values[0])
    if isinstance(leaf, _spec.TensorSpec):
        if leaf.shape is None:
            raise InputError("padded_batch needs elements with a known number of axes. Give padded_shapes.")
        return leaf.shape
    return leaf.shape[1:]


def _is_shape(value: Any) -> bool:
    plain = isinstance(value, (list, tuple)) and not hasattr(value, "_fields")
    return plain and all(v is None or isinstance(v, (int, np.integer)) for v in value)


def _shape(value: Any) -> tuple[int | None, ...]:
    try:
        sizes = tuple(None if s is None or s == -1 else operator.index(s) for s in value)
    except TypeError:
        sizes = (-1,)
    if any(s is not None and s < 0 for s in sizes):
        raise ArgumentError(
            "A shape of padded_shapes must hold sizes; None or -1 stands for the largest of the batch. Received: "
            f"{value!r}. Example: [None, 3]"
        )
    return sizes


def _pad_column(column: Any, shape: tuple[int | None, ...], value: Any) -> Any:
    rows = list(column.values if isinstance(column, Ragged) else column)
    dtype = getattr(rows[0], "dtype", TEXT)
    fill = _fill_value(value, dtype)
    sizes = [np.shape(r) for r in rows]
    if any(len(s) != len(shape) for s in sizes):
        raise InputError(f"padded_shapes gives {len(shape)} axes. Received: an element of shape {sizes[0]}.")
    target = [max(s[i] for s in sizes) if n is None else n for i, n in enumerate(shape)]
    result = np.full((len(rows), *target), fill, dtype)
    for i, (row, size) in enumerate(zip(rows, sizes, strict=True)):
        if any(a > b for a, b in zip(size, target, strict=True)):
            raise InputError(
                f"padded_batch only makes elements longer. Received: shape {size}, to be padded to {tuple(target)}. "
                "Cut it with map first, or give a larger size."
            )
        result[(i, *(slice(n) for n in size))] = row
    return result


def _fill_value(value: Any, dtype: np.dtype[Any]) -> Any:
    if value is None:
        return b"" if dtype == TEXT else 0
    if dtype == TEXT and isinstance(value, (str, bytes)):
        return value.encode() if isinstance(value, str) else value
    given = np.asarray(value)
    number = dtype != TEXT and given.dtype.kind in "biuf" and given.ndim == 0
    if number and (dtype.kind in "fc" or _holds(dtype, given)):
        return given.astype(dtype)[()]
    raise ArgumentError(
        f"padding_values must be of the elements' dtype, {'text' if dtype == TEXT else dtype}. Received: {value!r}."
    )


def _holds(dtype: np.dtype[Any], number: np.ndarray[Any, Any]) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(number.astype(dtype) == number)
