"""The layout of a user's own state: which of its leaves are arrays, and which pass through as they are.

A step program carries arrays. A state may hold more: functions and settings (Equinox' modules), text, `None`, keys of
`jax.random`. Keys travel as the integers they are made of; what is no array is static, and must come out as it went in.
Python's numbers are static as long as the step leaves them alone (a dropout rate), and arrays as soon as it changes
them (a count of steps).
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.step.program_digest import describe
from lockstep._nest import flatten
from lockstep._types import ArrayLike, PyTree
from lockstep.errors import ArgumentError


class NumbersChange(Exception):
    """Tells that a step changes Python's numbers, those at these positions among the leaves."""

    def __init__(self, positions: frozenset[int]) -> None:
        super().__init__(f"the step changes the numbers at {sorted(positions)}")
        self.positions = positions


@dataclass(frozen=True)
class Key:
    """A leaf that is a key of `jax.random`, or an array of them, carried as integers.

    Attributes:
        implementation: The name of the random generator.
    """

    implementation: str


@dataclass(frozen=True)
class Static:
    """A leaf that passes through.

    Attributes:
        value: The leaf.
    """

    value: Any

    def equals(self, after: ArrayLike) -> bool:
        """Returns whether `after` is the same leaf."""
        # By identity first: a NaN is not equal to itself.
        if after is self.value:
            return True
        # 1, 1.0 and True are equal to Python, but the step was compiled for one of them.
        if isinstance(after, jax.Array) or type(after) is not type(self.value):
            return False
        try:
            return bool(after == self.value)
        except Exception:
            # A comparison of the user's own may raise anything, such as one of arrays of two shapes.
            return False


class Layout:
    """The structure of a state, and the kind of each of its leaves.

    Args:
        state: Any pytree.
        numbers_that_change: The positions of Python's numbers that travel as arrays.
    """

    def __init__(self, state: PyTree, numbers_that_change: frozenset[int] = frozenset()) -> None:
        leaves, self.structure = flatten(state)
        self._treedef = jax.tree.structure(state)  # Compared at each step, in C++.
        self._changing = numbers_that_change
        self._kinds = [_kind(leaf, i in numbers_that_change) for i, leaf in enumerate(leaves)]
        self.names = _names_of(state)
        self.array_names = [n for n, kind in zip(self.names, self._kinds, strict=True) if not isinstance(kind, Static)]

    def describe(self, inputs: Sequence[str]) -> dict[str, Any]:
        """Describes a state and a batch, for messages.

        Args:
            inputs: Descriptions of the arrays of a step: those of the state, and others.
        """
        pairs = zip(self.names, self._kinds, strict=True)
        state = {name: describe(kind.value) for name, kind in pairs if isinstance(kind, Static)}
        # The inputs that follow those of the state are those of the batch.
        state.update(zip(self.array_names, inputs, strict=False))
        return {"batch": inputs[len(self.array_names) :], "state": state}

    def names_in(self, part: Callable[[Any], Any]) -> set[str]:
        """Returns the names of the leaves that are in a part of the state, which a function of the state returns."""
        # A user's function selects by structure: given names in place of arrays, it returns those of the leaves it
        # means.
        named = self.structure.unflatten([_Name(name) for name in self.names])
        return {leaf.name for leaf in jax.tree.leaves(part(named)) if isinstance(leaf, _Name)}

    def fits(self, state: PyTree) -> bool:
        """Returns whether a state has this layout, with the same static leaves."""
        leaves, treedef = jax.tree.flatten(state)
        if treedef != self._treedef:
            return False
        # In each step of a loop of the user's own: no list is made.
        for i, (mine, leaf) in enumerate(zip(self._kinds, leaves, strict=True)):
            theirs = _kind(leaf, i in self._changing)
            if isinstance(mine, Static) and isinstance(theirs, Static):
                if not mine.equals(theirs.value):
                    return False
            elif mine != theirs:
                return False
        return True

    def arrays(self, state: PyTree) -> list[Any]:
        """Returns the arrays of a state that fits; numbers and keys as arrays."""
        pairs = [p for p in zip(self._kinds, jax.tree.leaves(state), strict=True) if not isinstance(p[0], Static)]
        return [leaf if kind is None else jax.random.key_data(leaf) for kind, leaf in pairs]

    def state(self, arrays: Sequence[Any]) -> Any:
        """Returns the state that arrays belong to."""
        rest = iter(arrays)
        leaves: list[Any] = []
        for kind in self._kinds:
            if isinstance(kind, Static):
                leaves.append(kind.value)
            elif isinstance(kind, Key):
                leaves.append(jax.random.wrap_key_data(next(rest), impl=kind.implementation))
            else:
                leaves.append(next(rest))
        return self.structure.unflatten(leaves)

    def after(self, state: PyTree, before: Sequence[Any]) -> list[Any]:
        """Returns the arrays of the state that a step has made.

        Args:
            state: The state after the step.
            before: The arrays that it was given.

        Raises:
            ArgumentError: If the state has another structure, or a leaf has changed its shape or type.
            NumbersChange: If numbers have changed that pass through.
        """
        leaves, structure = flatten(state)
        if structure != self.structure:
            raise ArgumentError(
                f"A step returns a state of the structure it was given. {_first_difference(self, state)} Return the "
                "state with the same containers and keys; what is only shown belongs into the logs."
            )
        # All at once: each round traces the step again.
        changing: set[int] = set()
        after: list[Any] = []
        rest = iter(before)
        for i, (kind, name, leaf) in enumerate(zip(self._kinds, self.names, leaves, strict=True)):
            if not isinstance(kind, Static):
                after.append(_array_after(name, kind, next(rest), leaf))
            elif not kind.equals(leaf):
                # A number that changes can travel as an array; text, or an object, cannot.
                if not isinstance(kind.value, numbers.Number):
                    raise ArgumentError(
                        f"Leaves of the state that are no arrays pass through a step as they are. {name} is "
                        f"{kind.value!r:.80}, and becomes {leaf!r:.80}. Return the one that the step was given, or "
                        "make it an array."
                    )
                changing.add(i)
        if changing:
            raise NumbersChange(frozenset(changing) | self._changing)
        return after


@dataclass(frozen=True)
class _Name:
    """Stands for a leaf of a state; no pytree itself, as text or a tuple may be for a user's function."""

    name: str


def _kind(leaf: ArrayLike, changes: bool) -> Static | Key | None:
    """Returns the kind of a leaf; `None` for an array."""
    if isinstance(leaf, jax.Array):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return Key(str(jax.random.key_impl(leaf))) if is_key else None
    # Objects, text and times have no dtype of jax.
    is_array = isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind not in "OSUMm"
    return None if changes or is_array else Static(leaf)


def _array_after(name: str, kind: Key | None, before: ArrayLike, leaf: ArrayLike) -> Any:
    """Returns the array that a leaf has become, of the shape and dtype that it had."""
    if isinstance(kind, Key) and _kind(leaf, changes=False) != kind:
        raise ArgumentError(
            f"A step returns each leaf of the state with the type it had. {name} is a key of jax.random "
            f"({kind.implementation}), and becomes {_describe(leaf)}. Return a key, such as a part of "
            "jax.random.split(key)."
        )
    array = jnp.asarray(leaf if kind is None else jax.random.key_data(leaf))
    if array.shape != before.shape or array.dtype != before.dtype:
        raise ArgumentError(
            f"A step returns each leaf of the state with the shape and type it had. {name} is {_describe(before)}, "
            f"and becomes {_describe(array)}. Begin with a leaf of that shape and type, or convert it in the step: "
            "value.astype(...)."
        )
    return array


def _describe(value: ArrayLike) -> str:
    if not hasattr(value, "dtype"):
        return f"{value!r:.40}"
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


def _names_of(state: PyTree) -> list[str]:
    """Returns the paths of the leaves, such as "params/dense/kernel"; "state" for a leaf that is the state itself."""
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(state)[0]]
    # They are names in checkpoints. A dict may have both "a/b" and {"a": {"b": ...}}.
    names = [jax.tree_util.keystr(path, simple=True, separator="/") or "state" for path in paths]
    return names if len(set(names)) == len(names) else [jax.tree_util.keystr(path) for path in paths]


def _first_difference(layout: Layout, state: PyTree) -> str:
    here, there = layout.names, _names_of(state)
    missing = [name for name in here if name not in set(there)]
    added = [name for name in there if name not in set(here)]
    if missing or added:
        gone, new = [f"{n} is missing from what it returned" for n in missing[:3]], [f"{n} is new" for n in added[:3]]
        return "; ".join([*gone, *new]).capitalize() + "."
    return f"It was given {str(layout.structure)[:160]}, and returned {str(jax.tree.structure(state))[:160]}."


def find_layout(state: PyTree, trace: Callable[[Layout], None]) -> Layout:
    """Returns the layout of a state under a step: with those numbers as arrays that the step changes.

    Args:
        state: The state.
        trace: Traces the step for a layout; raises the errors of `Layout.after`.
    """
    # Ends: each round makes at least one more number an array.
    layout = Layout(state)
    while True:
        try:
            trace(layout)
            return layout
        except NumbersChange as change:
            layout = Layout(state, change.positions)
