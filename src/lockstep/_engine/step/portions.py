"""What a task has of a global batch: all of it (any structure of arrays), or one of these."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax


@dataclass(frozen=True)
class Share:
    """Rows of a global batch that all tasks know the size of; the others have the others.

    Attributes:
        data: The rows.
        count: How many rows the whole batch has.
    """

    data: Any
    count: int

    @property
    def nbytes(self) -> int:
        """How many bytes the rows take."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self.data))


@dataclass(frozen=True)
class Part:
    """Rows that this task adds to a global batch. What the others add only they know.

    Attributes:
        data: The rows; none at all once this task's data has ended.
        counts: How many rows each process adds, when they have agreed on it.
    """

    data: Any
    counts: Sequence[int] = ()

    @property
    def nbytes(self) -> int:
        """How many bytes the rows take."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self.data))

    @property
    def rows(self) -> int:
        """How many rows this task adds."""
        return next((len(leaf) for leaf in jax.tree.leaves(self.data)), 0)


@dataclass(frozen=True)
class Recipe:
    """How a batch comes from arrays: a pure function that JAX can trace, known by a key.

    Attributes:
        key: Equal for recipes that do the same, so that what was compiled with one serves for the other.
        compute: Function of the arrays and int32 (k,) rows that returns the batch.
    """

    key: Hashable
    compute: Callable[[tuple[Any, ...], Any], Any] = field(compare=False)

    def __call__(self, arrays: tuple[Any, ...], rows: Any) -> Any:
        """Returns the batch."""
        return self.compute(arrays, rows)


@dataclass(frozen=True)
class Lookup:
    """Rows of arrays that are on all devices.

    Attributes:
        recipe: Makes the batch of the arrays and the rows, in the step program.
        arrays: The arrays.
        rows: int32 (k,), the numbers of the rows.
        shapes: What the batch looks like.
    """

    recipe: Recipe
    arrays: tuple[Any, ...]
    rows: Any
    shapes: Any

    @property
    def nbytes(self) -> int:
        """How many bytes travel."""
        return self.rows.nbytes
