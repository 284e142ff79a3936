"""`map`, `filter`, `take_while` and `scan`."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from lockstep._nest import unpack
from lockstep._types import ArrayLike, Element, PyTree
from lockstep.data import _blocks, _columns, _division, _structure
from lockstep.data._blocks import Block, FailedElement, MappedStore, array_block, elements_or_errors
from lockstep.data._map_program import MapProgram, wrap_error
from lockstep.data._peek import exact_sizes, example_of, is_declared, open_declared, peek_spec, spec_if_known
from lockstep.data._plan import UNKNOWN, Cursor, FunctionTransformation, Node, Run, State
from lockstep.data._structure import TEXT
from lockstep.data._transforms.errors import (
    Outcome,
    SequentialCompute,
    compute_block_or_elements,
)
from lockstep.errors import InputError


class _ProgramTransformation(FunctionTransformation):
    """A transformation by a function that may be compiled: the base of `Map` and `Filter`."""

    def __init__(self, upstream: Node, function: Callable[..., Any]) -> None:
        super().__init__(upstream, function)
        self.program = program_of(upstream, function)

    @property
    def in_order(self) -> bool:
        return self.program.in_order

    @property
    def reads_variables(self) -> bool:
        return self.upstream.reads_variables or self.program.reads_variables


class Map(_ProgramTransformation):
    """The results of a function of each element."""

    def __init__(self, upstream: Node, function: Callable[..., Any], workers: int | None) -> None:
        super().__init__(upstream, function)
        self.workers = workers
        self._name = _structure.name_of(function)
        self._spec: Any = None

    @property
    def asks_for_threads(self) -> bool:
        return self.upstream.asks_for_threads or ((self.workers or 1) > 1 and not self.program.is_vectorized)

    def open(self, run: Run) -> Cursor:
        upstream = self.upstream.open(run)
        # Decided when the plan is opened: whether it can be traced may need an element of the upstream.
        if self.program.in_order:
            return _OrderedMapCursor(upstream, self.program, self.workers)
        return _MapCursor(upstream, self.program)

    @property
    def spec(self) -> Any:
        if self._spec is None:
            # A trace gives the spec for nothing; without one two elements are computed.
            with exact_sizes():
                self._spec = self.program.spec or peek_spec(self, self.upstream)
        return open_declared(self._spec, self.upstream) if is_declared() else self._spec

    @property
    def label(self) -> str:
        return f"Map({self._name})"


class _MapCursor:
    """A cursor that only refers to results: they are computed where elements are used."""

    def __init__(self, upstream: Cursor, program: MapProgram) -> None:
        self._upstream = upstream
        self._program = program
        self._last: MappedStore | None = None
        self.state = upstream.state
        self.restore = upstream.restore

    def next(self, limit: int) -> Block | None:
        block = self._upstream.next(limit)
        if block is None:
            return None
        # The same store for the same elements: `join_blocks` recognises stores by identity.
        if self._last is None or self._last.upstream is not block.store:
            self._last = MappedStore(self._program, block.store)
        return Block(self._last, block.rows)


class _OrderedMapCursor:
    """A cursor that calls a function with side effects for each element, in order, on `workers` threads."""

    def __init__(self, upstream: Cursor, program: MapProgram, workers: int | None) -> None:
        self._program = program
        self._workers = workers or 1
        computed = SequentialCompute(upstream, self._outcomes)
        self.next, self.state, self.restore = computed.next, computed.state, computed.restore

    def _outcomes(self, block: Block) -> Iterator[Outcome]:
        elements = elements_or_errors(block, lambda part: _columns.elements(part.take()))

        def call(i: int) -> Any:
            if isinstance(elements[i], FailedElement):
                return elements[i]
            try:
                return self._program.at(elements[i], partial(_where, block, i))
            except Exception as error:
                return FailedElement(error)

        results = _blocks.map_parallel(call, range(len(block)), self._workers)
        # Results before the first error are one block; behind it each is its own, so that no error hides another.
        first = next((i for i, result in enumerate(results) if isinstance(result, FailedElement)), len(results))
        if first:
            yield Outcome(first, self._to_block(results[:first]))
        for result in results[first:]:
            yield Outcome(1, result if isinstance(result, FailedElement) else self._to_block([result]))

    def _to_block(self, results: list[Any]) -> Block | FailedElement:
        try:
            return array_block(self._program.columns(results))
        except InputError as error:
            return FailedElement(error)


class Filter(_ProgramTransformation):
    """The elements for which a function returns a true value."""

    def open(self, run: Run) -> Cursor:
        return _FilterCursor(self.upstream.open(run), self.program)

    @property
    def cardinality(self) -> int:
        return UNKNOWN


class _FilterCursor:
    """A cursor that computes elements and their predicate, and returns computed elements."""

    def __init__(self, upstream: Cursor, program: MapProgram) -> None:
        self._program = program
        computed = SequentialCompute(upstream, lambda block: compute_block_or_elements(self._keep, block))
        self.next, self.state, self.restore = computed.next, computed.state, computed.restore

    def _keep(self, block: Block) -> Block | None:
        computed = _blocks.compute_block(block)
        kept = np.flatnonzero(evaluate_predicate(self._program, computed, block))
        return computed[kept] if len(kept) else None


class TakeWhile(Filter):
    """The elements before the first for which a function returns a false value."""

    def open(self, run: Run) -> Cursor:
        return _TakeWhileCursor(self.upstream.open(run), self.program)


class _TakeWhileCursor:
    def __init__(self, upstream: Cursor, program: MapProgram) -> None:
        self._program = program
        self._computed = SequentialCompute(
            upstream, lambda block: compute_block_or_elements(self._keep, block), lambda: self._ended
        )
        self._ended = False

    def next(self, limit: int) -> Block | None:
        return self._computed.next(limit)

    def _keep(self, block: Block) -> Block | None:
        if self._ended:
            return None
        computed = _blocks.compute_block(block)
        # The whole block is computed at once; what lies behind the first refusal is dropped.
        refused = np.flatnonzero(~evaluate_predicate(self._program, computed, block))
        self._ended = len(refused) > 0
        kept = computed[: refused[0]] if self._ended else computed
        return kept if len(kept) else None

    def state(self) -> State:
        return {"upstream": self._computed.state(), "ended": self._ended}

    def restore(self, state: State) -> None:
        self._computed.restore(state["upstream"])
        self._ended = state["ended"]


def program_of(upstream: Node, function: Callable[..., Any]) -> MapProgram:
    """Returns the program that calls `function` for elements of `upstream`."""
    if not callable(function):
        raise InputError(
            f"A transformation needs a function of an element. Received: {function!r}. Example: "
            "lambda x, y: (x / 255, y)"
        )

    def spec() -> Any:
        # Kept, and compiled for.
        with exact_sizes():
            return spec_if_known(upstream)

    return MapProgram(function, spec, lambda: example_of(upstream))


def evaluate_predicate(program: MapProgram, block: Block, origin: Block) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Returns a predicate's values, bool (k,)."""
    leaves = jax.tree.leaves(program(block.take(), lambda i: _where(origin, i)))
    # numpy would call a non-empty array or text true, and the filter would keep everything.
    is_one = len(leaves) == 1 and isinstance(leaves[0], np.ndarray) and leaves[0].shape == (len(block),)
    if not is_one or leaves[0].dtype == TEXT:
        raise InputError(
            f"The predicate {_structure.name_of(program.function)} must return one truth value for an element. "
            f"Received: {len(leaves)} values, an array or text. Reduce it to one, for example with jnp.all."
        )
    return leaves[0].astype(bool)


def _where(block: Block, i: int) -> str:
    return block.store.describe(int(block.rows[i]))


class Scan(FunctionTransformation):
    """The outputs of `function(state, element) -> (state, output)`, called in order."""

    def __init__(self, upstream: Node, initial: PyTree, function: Callable[..., Any]) -> None:
        super().__init__(upstream, function)
        self._initial = initial
        self._spec: Any = None

    def open(self, run: Run) -> Cursor:
        return _ScanCursor(self.upstream.open(run), self._initial, self.function)

    @property
    def spec(self) -> Any:
        if self._spec is None:
            with exact_sizes():
                self._spec = peek_spec(self, self.upstream)
        return self._spec


class _ScanCursor:
    def __init__(self, upstream: Cursor, initial: PyTree, function: Callable[..., Any]) -> None:
        self._computed = SequentialCompute(upstream, self._outcomes)
        self._carried = initial
        self._function = function
        self.next = self._computed.next

    def _outcomes(self, block: Block) -> Iterator[Outcome]:
        elements = elements_or_errors(block, lambda part: _columns.elements(part.take()))
        outputs: list[Any] = []
        failed: FailedElement | None = None
        for i, element in enumerate(elements):
            if isinstance(element, FailedElement):
                failed = element
                break
            try:
                outputs.append(self._step(element))
            except Exception as error:
                what = f"The function {_structure.name_of(self._function)} of scan failed at {_where(block, i)}"
                failed = FailedElement(wrap_error(error, what))
                break
        if outputs:
            yield Outcome(len(outputs), array_block(_columns.stack(outputs)))
        # The state is left as it was before the element that failed, and the rest of the block goes on from there.
        if failed is not None:
            yield Outcome(1, failed)
            for i in range(len(outputs) + 1, len(block)):
                yield from self._outcomes(block[i : i + 1])

    def _step(self, element: Element) -> Any:
        # As in `map`: TensorFlow raises where numpy warns.
        with _division.raise_on_zero_division((self._carried, element)):
            result = self._function(*unpack(_structure.copy_arrays((self._carried, element))))
        if not isinstance(result, tuple) or len(result) != 2:
            raise InputError(
                f"The function {_structure.name_of(self._function)} of scan must return (state, output). Received: "
                f"{type(result).__name__}."
            )
        self._carried = _structure.normalize(result[0])
        return _structure.normalize(result[1])

    def state(self) -> State:
        leaves = jax.tree.leaves(self._carried)
        return {"upstream": self._computed.state(), "carried": [encode_leaf(leaf) for leaf in leaves]}

    def restore(self, state: State) -> None:
        self._computed.restore(state["upstream"])
        structure = jax.tree.structure(self._carried)
        self._carried = structure.unflatten([decode_leaf(saved) for saved in state["carried"]])


def encode_leaf(leaf: ArrayLike) -> str:
    """Returns a host value as text for a cursor's state."""
    if isinstance(leaf, bytes):
        return "text:" + base64.b64encode(leaf).decode()
    if leaf.dtype == TEXT:
        # numpy saves objects by pickling them. The shape, then each text.
        shape = "x".join(map(str, leaf.shape))
        return ":".join(["texts", shape, *(base64.b64encode(v).decode() for v in leaf.ravel())])
    file = io.BytesIO()
    # A checkpoint must not run code when it is loaded.
    np.save(file, leaf, allow_pickle=False)
    return "array:" + base64.b64encode(file.getvalue()).decode()


def decode_leaf(saved: str) -> Any:
    """Returns the value that `encode_leaf` received."""
    kind, _, content = saved.partition(":")
    if kind == "texts":
        shape, *texts = content.split(":")
        values = np.empty(len(texts), TEXT)
        values[:] = [base64.b64decode(text) for text in texts]
        return values.reshape([int(size) for size in shape.split("x")])
    raw = base64.b64decode(content)
    return raw if kind == "text" else np.load(io.BytesIO(raw), allow_pickle=False)[()]
