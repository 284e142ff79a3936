"""Plans: immutable trees of nodes. Opening a node for a pass returns a cursor over its elements.

Opening a plan twice for the same `Run` gives the same elements, on any machine. A cursor's state is small, and made of
dicts, lists, numbers, text and integer arrays.
"""

from __future__ import annotations

import base64
import copy
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from lockstep._types import PyTree
from lockstep.data._blocks import Block, Store
from lockstep.data._purity import has_side_effects, loads_iterator
from lockstep.errors import InputError

# The values of tf.data.INFINITE_CARDINALITY and tf.data.UNKNOWN_CARDINALITY.
INFINITE = -1
UNKNOWN = -2
# How many elements are read at once where it makes no difference to anyone.
CHUNK = 1024

State = Any
_INTEGERS = "integers, base64"
# As earlier versions wrote them.
_PACKED = "int64, zlib, base64"
# The state of a cursor whose next call raises an error.
_POSTPONED = "postponed_error"


@dataclass(frozen=True)
class Run:
    """A pass over a plan: everything that its random choices depend on.

    Attributes:
        entropy: Stands in for seeds that were not given.
        iteration: Which pass this is; one number, and one more for each endless repetition in a repetition.
        path: Which part of the plan this is.
    """

    entropy: int
    iteration: tuple[int, ...] = (0,)
    path: tuple[int, ...] = ()

    def for_input(self, number: int) -> Run:
        """Returns the same pass, for one of several inputs of a node."""
        return replace(self, path=(*self.path, number))

    def random(self, seed: int | None, chunk: int, each_iteration: bool = True) -> np.random.Generator:
        """Returns the generator for a chunk of a node's random choices, which may differ from pass to pass."""
        # The first number keeps seeded and unseeded choices apart. Only unseeded ones depend on the path: a seed means
        # the same wherever the node stands.
        own = (0, seed) if seed is not None else (1, self.entropy, *self.path)
        iteration = self.iteration if each_iteration else ()
        # With the length, no pass and chunk can be the same words as another pass and chunk.
        words = [*own, len(iteration), *iteration, chunk]
        # A generator for each chunk: a position then needs no generator's state, and any chunk can be drawn by itself.
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(words)))


class Cursor(Protocol):
    """A position in the elements of a plan. The elements it returns do not depend on the limits it is called with."""

    def next(self, limit: int) -> Block | None:
        """Returns the next elements, at least one and at most `limit`, or `None` at the end, and ever after."""
        ...

    def state(self) -> State:
        """Returns the position; `restore` of another cursor on the same plan and pass continues there."""
        ...

    def restore(self, state: State) -> None:
        """Continues at a state; called before the first `next`."""
        ...


class Node(ABC):
    """A source, or a transformation of other nodes, its inputs."""

    inputs: Sequence[Node] = ()

    @property
    def replayable(self) -> bool:
        """Returns whether reading ahead, or again, has no effect that a user could see."""
        return all(node.replayable for node in self.inputs)

    @property
    def reads_variables(self) -> bool:
        """Returns whether elements depend on variables that may change: none is computed before its turn."""
        return any(node.reads_variables for node in self.inputs)

    @property
    def asks_for_threads(self) -> bool:
        """Returns whether the program asks for parallel calls of a function that is called for each element."""
        return any(node.asks_for_threads for node in self.inputs)

    @property
    def captures_iterator(self) -> bool:
        """Returns whether a function advances an iterator of the program, which a look at an element would, too."""
        return any(node.captures_iterator for node in self.inputs)

    @property
    def has_signature(self) -> bool:
        """Returns whether the program has declared the spec of this source, so that no element is computed for it."""
        return False

    @abstractmethod
    def open(self, run: Run) -> Cursor:
        """Returns a cursor before the first element."""

    @property
    @abstractmethod
    def spec(self) -> Any:
        """Returns the spec of the elements."""

    @property
    def cardinality(self) -> int:
        """Returns the number of elements, `INFINITE` or `UNKNOWN`."""
        return UNKNOWN

    @property
    def label(self) -> str:
        """Returns the name, and the parameters that the number and order of elements depend on; identifies states."""
        return type(self).__name__

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        """Returns a copy that reads other nodes."""
        # A shallow copy keeps what a node has computed, such as a map function's trace.
        result = copy.copy(self)
        result.inputs = tuple(inputs)
        return result


class Transformation(Node):
    """A node that reads one other, and changes neither its elements nor their number unless it says so."""

    def __init__(self, upstream: Node) -> None:
        self.inputs = (upstream,)

    @property
    def upstream(self) -> Node:
        return self.inputs[0]

    @property
    def spec(self) -> Any:
        return self.upstream.spec

    @property
    def cardinality(self) -> int:
        return self.upstream.cardinality


class FunctionTransformation(Transformation):
    """A transformation by a user's function of an element."""

    def __init__(self, upstream: Node, function: Callable[..., Any]) -> None:
        super().__init__(upstream)
        self.function = function

    @property
    def in_order(self) -> bool:
        """Returns whether the function must be called for each element, in order, because it has side effects."""
        return has_side_effects(self.function)

    @property
    def replayable(self) -> bool:
        return self.upstream.replayable and not self.in_order

    @property
    def captures_iterator(self) -> bool:
        return self.upstream.captures_iterator or loads_iterator(self.function)


class StoreCursor:
    """A cursor over all rows of a store of known length."""

    def __init__(self, store: Store, count: int) -> None:
        self._store = store
        self._count = count
        self._at = 0

    def next(self, limit: int) -> Block | None:
        first = self._at
        self._at = min(first + limit, self._count)
        return Block(self._store, np.arange(first, self._at)) if self._at > first else None

    def state(self) -> State:
        return self._at

    def restore(self, state: State) -> None:
        self._at = state


class DeferredError:
    """An error that the next call raises, because the elements before it are returned first."""

    def __init__(self) -> None:
        self._error: Exception | None = None

    def defer(self, error: Exception) -> None:
        """Defers an error to the next call."""
        self._error = error

    def raise_deferred(self) -> None:
        """Raises the deferred error, once; without one does nothing."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def add_to_state(self, state: PyTree) -> Any:
        """Returns a cursor's state with the deferred error, if there is one."""
        return state if self._error is None else {_POSTPONED: str(self._error), "state": state}

    def take_from_state(self, state: PyTree) -> Any:
        """Returns the state without the error that `add_to_state` added, and defers that error again."""
        if not isinstance(state, dict) or _POSTPONED not in state:
            return state
        self._error = InputError(state[_POSTPONED])
        return state["state"]


class EmptyCursor:
    """A cursor without elements."""

    def next(self, limit: int) -> Block | None:
        return None

    def state(self) -> State:
        return None

    def restore(self, state: State) -> None:
        pass


def walk(node: Node) -> list[Node]:
    """Returns all nodes of a plan, each before its inputs."""
    return [node, *(n for upstream in node.inputs for n in walk(upstream))]


def drop(cursor: Cursor, count: int) -> bool:
    """Drops `count` elements without computing them; returns whether there were so many."""
    while count > 0:
        block = cursor.next(min(count, CHUNK))
        if block is None:
            return False
        count -= len(block)
    return True


def encode_state(state: PyTree) -> Any:
    """Returns a state as a JSON value, with integer arrays as text: a checkpoint is taken between two steps."""
    if isinstance(state, np.ndarray):
        # The smallest dtype that holds them all: most are positions of elements, and small. A number of its own for
        # each would make the JSON of a large shuffle buffer slower than the step it is saved beside.
        lowest, highest = (int(state.min()), int(state.max())) if state.size else (0, 0)
        dtypes = (np.dtype(t) for t in ("<u1", "<u2", "<u4"))
        dtype = next((t for t in dtypes if lowest >= 0 and highest <= np.iinfo(t).max), np.dtype("<i8"))
        narrow = np.ascontiguousarray(state, dtype)
        # dtype.str names the byte order, so a checkpoint moves between machines.
        return {_INTEGERS: [narrow.dtype.str, base64.b64encode(narrow.tobytes()).decode("ascii")]}
    if isinstance(state, dict):
        return {k: encode_state(v) for k, v in state.items()}
    if isinstance(state, (list, tuple)):
        return [encode_state(v) for v in state]
    return int(state) if isinstance(state, np.integer) else state


def decode_state(state: PyTree) -> Any:
    """Returns the state that `encode_state` received."""
    if isinstance(state, dict):
        if _INTEGERS in state:
            dtype, text = state[_INTEGERS]
            # int64 again, because ordinals are subtracted: unsigned ones would wrap.
            return np.frombuffer(base64.b64decode(text), dtype).astype(np.int64)
        if _PACKED in state:
            return np.frombuffer(zlib.decompress(base64.b64decode(state[_PACKED])), "<i8").astype(np.int64)
        return {k: decode_state(v) for k, v in state.items()}
    return [decode_state(v) for v in state] if isinstance(state, list) else state
