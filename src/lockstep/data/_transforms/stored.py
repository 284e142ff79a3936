"""A source with random access: any element by its number."""

from __future__ import annotations

from typing import Any

from lockstep._types import PyTree
from lockstep.data._blocks import Store
from lockstep.data._plan import Cursor, Node, Run, StoreCursor


class StoreSource(Node):
    """The elements of a store.

    Args:
        store: Computes them.
        count: How many there are.
        spec: What they look like.
        label: What they are, for messages.
    """

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
