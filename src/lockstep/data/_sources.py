"""Sources: arrays, ranges, generators, random numbers, stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from lockstep._nest import Packed
from lockstep._types import Element, PyTree
from lockstep.data import _columns, _spec
from lockstep.data._blocks import ArrayStore, Block, Store, array_block
from lockstep.data._columns import Column, Columns
from lockstep.data._map_program import InvalidElementError
from lockstep.data._peek import check_may_compute
from lockstep.data._plan import INFINITE, UNKNOWN, Cursor, DeferredError, EmptyCursor, Node, Run, State, StoreCursor
from lockstep.data._structure import TEXT, copy_arrays, normalize
from lockstep.errors import InputError


class Arrays(Node):
    """The rows of arrays in memory."""

    def __init__(self, columns: Columns, origin: str = "", spec: PyTree = None) -> None:
        leaves = jax.tree.leaves(columns)
        scalar = next((leaf for leaf in leaves if np.ndim(getattr(leaf, "values", leaf)) == 0), None)
        if scalar is not None:
            raise InputError(
                "from_tensor_slices needs arrays with at least one axis, whose rows become the elements. Received: the "
                f"scalar {scalar!r}. Use from_tensors for a single element."
            )
        lengths = sorted({len(leaf) for leaf in leaves})
        if len(lengths) != 1:
            raise InputError(
                "All arrays must have the same number of rows, at least one array. Received: "
                f"{', '.join(map(str, lengths)) or 'no array'} rows. Check what is passed to from_tensor_slices."
            )
        self.store = ArrayStore(columns, origin)
        self._count = lengths[0]
        # Of rows that are some of another dataset's, whose other elements may be of other sizes.
        self._spec = spec

    def open(self, run: Run) -> Cursor:
        return StoreCursor(self.store, self._count)

    @property
    def spec(self) -> Any:
        return jax.tree.map(row_spec, self.store.columns) if self._spec is None else self._spec

    @property
    def cardinality(self) -> int:
        return self._count

    @property
    def label(self) -> str:
        return f"Arrays({self._count})"


class Range(Node):
    """Integers at a distance."""

    def __init__(self, start: int, stop: int, step: int, dtype: np.dtype[Any], endless: bool = False) -> None:
        self._range = range(start, stop, step)
        self._endless = endless
        # Nobody counts to the end of this, and numbers of 64 bits do not either.
        self._count = 2**62 if endless else len(self._range)
        self._dtype = dtype

    def open(self, run: Run) -> Cursor:
        return StoreCursor(_RangeStore(self._range.start, self._range.step, self._dtype), self._count)

    @property
    def spec(self) -> Any:
        return _spec.TensorSpec((), self._dtype)

    @property
    def cardinality(self) -> int:
        return INFINITE if self._endless else self._count

    @property
    def label(self) -> str:
        return f"Counter{self._range.start, self._range.step}" if self._endless else repr(self._range)


class _RangeStore:
    is_vectorized = True

    def __init__(self, start: int, step: int, dtype: np.dtype[Any]) -> None:
        self._start = start
        self._step = step
        self._dtype = dtype

    def take(self, rows: _columns.Rows) -> Columns:
        return (self._start + rows * self._step).astype(self._dtype)

    def describe(self, row: int) -> str:
        return f"element {row}"


class RandomNumbers(Node):
    """Endless random integers from 0 to 2**32 - 1, int64. Each depends on the seed, the pass and its index alone."""

    def __init__(self, seed: int | None, each_iteration: bool) -> None:
        self._seed = seed
        self._each_iteration = each_iteration

    def open(self, run: Run) -> Cursor:
        return StoreCursor(_RandomStore(lambda chunk: run.random(self._seed, chunk, self._each_iteration)), 2**62)

    @property
    def spec(self) -> Any:
        return _spec.TensorSpec((), np.int64)

    @property
    def cardinality(self) -> int:
        return INFINITE

    @property
    def label(self) -> str:
        return f"RandomNumbers({self._seed}, {self._each_iteration})"


class _RandomStore:
    is_vectorized = True
    _CHUNK = 256

    def __init__(self, generator: Callable[[int], np.random.Generator]) -> None:
        self._generator = generator

    def take(self, rows: _columns.Rows) -> Columns:
        # A generator for each chunk of numbers: one for each number would cost more than the number.
        chunks, places = np.divmod(rows, self._CHUNK)
        # Each chunk once, though shuffled rows may ask for it many times.
        drawn = {int(c): self._generator(int(c)).integers(0, 2**32, self._CHUNK) for c in np.unique(chunks)}
        return np.array([drawn[int(c)][p] for c, p in zip(chunks, places, strict=True)], np.int64)

    def describe(self, row: int) -> str:
        return f"random number {row}"


class Generated(Node):
    """The values of an iterable that each pass makes anew."""

    def __init__(self, make: Callable[[], Iterable[Any]], signature: PyTree | None) -> None:
        self._make = make
        self._signature = signature

    @property
    def replayable(self) -> bool:
        return False

    @property
    def has_signature(self) -> bool:
        """Returns whether the program has declared a signature."""
        return self._signature is not None

    def open(self, run: Run) -> Cursor:
        return _GeneratedCursor(self._make, self._signature)

    @property
    def spec(self) -> Any:
        """Returns the signature, or the spec of the first element of a new pass."""
        if self._signature is None:
            check_may_compute()
            for value in self._make():
                return _spec.spec_of(normalize(value))
            # An empty generator shows no spec; TensorFlow demands a signature of every generator.
            raise InputError("from_generator needs output_signature for a generator without any element.")
        return self._signature

    @property
    def cardinality(self) -> int:
        return UNKNOWN


class _GeneratedCursor:
    """A cursor whose state is the number of elements taken or failed; `restore` drops so many of a new pass."""

    def __init__(self, make: Callable[[], Iterable[Any]], signature: PyTree | None) -> None:
        self._make = make
        self._signature = signature
        self._values: Iterator[Any] | None = None
        # Of the first element: where keys come in another order, it decides.
        self._structure: Any = None
        self._taken = 0
        self._ended = False
        self._deferred = DeferredError()

    def next(self, limit: int) -> Block | None:
        # On the first `next`, so that opening a plan, as for its spec, runs no code of the user.
        if self._values is None:
            self._values = iter(())  # What cannot be begun has no elements.
            values: Any = self._make()
            if not isinstance(values, Iterable):
                raise InputError(
                    f"The function of from_generator must return an iterable. Received: {type(values).__name__}. Use "
                    "yield in it, or return iter(...)."
                )
            self._values = iter(values)
            self._skip(self._values)
        first = self._taken
        elements: list[Any] = []
        self._raise_deferred()
        while len(elements) < limit and not self._ended:
            try:
                # It may yield the same array again, with other values.
                elements.append(copy_arrays(self._check_element(next(self._values))))
                self._taken += 1
            except StopIteration:
                self._ended = True
            except Exception as error:
                # Raised when the elements before it are used up.
                self._deferred.defer(error)
                if not elements:
                    self._raise_deferred()
                break
        if not elements:
            return None
        try:
            return array_block(_columns.stack(elements), "element of the generator", first)
        except ValueError as error:
            raise InputError(f"A generator must give elements of one structure. {error}.") from error

    def _raise_deferred(self) -> None:
        try:
            self._deferred.raise_deferred()
        except Exception:
            self._taken += 1
            raise

    def state(self) -> State:
        return self._taken

    def restore(self, state: State) -> None:
        self._taken = state

    def _skip(self, values: Iterator[Any]) -> None:
        skipped = 0
        # A generator cannot be positioned: a resumed pass calls it again and drops what was taken.
        while skipped < self._taken:
            try:
                value = next(values)
                if self._signature is None and self._structure is None:
                    self._order_keys(normalize(value))
            except StopIteration:
                break
            except Exception:  # As it did the first time, when it was raised.
                pass
            skipped += 1
        if skipped < self._taken:
            raise InputError(
                f"A generator must give the same elements again to continue after {self._taken} of them. Received: "
                f"{skipped} on the second pass. Make it depend on nothing but its arguments."
            )

    def _check_element(self, value: PyTree) -> Any:
        if self._signature is None:
            return self._order_keys(normalize(value))
        try:
            element = normalize(_cast_to_signature(value, self._signature))
        except (TypeError, ValueError, OverflowError) as error:
            raise self._mismatch(repr(value)[:200], error) from error
        leaves, structure = jax.tree.flatten(element)
        specs, expected = jax.tree.flatten(self._signature)
        if structure != expected or any(
            isinstance(s, _spec.TensorSpec) and not s.is_compatible_with(leaf)
            for s, leaf in zip(specs, leaves, strict=True)
        ):
            raise self._mismatch(_spec.spec_of(element))
        return element

    def _order_keys(self, element: Element) -> Any:
        leaves, structure = jax.tree.flatten(element)
        # Dicts with the same keys in another order: the first element's order holds for all.
        self._structure = self._structure or structure
        return self._structure.unflatten(leaves) if structure == self._structure else element

    def _mismatch(self, received: object, error: Exception | None = None) -> InputError:
        return InvalidElementError(
            f"A generator must give elements of its output_signature, {self._signature}. Received as number "
            f"{self._taken}: {received}{f' ({error})' if error else ''}. Change one of the two."
        )


def _cast_to_signature(value: PyTree, signature: PyTree) -> Any:
    """Converts numbers to the signature's dtypes, as TensorFlow does."""
    # TensorFlow takes a list for a tuple of the signature.
    if isinstance(signature, tuple) and isinstance(value, list):
        value = tuple(value)
    if isinstance(signature, _spec.TensorSpec):
        return value if signature.dtype == TEXT else np.asarray(value, signature.dtype)[()]
    if isinstance(signature, dict) and isinstance(value, dict) and signature.keys() == value.keys():
        return Packed.like(signature, [_cast_to_signature(value[k], signature[k]) for k in signature])
    if isinstance(signature, tuple) and isinstance(value, tuple) and len(signature) == len(value):
        parts = [_cast_to_signature(v, s) for v, s in zip(value, signature, strict=True)]
        return type(signature)(*parts) if hasattr(signature, "_fields") else tuple(parts)
    return value


def row_spec(column: Column) -> Any:
    """Returns the spec that holds for all rows of a column."""
    if isinstance(column, _columns.Ragged):
        specs = [_spec.spec_of_leaf(v) for v in column.values]
        result = specs[0]
        # Rows of different shapes: a size that all rows share stays known.
        for spec in specs[1:]:
            result = _spec.generalize(result, spec) or _spec.TensorSpec(None, result.dtype)
        return result
    return _spec.TensorSpec(column.shape[1:], column.dtype)


class StoreSource(Node):
    """The elements of a store, of known number and spec; `label` says for messages what they are."""

    def __init__(self, store: Store, count: int, spec: PyTree, label: str) -> None:
        self._store = store
        self._count = count
        self._spec = spec
        self._label = label

    def open(self, run: Run) -> Cursor:
        return StoreCursor(self._store, self._count)

    @property
    def spec(self) -> Any:
        return self._spec

    @property
    def cardinality(self) -> int:
        return self._count

    @property
    def label(self) -> str:
        return f"{self._label}({self._count})"


class Unread(Node):
    """Elements of a known spec, none of which is ever read: for functions of datasets that only show their result."""

    def __init__(self, spec: PyTree) -> None:
        self._spec = spec

    def open(self, run: Run) -> Cursor:
        return EmptyCursor()

    @property
    def spec(self) -> Any:
        return self._spec
