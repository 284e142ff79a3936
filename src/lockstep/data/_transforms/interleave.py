"""`interleave` and `flat_map`: the datasets that a function returns, several in turns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lockstep.data import _columns
from lockstep.data._blocks import Block, join_blocks
from lockstep.data._peek import first_elements, peek_spec, spec_if_known
from lockstep.data._plan import (
    INFINITE,
    UNKNOWN,
    Cursor,
    DeferredError,
    FunctionTransformation,
    Node,
    Run,
    State,
)
from lockstep.data._spec import generalize


class Interleave(FunctionTransformation):
    """The elements of the datasets of a function: of `cycle` that are open at a time, `block` elements in turns."""

    def __init__(self, upstream: Node, function: Callable[..., Node], cycle: int, block: int) -> None:
        super().__init__(upstream, function)
        self.cycle = cycle
        self.block = block
        self._spec: Any = None

    def open(self, run: Run) -> Cursor:
        return _InterleaveCursor(self, self.upstream.open(run), run)

    @property
    def spec(self) -> Any:
        if self._spec is None:
            # Of the first two datasets: they may be empty, and then an element shows it.
            first = [] if self.captures_iterator else first_elements(self.upstream, 2)
            specs = [spec for e in first if (spec := spec_if_known(self.function(e))) is not None]
            self._spec = functools.reduce(lambda a, b: generalize(a, b) or a, specs) if specs else peek_spec(self)
        return self._spec

    @property
    def cardinality(self) -> int:
        return INFINITE if self.upstream.cardinality == INFINITE else UNKNOWN

    @property
    def label(self) -> str:
        return f"Interleave({self.cycle}, {self.block})"


@dataclass
class _Slot:
    """An open dataset of the cycle, made of element `number`; `before` is the upstream's state before that element."""

    before: State
    number: int
    cursor: Cursor


class _InterleaveCursor:
    """A cursor over a cycle of open datasets; the next element takes the slot of one that ends, as in tf.data."""

    def __init__(self, node: Interleave, upstream: Cursor, run: Run) -> None:
        self._node = node
        self._upstream = upstream
        self._run = run
        self._cycle, self._block = node.cycle, node.block
        self._slots: list[_Slot | None] = [None] * self._cycle
        self._turn = 0
        self._taken = 0
        self._opened_count = 0
        self._ended = False
        self._deferred = DeferredError()

    def next(self, limit: int) -> Block | None:
        self._deferred.raise_deferred()
        parts: list[Block] = []
        try:
            # Blocks are collected up to the limit; with block_length 1 each would otherwise be a batch of one.
            while limit > 0 and (part := self._next_part(limit)) is not None:
                parts.append(part)
                limit -= len(part)
                if self._cycle == 1:  # Nothing to interleave: whatever there is will do.
                    break
        except Exception as error:
            if not parts:
                raise
            self._deferred.defer(error)
        return join_blocks(parts) if parts else None

    def _next_part(self, limit: int) -> Block | None:
        """Returns the next elements of one dataset."""
        idle = 0
        while idle < self._cycle:
            # Opened in its turn and not before, so that an infinite upstream is read as far as needed.
            slot = self._slots[self._turn] or self._open()
            if slot is None:
                idle += 1
                self._next_slot()
                continue
            block = slot.cursor.next(min(limit, self._block - self._taken))
            if block is None:
                # Its place is taken at once, and its turn goes on, as in tf.data.
                self._slots[self._turn] = None
                self._taken = 0
                idle = 0
                # With one slot its turn never ends; the next dataset follows at once.
                if self._cycle > 1:
                    self._next_slot()
                continue
            self._taken += len(block)
            if self._taken == self._block:
                self._next_slot()
            return block
        return None

    def _next_slot(self) -> None:
        self._turn, self._taken = (self._turn + 1) % self._cycle, 0

    def _open(self) -> _Slot | None:
        """Opens a dataset for the next element in the place whose turn it is."""
        if self._ended:
            return None
        # To make the same dataset again on restore, its element is read again from here.
        before = self._upstream.state()
        block = self._upstream.next(1)
        if block is None:
            self._ended = True
            return None
        self._opened_count += 1
        slot = self._slot(before, self._opened_count - 1, block)
        self._slots[self._turn] = slot
        return slot

    def _slot(self, before: State, number: int, block: Block) -> _Slot:
        element = _columns.element(block.take(), 0)
        # The number, not the slot, names the inner pass: random choices do not depend on the cycle's length.
        return _Slot(before, number, self._node.function(element).open(self._run.for_input(number)))

    def state(self) -> State:
        slots = [s and {"before": s.before, "number": s.number, "cursor": s.cursor.state()} for s in self._slots]
        return self._deferred.add_to_state(
            {
                "upstream": self._upstream.state(),
                "slots": slots,
                "turn": self._turn,
                "taken": self._taken,
                "made": self._opened_count,
                "ended": self._ended,
            }
        )

    def restore(self, state: State) -> None:
        state = self._deferred.take_from_state(state)
        for i, saved in enumerate(state["slots"]):
            if saved:
                # A cursor of its own: the one that reads on stands further ahead.
                upstream = self._node.upstream.open(self._run)
                upstream.restore(saved["before"])
                block = upstream.next(1)
                assert block is not None
                self._slots[i] = slot = self._slot(saved["before"], saved["number"], block)
                slot.cursor.restore(saved["cursor"])
        self._upstream.restore(state["upstream"])
        self._turn, self._taken = state["turn"], state["taken"]
        self._opened_count, self._ended = state["made"], state["ended"]
