"""Elements of several datasets in the order of keys of the first one: the same keys are of one structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

from lockstep._nest import opened
from lockstep.data._blocks import Block, Store
from lockstep.data._columns import Columns, Rows
from lockstep.data._peek import close, spec_if_known
from lockstep.data._plan import Cursor, Node, State


def arrangements(nodes: Sequence[Node]) -> list[Any]:
    """Returns for each node the structure of the first one's elements, or `None` if its own are arranged like these."""
    found = [jax.tree.structure(spec_if_known(node)) for node in nodes]
    shown = [repr(opened(structure.unflatten(range(structure.num_leaves)))) for structure in found]
    pairs = zip(found, shown, strict=True)
    return [found[0] if structure == found[0] and text != shown[0] else None for structure, text in pairs]


def arranged(cursor: Cursor, structure: Any) -> Cursor:
    """Returns a cursor whose elements are arranged like a structure; `None`: as they are."""
    return cursor if structure is None else _ArrangedCursor(cursor, structure)


@dataclass(frozen=True, eq=False)
class _ArrangedStore:
    upstream: Store
    structure: Any

    @property
    def wholesale(self) -> bool:
        return self.upstream.wholesale

    def take(self, rows: Rows) -> Columns:
        return self.structure.unflatten(jax.tree.leaves(self.upstream.take(rows)))

    def describe(self, row: int) -> str:
        return self.upstream.describe(row)


class _ArrangedCursor:
    def __init__(self, upstream: Cursor, structure: Any) -> None:
        self._upstream = upstream
        self._structure = structure

    def next(self, limit: int) -> Block | None:
        block = self._upstream.next(limit)
        return None if block is None else Block(_ArrangedStore(block.store, self._structure), block.rows)

    def state(self) -> State:
        return self._upstream.state()

    def restore(self, state: State) -> None:
        self._upstream.restore(state)

    def close(self) -> None:
        close(self._upstream)
