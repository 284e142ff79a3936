"""`repeat`, `concatenate` and `zip`; inputs whose elements must have one structure and dtype."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax

from lockstep._nest import unpack
from lockstep._types import PyTree, PyTreeDef
from lockstep.data import _columns, _spec
from lockstep.data._blocks import ArrayStore, Block, BlockZipper, Store
from lockstep.data._columns import Columns, Rows
from lockstep.data._peek import spec_if_known, spec_without_looking
from lockstep.data._plan import INFINITE, UNKNOWN, Cursor, Node, Run, State, Transformation, drop, walk
from lockstep.data._transforms.map import Map


class CompatibleInputs:
    """A comparison of several inputs' specs, as early as they are known, and one order of keys for all.

    Their elements must have one structure and dtype. Dicts with the same keys in another order are of one structure:
    the first input decides the order.
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
        """Compares again, now that elements may be computed; returns what wraps the cursor of the input of an index.

        A wrapped cursor has the first input's order of keys. Where only reading shows a spec, it compares the elements.
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
        texts = [repr(unpack(structure.unflatten(range(structure.num_leaves)))) for structure in structures]
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
    """A comparison of elements as they are read, such as a generator's; one for all inputs of a pass."""

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


class Repeat(Transformation):
    """The elements of several passes, one after another; endless if the count is negative."""

    def __init__(self, upstream: Node, count: int) -> None:
        super().__init__(upstream)
        self._count = count

    def open(self, run: Run) -> Cursor:
        return _RepeatCursor(self.upstream, run, self._count)

    @property
    def cardinality(self) -> int:
        count = self.upstream.cardinality
        if self._count == 0 or count == 0:
            return 0
        if self._count < 0:
            return INFINITE
        return count if count < 0 else count * self._count

    @property
    def label(self) -> str:
        return f"Repeat({self._count})"


class _RepeatCursor:
    def __init__(self, node: Node, run: Run, count: int) -> None:
        self._node = node
        self._run = run
        self._count = count
        self._pass = 0
        self._empty = True
        self._upstream: Cursor | None = None

    def next(self, limit: int) -> Block | None:
        while self._count < 0 or self._pass < self._count:
            if self._upstream is None:
                self._upstream = self._open()
            block = self._upstream.next(limit)
            if block is not None:
                self._empty = False
                return block
            if self._empty:  # An endless repetition of nothing ends, as in tf.data.
                self._count = 0
                return None
            self._pass += 1
            self._empty = True
            self._upstream = None
        return None

    def _open(self) -> Cursor:
        # Passes are numbered through: the n-th shuffles alike, whether `repeat` or a second loop over the dataset makes
        # it.
        *outer, iteration = self._run.iteration
        if self._count >= 0:
            numbers = (*outer, iteration * self._count + self._pass)
        else:
            numbers = (*self._run.iteration, self._pass) if iteration else (*outer, self._pass)
        return self._node.open(replace(self._run, iteration=numbers))

    def state(self) -> State:
        upstream = self._upstream and self._upstream.state()
        return {"pass": self._pass, "empty": self._empty, "open": self._upstream is not None, "upstream": upstream}

    def restore(self, state: State) -> None:
        self._pass, self._empty = state["pass"], state["empty"]
        if state["open"]:
            self._upstream = self._open()
            self._upstream.restore(state["upstream"])


class Concatenate(Node):
    """The elements of several datasets, one dataset after another."""

    def __init__(self, inputs: Sequence[Node]) -> None:
        self.inputs = tuple(inputs)
        self._compatible = CompatibleInputs(inputs)

    def open(self, run: Run) -> Cursor:
        return _ConcatenateCursor(self.inputs, run, self._compatible.begin())

    @property
    def spec(self) -> Any:
        return self._compatible.spec

    @property
    def cardinality(self) -> int:
        counts = [node.cardinality for node in self.inputs]
        if UNKNOWN in counts and INFINITE not in counts:
            return UNKNOWN
        return INFINITE if INFINITE in counts else sum(counts)


class _ConcatenateCursor:
    def __init__(self, nodes: Sequence[Node], run: Run, wrap: Callable[[int, Cursor], Cursor]) -> None:
        self._nodes = nodes
        self._run = run
        self._wrap = wrap
        self._index = 0
        self._upstream: Cursor | None = None

    def next(self, limit: int) -> Block | None:
        while self._index < len(self._nodes):
            if self._upstream is None:
                self._upstream = self._open()
            if (block := self._upstream.next(limit)) is not None:
                return block
            self._index += 1
            self._upstream = None
        return None

    def _open(self) -> Cursor:
        return self._wrap(self._index, self._nodes[self._index].open(self._run.for_input(self._index)))

    def state(self) -> State:
        return {"index": self._index, "upstream": self._upstream and {"state": self._upstream.state()}}

    def restore(self, state: State) -> None:
        self._index = state["index"]
        if state["upstream"] is not None:
            self._upstream = self._open()
            self._upstream.restore(state["upstream"]["state"])


class Zip(Node):
    """Elements of several datasets side by side, in the structure that holds the datasets; as many as the shortest."""

    def __init__(self, inputs: Sequence[Node], structure: PyTreeDef) -> None:
        self.inputs = tuple(inputs)
        self._structure = structure

    def open(self, run: Run) -> Cursor:
        return _ZipCursor([node.open(run.for_input(i)) for i, node in enumerate(self.inputs)], self._structure)

    @property
    def spec(self) -> Any:
        return jax.tree.unflatten(self._structure, [node.spec for node in self.inputs])

    @property
    def cardinality(self) -> int:
        counts = [node.cardinality for node in self.inputs]
        finite = [n for n in counts if n >= 0]
        # One empty input decides, whatever the others are.
        if 0 in finite:
            return 0
        if UNKNOWN in counts:
            return UNKNOWN
        return min(finite) if finite else INFINITE


class _ZipCursor:
    """A cursor that keeps what one input returned beyond the others for the next call."""

    def __init__(self, upstreams: list[Cursor], structure: PyTreeDef) -> None:
        self._upstreams = upstreams
        self._beside = BlockZipper(structure)
        self._waiting: list[Block | None] = [None] * len(upstreams)
        # The state of each input before the block that waits, and how much of that block is used up.
        self._before: list[State] = [u.state() for u in upstreams]
        self._used = [0] * len(upstreams)
        self._ended = False

    def next(self, limit: int) -> Block | None:
        for i in range(len(self._upstreams)):
            try:
                # No further than the shortest so far: what lies behind the end of one input is not computed.
                limit = self._read(i, limit)
            except Exception:
                self._drop_beside(i)
                raise
        if self._ended:
            return None
        waiting = [b for b in self._waiting if b is not None]
        count = min(limit, *map(len, waiting))
        for i in range(len(waiting)):
            self._use(i, count)
        return self._beside([b[:count] for b in waiting])

    def _read(self, i: int, limit: int) -> int:
        """Reads an input if nothing of it waits; returns how many elements may be read of the others."""
        if self._waiting[i] is None and not self._ended:
            self._before[i], self._used[i] = self._upstreams[i].state(), 0
            self._waiting[i] = self._upstreams[i].next(limit)
            limit = min(limit, len(self._waiting[i] or ()))
            self._ended = self._waiting[i] is None
        return limit

    def _use(self, i: int, count: int) -> None:
        waiting = self._waiting[i]
        self._waiting[i] = waiting[count:] if waiting is not None and len(waiting) > count else None
        self._used[i] += count

    def _drop_beside(self, failed: int) -> None:
        """Drops the other inputs' elements of the same index as one that failed, so that the inputs stay level."""
        for i in range(len(self._upstreams)):
            if i != failed:
                with contextlib.suppress(Exception):  # It fails in the same place.
                    self._read(i, 1)
                self._use(i, 1)

    def state(self) -> State:
        parts: list[State] = []
        for i, upstream in enumerate(self._upstreams):
            if self._waiting[i] is None:
                parts.append({"state": upstream.state(), "used": 0})
            else:
                parts.append({"state": self._before[i], "used": self._used[i]})
        return {"inputs": parts, "ended": self._ended}

    def restore(self, state: State) -> None:
        self._ended = state["ended"]
        for upstream, part in zip(self._upstreams, state["inputs"], strict=True):
            upstream.restore(part["state"])
            if not self._ended:
                # What was returned of the block that waited; the rest is read again.
                drop(upstream, part["used"])
