"""`scan`: a function of a state and each element."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from lockstep._nest import opened
from lockstep._types import ArrayLike, Element, PyTree
from lockstep.data import _columns, _division, _structure
from lockstep.data._blocks import Block, array_block
from lockstep.data._failures import FailedElement, wrap_error
from lockstep.data._peek import peek_spec
from lockstep.data._plan import Cursor, FunctionTransformation, Node, Run, State
from lockstep.data._transforms.sequential import Outcome, SequentialCompute, elements_or_errors
from lockstep.errors import InputError


class Scan(FunctionTransformation):
    """The outputs of `function(state, element) -> (state, output)`.

    Args:
        upstream: Gives the elements.
        initial: The first state.
        function: Called in order.
    """

    def __init__(self, upstream: Node, initial: PyTree, function: Callable[..., Any]) -> None:
        super().__init__(upstream, function)
        self._initial = initial
        self._spec: Any = None

    def open(self, run: Run) -> Cursor:
        return _ScanCursor(self.upstream.open(run), self._initial, self.function)

    @property
    def spec(self) -> Any:
        if self._spec is None:
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
        failed: list[FailedElement] = []
        for i, element in enumerate(elements):
            output = self._call_or_error(element, block.store.describe(int(block.rows[i])))
            if isinstance(output, FailedElement):
                failed = [output]
                break
            outputs.append(output)
        if outputs:
            yield Outcome(len(outputs), array_block(_columns.stack(outputs)))
        # The state is left as it was before the element that failed, and the rest of the block goes on from there.
        for error in failed:
            yield Outcome(1, error)
            for i in range(len(outputs) + 1, len(block)):
                yield from self._outcomes(block[i : i + 1])

    def _call_or_error(self, element: Element, where: str) -> Any:
        if isinstance(element, FailedElement):
            return element
        try:
            return self._step(element)
        except Exception as error:
            name = _structure.name_of(self._function)
            return FailedElement(wrap_error(error, f"The function {name} of scan failed at {where}"))

    def _step(self, element: Element) -> Any:
        # As in `map`: TensorFlow raises where numpy warns.
        with _division.raise_on_zero_division(jax.tree.leaves((self._carried, element))):
            result = self._function(*opened(_structure.copy_arrays((self._carried, element))))
        if not isinstance(result, tuple) or len(result) != 2:
            raise InputError(
                f"The function {_structure.name_of(self._function)} of scan must return (state, output). Received: "
                f"{type(result).__name__}."
            )
        self._carried = _structure.normalize(result[0])
        return _structure.normalize(result[1])

    def state(self) -> State:
        leaves = jax.tree.leaves(self._carried)
        return {"upstream": self._computed.state(), "carried": [_encode_leaf(leaf) for leaf in leaves]}

    def restore(self, state: State) -> None:
        self._computed.restore(state["upstream"])
        structure = jax.tree.structure(self._carried)
        self._carried = structure.unflatten([_decode_leaf(saved) for saved in state["carried"]])


def _encode_leaf(leaf: ArrayLike) -> str:
    if isinstance(leaf, bytes):
        return "text:" + base64.b64encode(leaf).decode()
    file = io.BytesIO()
    # A checkpoint must not run code when it is loaded.
    np.save(file, leaf, allow_pickle=False)
    return "array:" + base64.b64encode(file.getvalue()).decode()


def _decode_leaf(saved: str) -> Any:
    kind, _, content = saved.partition(":")
    raw = base64.b64decode(content)
    return raw if kind == "text" else np.load(io.BytesIO(raw), allow_pickle=False)[()]
