"""Samples of data that all workers read: a few rows and their checksum, which show that a worker reads other data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import google_crc32c
import jax
import numpy as np

from lockstep._engine.runtime import environment, failure, fingerprint
from lockstep._engine.runtime.runtime import Runtime
from lockstep._types import ArrayLike
from lockstep.data.internal import (
    Arrays,
    ArrayStore,
    Block,
    BlockStore,
    CachedElements,
    Map,
    MappedStore,
    MixedStore,
    Node,
    Ragged,
    StackedStore,
    Store,
    ZippedStore,
    walk,
)
from lockstep.errors import MismatchError

VARIABLE = "LOCKSTEP_COMPARE_DATA"
ADVICE = (
    "With a strategy each worker passes all data; lockstep divides it. Do not shard the data or divide the batch size "
    "by hand; whatever shuffles, or draws from a generator of its own, needs the same seed on every worker."
)
# An array of a batch is summed up whole up to so many bytes, then rows at equal distances that take about as many.
# 16 KiB take 1 microsecond, a batch of MNIST (64 rows) less than 2.
_BATCH_BYTES = 16 << 10
# How many elements of a batch are compared, at equal distances.
_ELEMENTS = 3
# An array of a source is summed up whole up to so many bytes (0.1 ms), then some of its rows.
_ARRAY_BYTES = 1 << 20
# How many rows, and values of each, an error shows.
_ROWS, _VALUES = 64, 4


def are_compared(runtime: Runtime) -> bool:
    """Returns whether tasks compare the values of their data."""
    return is_comparing() and not runtime.is_alone


def is_comparing() -> bool:
    """Returns whether values are compared where several tasks read the same data."""
    meaning = "workers compare checksums of a few rows of the data that all of them read"
    return environment.env_flag(VARIABLE, meaning)


class Sample:
    """A few rows of data, to be equal on all tasks.

    Args:
        data: A structure of arrays; anything else in it is left out.
        number: Which rows: samples of different numbers begin at different ones.
        nbytes: About how much to take of each array.

    Attributes:
        checksum: The crc32c of the rows.
    """

    def __init__(self, data: Any, number: int = 0, nbytes: int = _BATCH_BYTES) -> None:
        leaves, self._structure = jax.tree.flatten(data)
        self._rows = [_rows_of(leaf, number, nbytes) for leaf in leaves]
        self.checksum = 0
        for rows in self._rows:
            self.checksum = _extend_checksum(self.checksum, rows)

    def described(self) -> dict[str, dict[str, str]]:
        """Returns the dtype and the rows of each array as text, by the array's path."""
        named, _ = jax.tree_util.tree_flatten_with_path(self._structure.unflatten(self._rows))
        return {jax.tree_util.keystr(path): _describe(rows) for path, rows in named}


def mismatch(
    what: str, mine: Sample | None, agree: Callable[[str, Any], list[Any]], tasks: Sequence[str]
) -> MismatchError:
    """Returns the error for samples whose checksums differ, with the first difference; all tasks call it.

    Args:
        what: What the samples are of.
        mine: This task's sample.
        agree: Exchanges a value between the tasks, under a topic.
        tasks: The names of the tasks.
    """
    found = fingerprint.first_difference(agree(f"{what}, which differs", mine and mine.described()), tasks)
    error = MismatchError(
        f"Every task must read the same data. In {what}, {found or 'checksums differ'}. {ADVICE} {VARIABLE}=0 leaves "
        "values uncompared."
    )
    failure.mark_agreed(error)
    return error


def differ(checksums: Sequence[int | None]) -> bool:
    """Returns whether checksums differ; a task that has none takes no part in the comparison."""
    return None not in checksums and len(set(checksums)) > 1


def _rows_of(leaf: ArrayLike, number: int, nbytes: int) -> Any:
    """Returns some rows as a numpy array, or `None` for what is no array of this process."""
    if isinstance(leaf, (np.ndarray, np.generic)):
        return _some(leaf, number, nbytes)
    if isinstance(leaf, Ragged):
        # Rows of different lengths have no common array.
        return _some(np.array([_content(v) for v in leaf.values], object), number, nbytes)
    if isinstance(leaf, (bytes, str, int, float)):
        return np.asarray(leaf, object if isinstance(leaf, (bytes, str)) else None)
    if hasattr(leaf, "__array__") and hasattr(leaf, "shape") and _is_here(leaf):
        # A DataFrame does not tell its bytes.
        return np.asarray(_some(leaf if hasattr(leaf, "nbytes") else np.asarray(leaf), number, nbytes))
    return None


def _some(array: ArrayLike, number: int, nbytes: int) -> Any:
    """Returns all rows of a small array, or some of a large one."""
    # At equal distances: a slice is a view, and copies nothing until it is summed up.
    size = array.nbytes
    if size <= nbytes or len(array.shape) == 0:
        return array
    count = len(array)
    step = max(1, count // max(1, nbytes * count // size))
    return array[number % step :: step]


def _is_here(leaf: ArrayLike) -> bool:
    if not isinstance(leaf, jax.Array):
        return True
    return leaf.is_fully_addressable and not jax.numpy.issubdtype(leaf.dtype, jax.dtypes.extended)


def _extend_checksum(checksum: int, rows: ArrayLike) -> int:
    if rows is None:
        return checksum
    content = b"\0".join(map(_content, rows.ravel())) if rows.dtype.kind == "O" else rows.tobytes()
    return google_crc32c.extend(checksum, content)  # pyright: ignore[reportUnknownMemberType]


def _content(value: Any) -> bytes:
    """Returns the content of a value of any type; what has none that is equal on all tasks, by its type."""
    if isinstance(value, (bytes, str)):
        return value if isinstance(value, bytes) else value.encode()
    if isinstance(value, (int, float, np.generic, np.ndarray)):
        return np.asarray(value).tobytes()
    return type(value).__name__.encode()


def _describe(rows: np.ndarray[Any, Any]) -> dict[str, str]:
    first = rows.reshape(len(rows), -1) if rows.ndim else rows.reshape(1, 1)
    return {"dtype": str(rows.dtype)} | {f"row {i:02}": _row(first[i]) for i in range(min(len(first), _ROWS))}


def _row(values: np.ndarray[Any, Any]) -> str:
    shown = ", ".join(str(v) for v in values[:_VALUES].tolist()) + (", ..." if len(values) > _VALUES else "")
    return f"({shown}), checksum {_extend_checksum(0, values):08x}"


# ---- Samples of a plan: each worker has the elements of a batch, also of rows that it does not compute ----


def samples_of(block: Block) -> list[Sample]:
    """Returns a sample of what each batch of a block is made of, without computing the batch."""
    return [Sample(list(_origins(block.store, int(row)))) for row in block.rows]


def arrays_of(plan: Node, number: int) -> Sample:
    """Returns a sample of the arrays in memory that a plan reads; another one for each number."""
    arrays = [node.store.columns for node in walk(plan) if isinstance(node, Arrays)]
    return Sample(arrays, number, _ARRAY_BYTES)


def functions_of(plan: Node) -> list[str]:
    """Returns what the map functions of a plan compute, as digests; nothing of those that JAX cannot trace."""
    programs = [node.program for node in walk(plan) if isinstance(node, Map)]
    traced = [p.vectorized_function.traced if p.is_vectorized and p.vectorized_function else None for p in programs]
    return [t.identity if t is not None and t.portable else "" for t in traced]


def _origins(store: Store, row: int) -> Iterator[Any]:
    """Yields elements that an element is made of and that are the same on all tasks, one by one.

    How elements are put together into blocks depends on time, and must not show.
    """
    if isinstance(store, StackedStore):
        batch = store.batch(row)
        for inner in batch.rows[:: max(1, -(-len(batch) // _ELEMENTS))]:
            yield from _origins(batch.store, int(inner))
    elif isinstance(store, MappedStore):
        yield from _origins(store.upstream, row)
    elif isinstance(store, ZippedStore):
        for part in store.stores:
            yield from _origins(part, row)
    elif isinstance(store, MixedStore):
        yield from _origins(store.stores[store.which[row]], int(store.rows[row]))
    elif isinstance(store, BlockStore):
        yield from _origins(store.block.store, int(store.block.rows[row]))
    elif isinstance(store, ArrayStore):
        yield [column[row] for column in jax.tree.leaves(store.columns)]
    elif isinstance(store, CachedElements):
        # Each task keeps what it computed: what they have in common is an element's place in the first pass.
        yield row
    else:
        yield store.take(np.array([row]))
