"""Padding of elements of different sizes to one size."""

from __future__ import annotations

import operator
from typing import Any

import jax
import numpy as np

from lockstep._nest import canonical
from lockstep._types import ArrayLike, PyTree, PyTreeDef
from lockstep.data import _spec
from lockstep.data._columns import Column, Columns, Ragged
from lockstep.data._structure import TEXT
from lockstep.errors import ArgumentError, InputError


class Padding:
    """The shapes and values of `padded_batch`.

    Args:
        shapes: A structure of shapes like the elements', where `None` or -1 stands for the longest of the batch; or
            `None` for that everywhere.
        values: A structure of values, one value for all, or `None`: 0, or empty text.
    """

    def __init__(self, shapes: PyTree, values: PyTree) -> None:
        self._shapes = shapes
        self._values = values

    def spec(self, spec: PyTree) -> Any:
        """Returns the spec of the padded elements."""
        leaves, structure = jax.tree.flatten(spec)
        shapes = self._leaf_shapes(structure, leaves)
        return structure.unflatten([_spec.TensorSpec(s, leaf.dtype) for s, leaf in zip(shapes, leaves, strict=True)])

    def __call__(self, columns: Columns) -> Columns:
        """Returns columns without any that are ragged."""
        leaves, structure = jax.tree.flatten(columns)
        shapes = self._leaf_shapes(structure, leaves)
        values = self._leaf_values(structure, len(leaves))
        return structure.unflatten([_pad_column(c, s, v) for c, s, v in zip(leaves, shapes, values, strict=True)])

    def _leaf_shapes(self, structure: PyTreeDef, leaves: list[Any]) -> list[Any]:
        if self._shapes is None:
            return [_free_shape(leaf) for leaf in leaves]
        given_shapes = jax.tree.leaves(canonical(self._shapes), is_leaf=_is_shape)
        # Without this a shape too few would pad another array, without a word.
        if len(given_shapes) != len(leaves):
            raise ArgumentError(
                f"padded_shapes must have a shape for each of the {len(leaves)} arrays of an element. Received: "
                f"{self._shapes}. Example: ([None], [])"
            )
        return [_shape(shape) for shape in given_shapes]

    def _leaf_values(self, structure: PyTreeDef, count: int) -> list[Any]:
        if self._values is None or not isinstance(self._values, (tuple, dict)):
            return [self._values] * count
        given_values = jax.tree.leaves(canonical(self._values), is_leaf=lambda v: v is None)
        if len(given_values) != count:
            raise ArgumentError(
                f"padding_values must be one value, or have one for each of the {count} arrays of an element. "
                f"Received: {self._values}."
            )
        return given_values


def _free_shape(leaf: ArrayLike) -> Any:
    """Returns all sizes that may differ are the longest of the batch."""
    if isinstance(leaf, Ragged):
        return (None,) * np.ndim(leaf.values[0])
    if isinstance(leaf, _spec.TensorSpec):
        if leaf.shape is None:
            raise InputError("padded_batch needs elements with a known number of axes. Give padded_shapes.")
        return leaf.shape
    return leaf.shape[1:]


def _is_shape(value: ArrayLike) -> bool:
    plain = isinstance(value, (list, tuple)) and not hasattr(value, "_fields")
    return plain and all(v is None or isinstance(v, (int, np.integer)) for v in value)


def _shape(value: ArrayLike) -> tuple[int | None, ...]:
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


def _pad_column(column: Column, shape: tuple[int | None, ...], value: ArrayLike) -> Any:
    rows = list(column.values if isinstance(column, Ragged) else column)
    dtype = getattr(rows[0], "dtype", TEXT)
    fill = _fill_value(value, dtype)
    sizes = [np.shape(r) for r in rows]
    if any(len(s) != len(shape) for s in sizes):
        raise InputError(f"padded_shapes gives {len(shape)} axes. Received: an element of shape {sizes[0]}.")
    # The largest of this batch, not of the dataset, as in tf.data.
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


def _fill_value(value: ArrayLike, dtype: np.dtype[Any]) -> Any:
    if value is None:
        return b"" if dtype == TEXT else 0
    if dtype == TEXT and isinstance(value, (str, bytes)):
        return value.encode() if isinstance(value, str) else value
    number_or_text = np.asarray(value)
    # A value that the dtype cannot hold, such as -1 for uint8, would wrap.
    number = dtype != TEXT and number_or_text.dtype.kind in "biuf" and number_or_text.ndim == 0
    if number and (dtype.kind in "fc" or _holds(dtype, number_or_text)):
        return number_or_text.astype(dtype)[()]
    raise ArgumentError(
        f"padding_values must be of the elements' dtype, {'text' if dtype == TEXT else dtype}. Received: {value!r}."
    )


def _holds(dtype: np.dtype[Any], number: np.ndarray[Any, Any]) -> bool:
    with np.errstate(invalid="ignore"):
        return bool(number.astype(dtype) == number)
