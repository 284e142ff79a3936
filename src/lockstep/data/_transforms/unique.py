"""`unique`: each element once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lockstep.data import _blocks, _columns, _spec
from lockstep.data._blocks import Block
from lockstep.data._peek import spec_without_looking
from lockstep.data._plan import UNKNOWN, Cursor, Node, Run, State, Transformation
from lockstep.data._structure import TEXT
from lockstep.data._transforms.errors import SequentialCompute, compute_block_or_elements
from lockstep.errors import ArgumentError

_DTYPES = (np.dtype(np.int32), np.dtype(np.int64), TEXT)


class UnsupportedTypeError(ArgumentError, TypeError):
    """An attempt to find the unique ones of elements that are neither whole numbers nor text."""


class Unique(Transformation):
    """The elements that differ from all before them."""

    def __init__(self, upstream: Node) -> None:
        super().__init__(upstream)
        _check_dtypes(spec_without_looking(upstream))

    def open(self, run: Run) -> Cursor:
        return _UniqueCursor(lambda: self.upstream.open(run))

    @property
    def cardinality(self) -> int:
        return UNKNOWN

    @property
    def label(self) -> str:
        return "Unique()"


def _check_dtypes(spec: Any) -> None:
    for leaf in jax.tree.leaves(spec):
        dtype = getattr(leaf, "dtype", None)
        # As TensorFlow: equal floats are rarely what a program means, and NaN equals nothing.
        if dtype not in _DTYPES:
            raise UnsupportedTypeError(
                f"unique does not support type {leaf}: only int32, int64 and text are supported. Cast the elements "
                "with map first."
            )


class _UniqueCursor:
    """A cursor whose state has the number of elements it has returned; `restore` finds them again from the beginning.

    They are not saved: a state is taken before each read, and would hold all of them.
    """

    def __init__(self, open_upstream: Callable[[], Cursor]) -> None:
        self._open_upstream = open_upstream
        self._seen: set[Any] = set()
        self._checked = False
        self._computed = self._compute()

    def _compute(self) -> SequentialCompute:
        return SequentialCompute(self._open_upstream(), lambda block: compute_block_or_elements(self._keep, block))

    def next(self, limit: int) -> Block | None:
        return self._computed.next(limit)

    def _keep(self, block: Block) -> Block | None:
        computed = _blocks.compute_block(block)
        kept: list[int] = []
        for i, element in enumerate(_columns.elements(computed.take())):
            if not self._checked:
                _check_dtypes(_spec.spec_of(element))
                self._checked = True
            key = tuple(map(_key, jax.tree.leaves(element)))
            if key not in self._seen:
                self._seen.add(key)
                kept.append(i)
        return computed[np.array(kept)] if kept else None

    def state(self) -> State:
        return {"upstream": self._computed.state(), "count": len(self._seen)}

    def restore(self, state: State) -> None:
        while (missing := state["count"] - len(self._seen)) > 0:
            # Those that failed did so when they were read first.
            with contextlib.suppress(Exception):
                if self._computed.next(missing) is None:
                    break
        self._computed = self._compute()
        self._computed.restore(state["upstream"])


def _key(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return leaf.shape, tuple(leaf.ravel().tolist())
    return leaf if isinstance(leaf, bytes) else int(leaf)
