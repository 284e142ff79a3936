"""`scan`: a function of a state and each element."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lockstep._nest import opened
from lockstep.data import _columns, _structure
from lockstep.data._blocks import Block, held
from lockstep.data._peek import peeked_spec
from lockstep.data._plan import Cursor, Node, Run, State, Transformation
from lockstep.errors import InputError


class Scan(Transformation):
    """The outputs of `function(state, element) -> (state, output)`.

    Args:
        upstream: Gives the elements.
        initial: The first state.
        function: Called in order.
    """

    def __init__(self, upstream: Node, initial: Any, function: Callable[..., Any]) -> None:
        super().__init__(upstream)
        self._initial = initial
        self._function = function
        self._spec: Any = None

    def open(self, run: Run) -> Cursor:
        return _ScanCursor(self.upstream.open(run), self._initial, self._function)

    @property
    def spec(self) -> Any:
        if self._spec is None:
            self._spec = peeked_spec(self, self.upstream)
        return self._spec


class _ScanCursor:
    def __init__(self, upstream: Cursor, initial: Any, function: Callable[..., Any]) -> None:
        self._upstream = upstream
        self._carried = initial
        self._function = function

    def next(self, limit: int) -> Block | None:
        block = self._upstream.next(limit)
        if block is None:
            return None
        outputs = [self._step(element) for element in _columns.elements(block.take())]
        return held(_columns.stacked(outputs))

    def _step(self, element: Any) -> Any:
        result = self._function(*opened((self._carried, element)))
        if not isinstance(result, tuple) or len(result) != 2:
            raise InputError(
                f"The function {_structure.name_of(self._function)} of scan must return (state, output). Received: "
                f"{type(result).__name__}."
            )
        self._carried = _structure.normalised(result[0])
        return _structure.normalised(result[1])

    def state(self) -> State:
        leaves = jax.tree.leaves(self._carried)
        return {"upstream": self._upstream.state(), "carried": [_saved(leaf) for leaf in leaves]}

    def restore(self, state: State) -> None:
        self._upstream.restore(state["upstream"])
        structure = jax.tree.structure(self._carried)
        self._carried = structure.unflatten([_loaded(saved) for saved in state["carried"]])


def _saved(leaf: Any) -> str:
    if isinstance(leaf, bytes):
        return "text:" + base64.b64encode(leaf).decode()
    file = io.BytesIO()
    np.save(file, leaf, allow_pickle=False)
    return "array:" + base64.b64encode(file.getvalue()).decode()


def _loaded(saved: str) -> Any:
    kind, _, content = saved.partition(":")
    raw = base64.b64decode(content)
    return raw if kind == "text" else np.load(io.BytesIO(raw), allow_pickle=False)[()]
