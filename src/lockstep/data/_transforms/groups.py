"""`group_by_window` and `group_by_reducer`: elements gathered by a key that a function returns for each."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from lockstep._nest import unpack
from lockstep._types import Element, PyTree
from lockstep.data import _blocks, _columns, _spec, _structure
from lockstep.data._blocks import Block, array_block
from lockstep.data._map_program import MapProgram, wrap_error
from lockstep.data._peek import exact_sizes, peek_spec, spec_if_known
from lockstep.data._plan import (
    CHUNK,
    INFINITE,
    UNKNOWN,
    Cursor,
    FunctionTransformation,
    Node,
    Run,
    State,
)
from lockstep.data._sources import Arrays, Unread
from lockstep.data._transforms.errors import SequentialCompute, compute_block_or_elements
from lockstep.data._transforms.map import decode_leaf, encode_leaf, program_of
from lockstep.errors import InputError

# What a reduce function and a function of window sizes are called with while the spec is looked for.
_ANY_KEY = np.int64(0)


class GroupByWindow(FunctionTransformation):
    """The datasets that a function makes of windows: of consecutive elements with one key, up to the key's size.

    Args:
        upstream: The elements.
        key: Returns an element's key, a whole number.
        reduce: Returns the plan of the dataset for a pair of a key and the dataset of its window.
        size_of: Returns the window size for a key.
        dataset_of: Makes a dataset of a plan.
    """

    def __init__(
        self,
        upstream: Node,
        key: Callable[..., Any],
        reduce: Callable[[Element], Node],
        size_of: Callable[[int], int],
        dataset_of: Callable[[Node], Any],
    ) -> None:
        super().__init__(upstream, reduce)
        self.key = program_of(upstream, key)
        self.size_of = size_of
        self._dataset_of = dataset_of
        self._spec: Any = None

    def open(self, run: Run) -> Cursor:
        # Elements of a generator are read when they are needed and no earlier; so are those of a key with effects.
        return _WindowsCursor(self, self.upstream.open(run), run, CHUNK if self.replayable else 1)

    @property
    def in_order(self) -> bool:
        return super().in_order or self.key.in_order

    @property
    def reads_variables(self) -> bool:
        return self.upstream.reads_variables or self.key.reads_variables

    @property
    def spec(self) -> Any:
        if self._spec is None:
            with exact_sizes():
                self._spec = self._spec_of_unread() or peek_spec(self)
        return self._spec

    def _spec_of_unread(self) -> Any:
        """Returns the spec that the function's dataset declares for a window of unknown elements, or `None`."""
        spec = spec_if_known(self.upstream)
        # A function with side effects would show that it was called once more.
        if spec is None or super().in_order:
            return None
        try:
            return self.reduce(int(_ANY_KEY), Unread(spec)).spec
        except (InputError, NotImplementedError):
            return None

    @property
    def cardinality(self) -> int:
        return INFINITE if self.upstream.cardinality == INFINITE else UNKNOWN

    @property
    def label(self) -> str:
        return "GroupByWindow()"

    def reduce(self, key: int, window: Node) -> Node:
        """Returns the plan that the function makes of a window."""
        return self.function((np.int64(key), self._dataset_of(window)))

    def window(self, parts: list[Block]) -> Node:
        """Returns the plan of a window's elements, which are computed already."""
        return Arrays(_blocks.join_blocks(parts).take(), spec=spec_if_known(self.upstream))


class _WindowsCursor:
    """A cursor over the datasets of the windows, one after another.

    Elements are numbered as they are read, failed ones, too. A state has the numbers of the elements that wait in
    groups, and the upstream's state before the oldest of them: from there they are read again.
    """

    def __init__(self, node: GroupByWindow, upstream: Cursor, run: Run, ahead: int) -> None:
        self._node = node
        self._run = run
        self._reader = _KeyedReader(upstream, node.key, ahead)
        # Of each key: the numbers of the elements that wait, and the elements.
        self._groups: dict[int, list[tuple[int, Block]]] = {}
        self._sizes: dict[int, int] = {}
        # The window whose dataset is being read: its key, the numbers of its elements, and which window it is.
        self._open: tuple[int, list[tuple[int, Block]]] | None = None
        self._cursor: Cursor | None = None
        self._number = 0

    def next(self, limit: int) -> Block | None:
        while True:
            if self._cursor is not None:
                block = self._cursor.next(limit)
                if block is not None:
                    return block
                self._open, self._cursor = None, None
            full = self._read_window()
            if full is None:
                return None
            self._begin(full, self._groups.pop(full))

    def _read_window(self) -> int | None:
        """Reads until a group is full; at the end of the data returns the least key of those that wait, or `None`."""
        while (read := self._reader.next()) is not None:
            number, key, element = read
            if key not in self._sizes:
                self._sizes[key] = self._node.size_of(key)
            group = self._groups.setdefault(key, [])
            group.append((number, element))
            if len(group) >= self._sizes[key]:
                return key
        # TensorFlow flushes what is left in the order of the keys.
        return min(self._groups, default=None)

    def _begin(self, key: int, group: list[tuple[int, Block]]) -> None:
        window = self._node.window([element for _, element in group])
        self._number += 1
        plan = self._node.reduce(key, window)
        self._open, self._cursor = (key, group), plan.open(self._run.for_input(self._number - 1))

    def state(self) -> State:
        waiting = [number for group in self._groups.values() for number, _ in group]
        opened = None
        if self._open is not None and self._cursor is not None:
            key, group = self._open
            waiting += [number for number, _ in group]
            opened = {"key": key, "group": _numbers(group), "cursor": self._cursor.state()}
        return {
            **self._reader.state(min(waiting, default=None)),
            "groups": [[key, _numbers(group)] for key, group in self._groups.items()],
            "sizes": [[key, size] for key, size in self._sizes.items()],
            "open": opened,
            "number": self._number,
        }

    def restore(self, state: State) -> None:
        places = {int(n): key for key, numbers in state["groups"] for n in numbers}
        opened = state["open"]
        group: list[tuple[int, Block]] = []
        again = set[int]() if opened is None else {int(n) for n in opened["group"]}
        for number, element in self._reader.restore(state):
            if number in again:
                group.append((number, element))
            elif number in places:
                self._groups.setdefault(places[number], []).append((number, element))
        self._sizes = dict(state["sizes"])
        self._number = state["number"]
        if opened is not None:
            self._number -= 1
            self._begin(opened["key"], group)
            assert self._cursor is not None
            self._cursor.restore(opened["cursor"])


def _numbers(group: list[tuple[int, Block]]) -> np.ndarray[Any, Any]:
    return np.array([number for number, _ in group], np.int64)


class _KeyedReader:
    """A reader of elements one by one, with their keys; it can read again from any element that still waits."""

    def __init__(self, upstream: Cursor, key: MapProgram, ahead: int) -> None:
        self._key = key
        self._ahead = ahead
        self._keyed = SequentialCompute(
            upstream, lambda block: compute_block_or_elements(lambda b: _with_keys(key, b), block)
        )
        # The number of the next element to be read, and of the next to be handed out.
        self._read = 0
        self._waiting: deque[tuple[int, int, Block]] = deque()
        self._marks: deque[tuple[int, State]] = deque()

    def next(self) -> tuple[int, int, Block] | None:
        """Returns the number, the key and the element of the next one, or `None` at the end."""
        if not self._waiting and not self._read_piece(self._ahead):
            return None
        return self._waiting.popleft()

    def _read_piece(self, limit: int) -> bool:
        self._marks.append((self._read, self._keyed.state()))
        try:
            block = self._keyed.next(limit)
        except Exception:
            self._read += 1
            raise
        if block is None:
            return False
        keys, elements = block.take()
        inner = array_block(elements)
        self._waiting += [(self._read + i, int(key), inner[i : i + 1]) for i, key in enumerate(keys.tolist())]
        self._read += len(block)
        return True

    def state(self, oldest: int | None) -> dict[str, State]:
        """Returns the state from which element `oldest` is read again, or the next one if that is `None`."""
        count = self._waiting[0][0] if self._waiting else self._read
        first = count if oldest is None else oldest
        while len(self._marks) > 1 and self._marks[1][0] <= first:
            self._marks.popleft()
        if first == self._read or not self._marks:
            return {"first": self._read, "count": self._read, "upstream": self._keyed.state()}
        return {"first": self._marks[0][0], "count": count, "upstream": self._marks[0][1]}

    def restore(self, state: State) -> Iterator[tuple[int, Block]]:
        """Goes to a state; yields the numbered elements that were handed out before it and may still wait."""
        self._keyed.restore(state["upstream"])
        self._read = state["first"]
        while self._read < state["count"]:
            try:
                if not self._read_piece(min(self._ahead, state["count"] - self._read)):
                    break
            except Exception:
                continue  # It was raised when these elements were first read.
            while self._waiting:
                number, _, element = self._waiting.popleft()
                yield number, element


def _with_keys(program: MapProgram, block: Block) -> Block:
    """Returns computed pairs of a key and an element."""
    computed = _blocks.compute_block(block)
    columns = computed.take()
    leaves = jax.tree.leaves(program(columns, lambda i: block.store.describe(int(block.rows[i]))))
    # A key of another kind would be rounded or compared by identity.
    if len(leaves) != 1 or getattr(leaves[0], "shape", None) != (len(block),) or leaves[0].dtype.kind not in "iu":
        raise InputError(
            f"The function {_structure.name_of(program.function)} must return a single whole number, the key of an "
            f"element. Received: {[_spec.spec_of(_columns.element(leaf, 0)) for leaf in leaves]}. Cast it to tf.int64."
        )
    return array_block((leaves[0].astype(np.int64), columns))


class GroupByReducer(FunctionTransformation):
    """One element for each key, in the order of the keys, reduced from all elements with it.

    Args:
        upstream: The elements.
        key: Returns an element's key, a whole number.
        initial: Returns the state of a key before its first element.
        reduce: Returns the state after an element: `reduce(state, element)`.
        finalize: Returns the result for a state.
    """

    def __init__(
        self,
        upstream: Node,
        key: Callable[..., Any],
        initial: Callable[..., Any],
        reduce: Callable[..., Any],
        finalize: Callable[..., Any],
    ) -> None:
        super().__init__(upstream, reduce)
        self.key = program_of(upstream, key)
        self._initial = initial
        self._finalize = finalize
        self._spec: Any = None

    def open(self, run: Run) -> Cursor:
        keyed = _KeyedReader(self.upstream.open(run), self.key, CHUNK if self.replayable else 1)
        return _ReducedCursor(keyed, self)

    @property
    def in_order(self) -> bool:
        return super().in_order or self.key.in_order

    @property
    def spec(self) -> Any:
        if self._spec is None:
            self._spec = self._spec_of_initial() or peek_spec(self)
        return self._spec

    def _spec_of_initial(self) -> Any:
        """Returns the spec of the result for a key without elements, or `None`: no element has to be read for it."""
        if self.in_order:
            return None
        try:
            return _spec.spec_of(self.finalize(self.initial(int(_ANY_KEY))))
        except InputError:
            return None

    @property
    def cardinality(self) -> int:
        return UNKNOWN

    @property
    def label(self) -> str:
        return "GroupByReducer()"

    def initial(self, key: int) -> PyTree:
        """Returns the state of a key before its first element."""
        return self._call(self._initial, (np.int64(key),))

    def reduced(self, state: PyTree, element: PyTree) -> PyTree:
        """Returns the state after an element."""
        return self._call(self.function, _structure.copy_arrays((state, element)))

    def finalize(self, state: PyTree) -> PyTree:
        """Returns the result for a state."""
        value = state if type(state) is tuple else (state,)
        return self._call(self._finalize, _structure.copy_arrays(value))

    def _call(self, function: Callable[..., Any], values: tuple[PyTree, ...]) -> PyTree:
        try:
            return _structure.normalize(function(*unpack(values)))
        except Exception as error:
            raise wrap_error(error, f"The function {_structure.name_of(function)} of a reducer failed") from error


class _ReducedCursor:
    """A cursor that reads all elements at its first call; its state then has the states of the keys."""

    def __init__(self, reader: _KeyedReader, node: GroupByReducer) -> None:
        self._reader = reader
        self._node = node
        self._states: dict[int, PyTree] = {}
        self._keys: list[int] | None = None
        self._encoded: State = None
        self._at = 0

    def next(self, limit: int) -> Block | None:
        if self._keys is None:
            while (read := self._reader.next()) is not None:
                _, key, block = read
                state = self._states[key] if key in self._states else self._node.initial(key)
                self._states[key] = self._node.reduced(state, _columns.element(block.take(), 0))
            self._keys = sorted(self._states)
        keys = self._keys[self._at : self._at + limit]
        if not keys:
            return None
        self._at += len(keys)
        return array_block(_columns.stack([self._node.finalize(self._states[key]) for key in keys]))

    def state(self) -> State:
        return {**self._reader.state(None), "at": self._at, "states": self._pack_states()}

    def _pack_states(self) -> State:
        """Returns the states of the keys as text, encoded once: before the end they are found again by reading."""
        if self._keys is not None and self._encoded is None:
            leaves = [[encode_leaf(v) for v in jax.tree.leaves(self._states[key])] for key in self._keys]
            self._encoded = [list(pair) for pair in zip(self._keys, leaves, strict=True)]
        return self._encoded

    def restore(self, state: State) -> None:
        if state["states"] is None:
            return
        list(self._reader.restore(state))
        for key, leaves in state["states"]:
            structure = jax.tree.structure(self._node.initial(key))
            self._states[key] = structure.unflatten([decode_leaf(leaf) for leaf in leaves])
        self._at = state["at"]
        self._keys = sorted(self._states)
