"""What a state of a user's own looks like: which of its leaves are arrays, and which pass through as they are.

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
from lockstep.errors import ArgumentError


class NumbersChange(Exception):
    """The step changes Python's numbers, those at these positions among the leaves."""

    def __init__(self, positions: frozenset[int]) -> None:
        super().__init__(f"the step changes the numbers at {sorted(positions)}")
        self.positions = positions


@dataclass(frozen=True)
class Key:
    """A leaf that is a key of `jax.random`, or an array of them; it travels as integers.

    Attributes:
        implementation: Of the random generator.
    """

    implementation: str

    def wrapped(self, data: Any) -> Any:
        """Returns the key that integers stand for."""
        return jax.random.wrap_key_data(data, impl=self.implementation)


@dataclass(frozen=True)
class Static:
    """A leaf that passes through.

    Attributes:
        value: What it is.
    """

    value: Any

    def is_left_alone(self, after: Any) -> bool:
        """Whether `after` is the same."""
        if after is self.value:
            return True
        if isinstance(after, jax.Array) or type(after) is not type(self.value):
            return False
        try:
            return bool(after == self.value)
        except Exception:  # What cannot be compared is not known to be the same.
            return False


class Layout:
    """The structure of a state, and what each of its leaves is.

    Args:
        state: Any pytree.
        numbers_that_change: The positions of Python's numbers that travel as arrays.
    """

    def __init__(self, state: Any, numbers_that_change: frozenset[int] = frozenset()) -> None:
        leaves, self.structure = flatten(state)
        self._treedef = jax.tree.structure(state)  # Compared at each step, in C++.
        self._changing = numbers_that_change
        self._kinds = [_kind(leaf, i in numbers_that_change) for i, leaf in enumerate(leaves)]
        self.names = _names(state)
        self.array_names = [n for n, kind in zip(self.names, self._kinds, strict=True) if not isinstance(kind, Static)]

    @property
    def has_numbers(self) -> bool:
        """Whether there are numbers of Python's that the step may turn out to change."""
        return any(isinstance(k, Static) and isinstance(k.value, numbers.Number) for k in self._kinds)

    def told(self, inputs: Sequence[str]) -> dict[str, Any]:
        """Returns what a state and a batch are, for messages.

        Args:
            inputs: What is said of the arrays of a step: those of the state, and others.
        """
        pairs = zip(self.names, self._kinds, strict=True)
        state = {name: describe(kind.value) for name, kind in pairs if isinstance(kind, Static)}
        state.update(zip(self.array_names, inputs, strict=False))
        return {"batch": inputs[len(self.array_names) :], "state": state}

    def names_in(self, part: Callable[[Any], Any]) -> set[str]:
        """Returns the names of the leaves that are in a part of the state, which a function of the state returns."""
        marked = self.structure.unflatten([_Mark(name) for name in self.names])
        return {leaf.name for leaf in jax.tree.leaves(part(marked)) if isinstance(leaf, _Mark)}

    def fits(self, state: Any) -> bool:
        """Whether a state is laid out like this, with the same static leaves."""
        leaves, treedef = jax.tree.flatten(state)
        if treedef != self._treedef:
            return False
        kinds = (_kind(leaf, i in self._changing) for i, leaf in enumerate(leaves))
        return all(_alike(mine, theirs) for mine, theirs in zip(self._kinds, kinds, strict=True))

    def arrays(self, state: Any) -> list[Any]:
        """Returns the arrays of a state that fits; numbers and keys as arrays."""
        pairs = zip(self._kinds, jax.tree.leaves(state), strict=True)
        return [_as_array(kind, leaf) for kind, leaf in pairs if not isinstance(kind, Static)]

    def state(self, arrays: Sequence[Any]) -> Any:
        """Returns the state that arrays belong to."""
        rest = iter(arrays)
        leaves = [_leaf(kind, rest) for kind in self._kinds]
        return self.structure.unflatten(leaves)

    def after(self, state: Any, before: Sequence[Any]) -> list[Any]:
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
        changing: set[int] = set()
        found: list[Any] = []
        rest = iter(before)
        for i, (kind, name, leaf) in enumerate(zip(self._kinds, self.names, leaves, strict=True)):
            if not isinstance(kind, Static):
                found.append(_kept(name, kind, next(rest), leaf))
            elif not kind.is_left_alone(leaf):
                if not isinstance(kind.value, numbers.Number):
                    raise _changed_static(name, kind.value, leaf)
                changing.add(i)
        if changing:
            raise NumbersChange(frozenset(changing) | self._changing)
        return found


class _Mark:
    """Stands for a leaf of a state.

    Attributes:
        name: Its name.
    """

    def __init__(self, name: str) -> None:
        self.name = name


def _kind(leaf: Any, changes: bool) -> Static | Key | None:
    """What a leaf is; `None` for an array."""
    if isinstance(leaf, jax.Array):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return Key(str(jax.random.key_impl(leaf))) if is_key else None
    is_array = isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind not in "OSUMm"
    return None if changes or is_array else Static(leaf)


def _alike(mine: Static | Key | None, theirs: Static | Key | None) -> bool:
    if isinstance(mine, Static):
        return isinstance(theirs, Static) and mine.is_left_alone(theirs.value)
    return mine == theirs


def _as_array(kind: Key | None, leaf: Any) -> Any:
    return leaf if kind is None else jax.random.key_data(leaf)


def _leaf(kind: Static | Key | None, rest: Any) -> Any:
    if isinstance(kind, Static):
        return kind.value
    return next(rest) if kind is None else kind.wrapped(next(rest))


def _kept(name: str, kind: Key | None, before: Any, leaf: Any) -> Any:
    """The array that a leaf has become, of the shape and type that it had."""
    if isinstance(kind, Key) and _kind(leaf, changes=False) != kind:
        raise ArgumentError(
            f"A step returns each leaf of the state with the type it had. {name} is a key of jax.random "
            f"({kind.implementation}), and becomes {_described(leaf)}. Return a key, such as a part of "
            "jax.random.split(key)."
        )
    array = jnp.asarray(leaf if kind is None else jax.random.key_data(leaf))
    if array.shape != before.shape or array.dtype != before.dtype:
        raise ArgumentError(
            f"A step returns each leaf of the state with the shape and type it had. {name} is {_described(before)}, "
            f"and becomes {_described(array)}. Begin with a leaf of that shape and type, or convert it in the step: "
            "value.astype(...)."
        )
    return array


def _changed_static(name: str, before: Any, after: Any) -> ArgumentError:
    return ArgumentError(
        f"Leaves of the state that are no arrays pass through a step as they are. {name} is {before!r:.80}, and "
        f"becomes {after!r:.80}. Return the one that the step was given, or make it an array."
    )


def _described(value: Any) -> str:
    if not hasattr(value, "dtype"):
        return f"{value!r:.40}"
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


def _names(state: Any) -> list[str]:
    """Names of the leaves: their paths, such as "params/dense/kernel"; a leaf that is the state itself is "state"."""
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(state)[0]]
    names = [jax.tree_util.keystr(path, simple=True, separator="/") or "state" for path in paths]
    return names if len(set(names)) == len(names) else [jax.tree_util.keystr(path) for path in paths]


def _first_difference(layout: Layout, state: Any) -> str:
    here, there = layout.names, _names(state)
    missing = [name for name in here if name not in set(there)]
    added = [name for name in there if name not in set(here)]
    if missing or added:
        return (
            "; ".join(
                [*(f"{n} is missing from what it returned" for n in missing[:3]), *(f"{n} is new" for n in added[:3])]
            ).capitalize()
            + "."
        )
    return f"It was given {str(layout.structure)[:160]}, and returned {str(jax.tree.structure(state))[:160]}."


Examined = Callable[[Layout], Any]


def settled(state: Any, examine: Examined) -> Layout:
    """Returns the layout of a state under a step: with those numbers as arrays that it changes.

    Args:
        state: The state.
        examine: Traces the step for a layout; raises what `Layout.after` raises.
    """
    layout = Layout(state)
    while True:
        try:
            examine(layout)
            return layout
        except NumbersChange as found:
            layout = Layout(state, found.positions)
