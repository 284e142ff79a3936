"""Datasets whose elements come out as those of one dataset must have elements of one structure and dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lockstep.data import _columns, _spec
from lockstep.data._blocks import ArrayStore, Block
from lockstep.data._peek import spec_if_known, spec_without_looking
from lockstep.data._plan import Node, walk
from lockstep.data._transforms.map import Map


class Alike:
    """Compares what the elements of several datasets look like, as early as that is known.

    Args:
        nodes: The datasets.

    Raises:
        IncompatibleElementsError: If they are known to differ.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        # Map functions compute with JAX's dtypes: of the same numbers, those that went through one may be narrower.
        self._may_be_narrowed = any(isinstance(n, Map) for node in nodes for n in walk(node))
        self._is_known = self._compare(spec_without_looking)

    def begin(self) -> Callable[[Block], Block]:
        """Compares again, now that elements may be computed; returns what compares those that only reading shows.

        Raises:
            IncompatibleElementsError: If they differ.
        """
        self._is_known = self._is_known or self._compare(spec_if_known)
        return (lambda block: block) if self._is_known else _Compared(self._may_be_narrowed)

    @property
    def spec(self) -> Any:
        """What holds for the elements of all."""
        return _spec.common([node.spec for node in self._nodes], self._may_be_narrowed)

    def _compare(self, spec_of: Callable[[Node], Any]) -> bool:
        specs = [spec_of(node) for node in self._nodes]
        known = [spec for spec in specs if spec is not None]
        if known:
            _spec.common(known, self._may_be_narrowed)
        return len(known) == len(specs)


class _Compared:
    """Compares the elements that are computed as they are read, such as those of a generator."""

    def __init__(self, may_be_narrowed: bool) -> None:
        self._may_be_narrowed = may_be_narrowed
        self._spec: Any = None

    def __call__(self, block: Block) -> Block:
        if isinstance(block.store, ArrayStore):
            spec = _spec.spec_of(_columns.element(block.store.columns, int(block.rows[0])))
            self._spec = spec if self._spec is None else _spec.common([self._spec, spec], self._may_be_narrowed)
        return block
