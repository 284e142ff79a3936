"""The elements of a source that a batch is made of: each task has them, also those of rows that it does not compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from lockstep._engine.input.samples import Sample
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
    StackedStore,
    Store,
    ZippedStore,
    walk,
)

# How many elements of a batch are compared, at equal distances.
_ELEMENTS = 3
# An array of a source is summed up whole up to so many bytes (0.1 ms), then some of its rows.
_ARRAY_BYTES = 1 << 20


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
