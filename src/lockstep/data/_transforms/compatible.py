"""Inputs that are joined to one dataset by `concatenate`, `sample_from_datasets` or `choose_from_datasets`.

Their elements must have one structure and dtype. Dicts with the same keys in another order are of one structure: the
first input decides the order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import jax

from lockstep._nest import opened
from lockstep._types import PyTree, PyTreeDef
from lockstep.data import _columns, _spec
from lockstep.data._blocks import ArrayStore, Block, Store
from lockstep.data._columns import Columns, Rows
from lockstep.data._peek import spec_if_known, spec_without_looking
from lockstep.data._plan import Cursor, Node, walk
from lockstep.data._transforms.map import Map


class CompatibleInputs:
    """A comparison of several inputs' specs, as early as they are known, and one order of keys for all.

    Args:
        nodes: The inputs.

    Raises:
        IncompatibleElementsError: If their specs are known and differ.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        # Map functions compute with JAX's dtypes: of the same numbers, those that went through one may be narrower.
        self._may_be_narrowed = any(isinstance(n, Map) for node in nodes for n in walk(node))
        self._known: PyTree = None
        self._is_all_known = False
        # tf.data raises while the dataset is made; nothing may be computed then, so only declared specs count here.
        self._compare(spec_without_looking)

    def begin(self) -> Callable[[int, Cursor], Cursor]:
        """Compares again, now that elements may be computed.

        Returns:
            A function of an input's index and its cursor, which returns a cursor with the first input's order of keys.
            Where only reading shows a spec, that cursor compares the elements it reads.

        Raises:
            IncompatibleElementsError: If the specs differ.
        """
        # Computing an element here, at the start of a pass, is what iterating would do next.
        if not self._is_all_known:
            self._compare(spec_if_known)
        check = None if self._is_all_known else _ElementCheck(self._known, self._common)

        def wrap(index: int, cursor: Cursor) -> Cursor:
            order = self._orders[index]
            return cursor if check is None and order is None else _CompatibleCursor(cursor, order, check)

        return wrap

    @property
    def spec(self) -> PyTree:
        """Returns the spec that holds for the elements of all inputs."""
        return self._common([node.spec for node in self._nodes])

    @cached_property
    def _orders(self) -> list[PyTreeDef | None]:
        """Returns for each input the first one's structure, or `None` if its own keys have that order."""
        structures = [jax.tree.structure(spec_if_known(node)) for node in self._nodes]
        # Structures compare equal whatever the order of keys (see `Packed`); what they build shows it.
        texts = [repr(opened(structure.unflatten(range(structure.num_leaves)))) for structure in structures]
        first = structures[0]
        return [
            first if structure == first and text != texts[0] else None
            for structure, text in zip(structures, texts, strict=True)
        ]

    def _compare(self, spec_of: Callable[[Node], PyTree]) -> None:
        specs = [spec_of(node) for node in self._nodes]
        known = [spec for spec in specs if spec is not None]
        self._known = self._common(known) if known else None
        self._is_all_known = len(known) == len(specs)

    def _common(self, specs: Sequence[PyTree]) -> PyTree:
        return _spec.common_spec(specs, self._may_be_narrowed)


class _ElementCheck:
    """A comparison of elements as they are read, such as a generator's; one for all inputs of a pass.

    Args:
        known: The spec of the inputs that have one, or `None`.
        common: Returns the spec that holds for several specs, or raises an error.
    """

    def __init__(self, known: PyTree, common: Callable[[Sequence[PyTree]], PyTree]) -> None:
        self._known = known
        self._common = common

    def __call__(self, block: Block) -> None:
        # Only what is computed already: other blocks are of inputs whose spec is known.
        if isinstance(block.store, ArrayStore):
            spec = _spec.spec_of(_columns.element(block.store.columns, int(block.rows[0])))
            self._known = spec if self._known is None else self._common([self._known, spec])


@dataclass(frozen=True, eq=False)
class _OrderedStore:
    upstream: Store
    structure: PyTreeDef

    @property
    def is_vectorized(self) -> bool:
        return self.upstream.is_vectorized

    def take(self, rows: Rows) -> Columns:
        # Leaves have one order whatever that of the keys.
        return self.structure.unflatten(jax.tree.leaves(self.upstream.take(rows)))

    def describe(self, row: int) -> str:
        return self.upstream.describe(row)


class _CompatibleCursor:
    def __init__(self, upstream: Cursor, order: PyTreeDef | None, check: _ElementCheck | None) -> None:
        self._upstream = upstream
        self._order = order
        self._check = check
        self.state = upstream.state
        self.restore = upstream.restore

    def next(self, limit: int) -> Block | None:
        block = self._upstream.next(limit)
        if block is not None and self._check is not None:
            self._check(block)
        if block is None or self._order is None:
            return block
        return Block(_OrderedStore(block.store, self._order), block.rows)
