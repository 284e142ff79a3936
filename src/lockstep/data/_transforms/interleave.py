"""`interleave`, `flat_map`, `sample_from_datasets` and `choose_from_datasets`: several datasets in turns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep.data import _columns
from lockstep.data._blocks import Block, join_blocks
from lockstep.data._peek import first_elements, peek_spec, spec_if_known
from lockstep.data._plan import (
    CHUNK,
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
from lockstep.data._transforms.sequence import CompatibleInputs
from lockstep.errors import InputError


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
        return UNKNOWN

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


class Choose(Node):
    """Elements of several datasets, each from the one that another dataset, or chance, names.

    Args:
        inputs: The datasets, and last the one of choices, if there is one.
        weights: float64 (n,), the probability of each dataset, or `None` if the last input holds choices.
        seed: Of the choices by chance.
        stop: Whether the first dataset that ends, ends all.
        each_iteration: Whether the choices by chance differ from pass to pass.
    """

    def __init__(
        self,
        inputs: Sequence[Node],
        weights: Sequence[float] | None,
        seed: int | None,
        stop: bool,
        each_iteration: bool = False,
    ) -> None:
        self.inputs = tuple(inputs)
        self._weights = None if weights is None else np.asarray(weights, np.float64)
        self._seed = seed
        self._stop = stop
        self._each_iteration = each_iteration
        self._compatible = CompatibleInputs(self._sources)

    @property
    def _sources(self) -> Sequence[Node]:
        return self.inputs if self._weights is not None else self.inputs[:-1]

    def open(self, run: Run) -> Cursor:
        cursors = [node.open(run.for_input(i)) for i, node in enumerate(self.inputs)]
        wrap = self._compatible.begin()
        sources = [wrap(i, cursor) for i, cursor in enumerate(cursors[: len(self._sources)])]
        if self._weights is None:
            choices = _ChoiceReader(cursors[-1], len(sources))
        else:
            choices = _RandomChoices(self._weights, self._seed, self._each_iteration, run)
        return _ChooseCursor(sources, choices, self._stop)

    @property
    def spec(self) -> Any:
        return self._compatible.spec

    @property
    def cardinality(self) -> int:
        counts = [n.cardinality for n in self._sources]
        if self._weights is not None and not self._stop:
            if INFINITE in counts:
                return INFINITE
            return UNKNOWN if UNKNOWN in counts else sum(counts)
        # How many elements a finite input gives depends on the choices.
        if any(n != INFINITE for n in counts):
            return UNKNOWN
        # By choices, the dataset is as long as the choices are.
        return INFINITE if self._weights is not None else self.inputs[-1].cardinality

    @property
    def label(self) -> str:
        weights = self._weights if self._weights is None else self._weights.tolist()
        return f"Choose({weights}, {self._seed}, {self._stop}, {self._each_iteration})"


class _ChooseCursor:
    def __init__(self, inputs: list[Cursor], choices: _RandomChoices | _ChoiceReader, stop: bool) -> None:
        self._inputs = inputs
        self._choices = choices
        self._stop = stop
        self._ended = [False] * len(inputs)
        self._deferred = DeferredError()

    def next(self, limit: int) -> Block | None:
        self._deferred.raise_deferred()
        parts: list[Block] = []
        try:
            # Each element is a block of its own here: a chunk bounds what an endless limit would collect.
            while len(parts) < min(limit, CHUNK) and not all(self._ended):
                choice = self._choices.next()
                # A choice of a dataset that has ended is drawn again: its weight goes to the others, as in tf.data.
                block = None if choice is None or self._ended[choice] else self._inputs[choice].next(1)
                if block is not None:
                    parts.append(block)
                elif choice is None or self._stop:
                    self._ended = [True] * len(self._inputs)
                else:
                    self._ended[choice] = True
                    if self._choices.none_left(self._ended):
                        self._ended = [True] * len(self._inputs)
        except Exception as error:
            if not parts:
                raise
            self._deferred.defer(error)
        return join_blocks(parts) if parts else None

    def state(self) -> State:
        return self._deferred.add_to_state(
            {
                "inputs": [c.state() for c in self._inputs],
                "choices": self._choices.state(),
                "ended": list(self._ended),
            }
        )

    def restore(self, state: State) -> None:
        state = self._deferred.take_from_state(state)
        for cursor, saved in zip(self._inputs, state["inputs"], strict=True):
            cursor.restore(saved)
        self._choices.restore(state["choices"])
        self._ended = list(state["ended"])


class _RandomChoices:
    """Random choices, each of which depends on its number alone."""

    def __init__(self, weights: np.ndarray[Any, Any], seed: int | None, each_iteration: bool, run: Run) -> None:
        # A dataset of weight 0 never ends, because it is never read.
        self._possible = (weights > 0).tolist()
        self._limits = np.cumsum(weights / weights.sum())
        self._draws = lambda chunk: run.random(seed, chunk, each_iteration)
        self._chunk = -1
        self._drawn: list[int] = []
        self._number = 0

    def next(self) -> int:
        chunk, place = divmod(self._number, CHUNK)
        if chunk != self._chunk:
            # Inverse of the cumulative distribution: one uniform number per choice, whatever the weights are.
            drawn = np.searchsorted(self._limits, self._draws(chunk).random(CHUNK), side="right")
            self._chunk, self._drawn = chunk, np.minimum(drawn, len(self._limits) - 1).tolist()
        self._number += 1
        return self._drawn[place]

    def none_left(self, ended: list[bool]) -> bool:
        """Returns whether no dataset that goes on can be chosen."""
        return not any(possible and not end for possible, end in zip(self._possible, ended, strict=True))

    def state(self) -> State:
        return self._number

    def restore(self, state: State) -> None:
        self._number = state


class _ChoiceReader:
    """Choices read from a dataset of integers."""

    def __init__(self, cursor: Cursor, count: int) -> None:
        self._cursor = cursor
        self._count = count
        self.state = cursor.state
        self.restore = cursor.restore

    def next(self) -> int | None:
        block = self._cursor.next(1)
        if block is None:
            return None
        choice = np.asarray(block.take())
        if choice.shape != (1,) or choice.dtype.kind not in "iu" or not 0 <= choice[0] < self._count:
            raise InputError(
                f"A choice must be a whole number from 0 to {self._count - 1}, the number of a dataset. Received: "
                f"{choice.tolist()} of {choice.dtype}."
            )
        return int(choice[0])

    def none_left(self, ended: list[bool]) -> bool:
        """Returns whether no dataset that goes on can be chosen."""
        return all(ended)
