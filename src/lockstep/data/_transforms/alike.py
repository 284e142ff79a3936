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
        self._known: Any = None
        self._is_all_known = False
        self._compare(spec_without_looking)

    def begin(self) -> Callable[[Block], Block]:
        """Compares again, now that elements may be computed; returns what compares those that only reading shows.

        Raises:
            IncompatibleElementsError: If they differ.
        """
        if not self._is_all_known:
            self._compare(spec_if_known)
        return (lambda block: block) if self._is_all_known else _Compared(self._known, self._common)

    @property
    def spec(self) -> Any:
        """Returns the spec that holds for the elements of all datasets."""
        return self._common([node.spec for node in self._nodes])

    def _compare(self, spec_of: Callable[[Node], Any]) -> None:
        specs = [spec_of(node) for node in self._nodes]
        known = [spec for spec in specs if spec is not None]
        self._known = self._common(known) if known else None
        self._is_all_known = len(known) == len(specs)

    def _common(self, specs: Sequence[Any]) -> Any:
        return _spec.common(specs, self._may_be_narrowed)


class _Compared:
    """Compares the elements that are computed as they are read, such as those of a generator.

    Args:
        known: What the elements of other datasets look like, or `None`.
        common: Returns what holds for elements of two specs, or raises an error.
    """

    def __init__(self, known: Any, common: Callable[[Sequence[Any]], Any]) -> None:
        self._known = known
        self._common = common

    def __call__(self, block: Block) -> Block:
        if isinstance(block.store, ArrayStore):
            spec = _spec.spec_of(_columns.element(block.store.columns, int(block.rows[0])))
            self._known = spec if self._known is None else self._common([self._known, spec])
        return block
