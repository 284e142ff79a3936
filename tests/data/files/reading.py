"""What the tests of all readers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lockstep.data._files.stream import Reader


def elements(reader: Reader, limit: int = 7) -> list[Any]:
    """Reads on to the end, closes, and returns one pytree per record."""
    found: list[Any] = []
    while (portion := reader.read(limit)) is not None:
        leaves, structure = jax.tree.flatten(portion)
        assert 1 <= len(leaves[0]) <= limit
        assert all(isinstance(leaf, np.ndarray) and len(leaf) == len(leaves[0]) for leaf in leaves)
        found += [jax.tree.unflatten(structure, row) for row in zip(*leaves, strict=True)]
    reader.close()
    return found


def check_positions(open_reader: Callable[[], Reader], limits: list[int]) -> None:
    """At every point of a reading, another reader that seeks what `tell` returns continues with the same."""
    everything = elements(open_reader())
    reader, done = open_reader(), 0
    for limit in [*limits, 1]:
        assert reader.number == done
        other = open_reader()
        other.seek(reader.tell())
        assert other.number == done
        same(elements(other), everything[done:])
        portion = reader.read(limit)
        done += 0 if portion is None else len(jax.tree.leaves(portion)[0])
    reader.seek(reader.tell())
    same(elements(reader), everything[done:])


def same(found: list[Any], expected: list[Any]) -> None:
    """Compares elements."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_array_equal(a, b)
