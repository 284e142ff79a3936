"""`batch`, `padded_batch`, `unbatch` and `rebatch`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from lockstep._nest import canonical
from lockstep._types import ArrayLike, PyTree
from lockstep.data import _columns, _spec
from lockstep.data._blocks import Block, array_block, join_blocks
from lockstep.data._columns import Column, Columns, Ragged, Rows
from lockstep.data._map_program import InvalidElementError
from lockstep.data._plan import UNKNOWN, Cursor, DeferredError, Node, Run, State, Transformation
from lockstep.data._structure import TEXT
from lockstep.errors import ArgumentError, InputError


class Batch(Transformation):
    """Elements stacked into batches of `size`; a last one with fewer is left out if `drop` is true."""

    def __init__(self, upstream: Node, size: int, drop: bool, padding: Padding | None = None) -> None:
        super().__init__(upstream)
        self.size = size
        self.drop = drop
        self._padding = padding

    def open(self, run: Run) -> Cursor:
        return _BatchCursor(self.upstream.open(run), self.size, self.drop, self._padding)

    @property
    def spec(self) -> Any:
        elements = self.upstream.spec
        if self._padding is not None:
            elements = self._padding.spec(elements)
        count = self.upstream.cardinality
        # With a known cardinality the last batch is known to be full; tf.data leaves its axis unknown.
        exact = self.drop or (count >= 0 and count % self.size == 0)
        return _spec.add_batch_axis(elements, self.size if exact else None)

    @property
    def cardinality(self) -> int:
        count = self.upstream.cardinality
        return count if count < 0 else (count if self.drop else count + self.size - 1) // self.size

    @property
    def label(self) -> str:
        return f"Batch({self.size}, {self.drop})"


class _BatchCursor:
    def __init__(self, upstream: Cursor, size: int, drop: bool, padding: Padding | None) -> None:
        self._upstream = upstream
        self._size = size
        self._drop = drop
        self._padding = padding
        self._deferred = DeferredError()

    def next(self, limit: int) -> Block | None:
        self._deferred.raise_deferred()
        wanted, usable = limit * self._size, limit * self._size
        parts: list[Block] = []
        try:
            while wanted > 0 and (part := self._upstream.next(wanted)) is not None:
                parts.append(part)
                wanted -= len(part)
        except Exception as error:
            # Of a batch in which one fails, the elements before it are lost with it, as in tf.data.
            usable = sum(map(len, parts)) // self._size * self._size
            if not usable:
                raise
            self._deferred.defer(error)
        if not parts:
            return None
        block = join_blocks(parts)
        block = block if len(block) <= usable else block[:usable]
        # Several batches are one block, so that a map function behind is called once for them.
        whole, rest = divmod(len(block), self._size)
        count = whole if self._drop or not rest else whole + 1
        return Block(StackedStore(block, self._size, self._padding), np.arange(count)) if count else None

    def state(self) -> State:
        return self._deferred.add_to_state(self._upstream.state())

    def restore(self, state: State) -> None:
        self._upstream.restore(self._deferred.take_from_state(state))


@dataclass(frozen=True, eq=False)
class StackedStore:
    """Batches of a block's elements, `size` in each but the last."""

    block: Block
    size: int
    padding: Padding | None

    @property
    def is_vectorized(self) -> bool:
        return self.block.store.is_vectorized

    def batch(self, row: int) -> Block:
        """Returns the elements of one batch."""
        return self.block[row * self.size : (row + 1) * self.size]

    def take(self, rows: Rows) -> Columns:
        first, last = int(rows[0]), int(rows[-1]) + 1
        # Consecutive whole batches of a uniform column: a reshape of one read, without a copy per batch.
        if self.padding is None and last * self.size <= len(self.block) and _columns.as_slice(rows) is not None:
            columns = self.block[first * self.size : last * self.size].take()
            if not any(isinstance(c, Ragged) for c in jax.tree.leaves(columns)):
                return jax.tree.map(lambda c: c.reshape(last - first, self.size, *c.shape[1:]), columns)
        return _columns.stack([self.element(int(row)) for row in rows])

    def element(self, row: int) -> Any:
        """Computes one batch."""
        block = self.batch(row)
        columns = block.take()
        if self.padding is not None:
            return self.padding(columns)
        for column in jax.tree.leaves(columns):
            if isinstance(column, Ragged):
                shapes = [np.shape(v) if not hasattr(v, "element_spec") else "a dataset" for v in column.values]
                # The first odd element is named, with its file: in a batch of 256 photographs nobody would find it.
                odd = next((i for i, s in enumerate(shapes) if s != shapes[0]), 0)
                raise InvalidElementError(
                    f"The elements of a batch must have the same shape. Received: {shapes[0]} and, at "
                    f"{block.store.describe(int(block.rows[odd]))}, {shapes[odd]}. Resize or crop them with map, or "
                    "use padded_batch."
                )
        return columns

    def describe(self, row: int) -> str:
        rows = self.batch(row).rows
        store = self.block.store
        return f"the batch from {store.describe(int(rows[0]))} to {store.describe(int(rows[-1]))}"


class Unbatch(Transformation):
    """The rows of the elements' arrays, each an element."""

    def open(self, run: Run) -> Cursor:
        return _UnbatchCursor(self.upstream.open(run))

    @property
    def spec(self) -> Any:
        return _spec.remove_batch_axis(self.upstream.spec)

    @property
    def cardinality(self) -> int:
        count = self.upstream.cardinality
        if count <= 0:  # None, infinitely many or unknown: their size does not matter, and may not be known.
            return count
        if self.captures_iterator:
            return UNKNOWN
        # All arrays of an element must agree; a scalar has no rows.
        sizes = {s.shape[0] for s in jax.tree.leaves(self.upstream.spec) if s.shape}
        size = sizes.pop() if len(sizes) == 1 else None
        return count * size if size is not None else UNKNOWN


class _UnbatchCursor:
    def __init__(self, upstream: Cursor) -> None:
        self._upstream = upstream
        self._before = upstream.state()
        self._rest: Block | None = None
        self._used = 0

    def next(self, limit: int) -> Block | None:
        while self._rest is None or len(self._rest) == 0:
            self._before, self._used = self._upstream.state(), 0
            try:
                block = self._upstream.next(1)
                self._rest = None if block is None else _rows_of(block)
            except Exception:
                # Behind the element that failed, so that it is not read again.
                self._before = self._upstream.state()
                raise
            if block is None:
                return None
        part, self._rest = self._rest[:limit], self._rest[limit:]
        self._used += len(part)
        return part

    def state(self) -> State:
        return {"before": self._before, "used": self._used}

    def restore(self, state: State) -> None:
        self._upstream.restore(state["before"])
        self._before, self._used = state["before"], state["used"]
        if self._used:
            block = self._upstream.next(1)
            self._rest = block and _rows_of(block)[self._used :]


def _rows_of(block: Block) -> Block:
    """Returns the rows of one element; of a batch that is not computed yet, the references it consists of."""
    store = block.store
    # batch().unbatch() moves references only.
    if isinstance(store, StackedStore) and store.padding is None:
        return store.batch(int(block.rows[0]))
    where = store.describe(int(block.rows[0]))
    element = _columns.element(block.take(), 0)
    # A scalar among the arrays has no rows to split.
    lengths = {np.shape(leaf)[0] if np.ndim(leaf) else None for leaf in jax.tree.leaves(element)}
    if len(lengths) != 1 or None in lengths:
        raise InvalidElementError(
            f"unbatch needs arrays with the same first axis. Received: {_spec.spec_of(element)} at {where}. Batch the "
            "elements first, or map them to arrays."
        )
    return array_block(element, where + ", row")


class Rebatch(Transformation):
    """Batches of another size, of the same rows in the same order."""

    def __init__(self, upstream: Node, sizes: Sequence[int], drop: bool) -> None:
        super().__init__(upstream)
        self._sizes = tuple(sizes)
        self._drop = drop
        self._rows = Unbatch(upstream)

    def open(self, run: Run) -> Cursor:
        return _RebatchCursor(self._rows.open(run), self._sizes, self._drop)

    @property
    def spec(self) -> Any:
        # With sizes in turns, or a smaller last batch, the axis is unknown.
        size = self._sizes[0] if self._drop and len(set(self._sizes)) == 1 else None
        return _spec.add_batch_axis(self._rows.spec, size)

    @property
    def cardinality(self) -> int:
        count = self._rows.cardinality
        if count < 0:
            return count
        whole, rest = divmod(count, sum(self._sizes))
        count = whole * len(self._sizes)
        for size in self._sizes:
            if rest <= 0 or (self._drop and rest < size):
                break
            count, rest = count + 1, rest - size
        return count

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        return Rebatch(inputs[0], self._sizes, self._drop)

    @property
    def label(self) -> str:
        return f"Rebatch({self._sizes}, {self._drop})"


class _RebatchCursor:
    """A cursor that returns one batch at a time, because sizes may take turns."""

    def __init__(self, rows: Cursor, sizes: tuple[int, ...], drop: bool) -> None:
        self._rows = rows
        self._sizes = sizes
        self._drop = drop
        self._turn = 0

    def next(self, limit: int) -> Block | None:
        size = self._sizes[self._turn]
        block = _BatchCursor(self._rows, size, self._drop, None).next(1)
        self._turn = (self._turn + 1) % len(self._sizes)
        return block

    def state(self) -> State:
        return {"rows": self._rows.state(), "turn": self._turn}

    def restore(self, state: State) -> None:
        self._rows.restore(state["rows"])
        self._turn = state["turn"]


class Padding:
    """The shapes and values of `padded_batch`, as it receives them."""

    def __init__(self, shapes: PyTree, values: PyTree) -> None:
        self._shapes = shapes
        self._values = values

    def spec(self, spec: PyTree) -> Any:
        """Returns the spec of the padded elements."""
        leaves, structure = jax.tree.flatten(spec)
        shapes = self._leaf_shapes(leaves)
        return structure.unflatten([_spec.TensorSpec(s, leaf.dtype) for s, leaf in zip(shapes, leaves, strict=True)])

    def __call__(self, columns: Columns) -> Columns:
        """Returns columns without any that are ragged."""
        leaves, structure = jax.tree.flatten(columns)
        shapes, values = self._leaf_shapes(leaves), [self._values] * len(leaves)
        if isinstance(self._values, (tuple, dict)):
            values = jax.tree.leaves(canonical(self._values), is_leaf=lambda v: v is None)
            if len(values) != len(leaves):
                raise ArgumentError(
                    f"padding_values must be one value, or have one for each of the {len(leaves)} arrays of an "
                    f"element. Received: {self._values}."
                )
        return structure.unflatten([_pad_column(c, s, v) for c, s, v in zip(leaves, shapes, values, strict=True)])

    def _leaf_shapes(self, leaves: list[Any]) -> list[Any]:
        """Returns a shape for each leaf of a spec or of columns, `None` for sizes that are the longest of the batch."""
        if self._shapes is None:
            return [_free_shape(leaf) for leaf in leaves]
        given_shapes = shape_leaves(self._shapes)
        # Without this a shape too few would pad another array, without a word.
        if len(given_shapes) != len(leaves):
            raise ArgumentError(
                f"padded_shapes must have a shape for each of the {len(leaves)} arrays of an element. Received: "
                f"{self._shapes}. Example: ([None], [])"
            )
        return given_shapes


def shape_leaves(shapes: PyTree) -> list[tuple[int | None, ...]]:
    """Returns the shapes of a structure of shapes, `None` for sizes that are open."""
    return [_shape(shape) for shape in jax.tree.leaves(canonical(shapes), is_leaf=_is_shape)]


def _free_shape(leaf: ArrayLike) -> Any:
    if isinstance(leaf, Ragged):
        return (None,) * np.ndim(leaf.values[0])
    if isinstance(leaf, _spec.TensorSpec):
        if leaf.shape is None:
            raise InputError("padded_batch needs elements with a known number of axes. Give padded_shapes.")
        return leaf.shape
    return leaf.shape[1:]


def _is_shape(value: ArrayLike) -> bool:
    # Shapes of other libraries, and arrays of sizes.
    if hasattr(value, "as_list") or isinstance(value, np.ndarray):
        return True
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
        raise InvalidElementError(f"padded_shapes gives {len(shape)} axes. Received: an element of shape {sizes[0]}.")
    # The largest of this batch, not of the dataset, as in tf.data.
    target = [max(s[i] for s in sizes) if n is None else n for i, n in enumerate(shape)]
    result = np.full((len(rows), *target), fill, dtype)
    for i, (row, size) in enumerate(zip(rows, sizes, strict=True)):
        if any(a > b for a, b in zip(size, target, strict=True)):
            raise InvalidElementError(
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
    if dtype != TEXT and number_or_text.dtype.kind in "biuf" and number_or_text.ndim == 0:
        with np.errstate(invalid="ignore"):
            number = number_or_text.astype(dtype)[()]
        # A value that the dtype cannot hold, such as -1 for uint8, would wrap.
        if dtype.kind in "fc" or bool(number == number_or_text):
            return number
    raise ArgumentError(
        f"padding_values must be of the elements' dtype, {'text' if dtype == TEXT else dtype}. Received: {value!r}."
    )
