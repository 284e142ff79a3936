"""Collects what blocks of converted code assign: tensors computed when it runs, and values that stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from malt.operators.variables import Undefined, UndefinedReturnValue

from lockstep._nest import flatten
from lockstep.compat.tensorflow._functions import staging
from lockstep.compat.tensorflow._functions.refusals import NotCompilableError
from lockstep.compat.tensorflow._functions.scopes import Piece
from lockstep.distribute.internal import Fixed


class Values:
    """The values of some names: of each its structure and its leaves.

    Attributes:
        structures: Of each name.
        leaves: Of each name.
    """

    def __init__(self, values: Sequence[Any]) -> None:
        found = [([value], None) if _is_undefined(value) else flatten(value) for value in values]
        self.leaves = [leaves for leaves, _ in found]
        self.structures = [structure for _, structure in found]

    def arrays(self) -> list[Any]:
        """Returns the leaves that can be computed: tensors and numbers."""
        return [leaf for leaves in self.leaves for leaf in leaves if _is_array(leaf)]

    def filled(self, arrays: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the values with other tensors and numbers."""
        given = iter(arrays)
        return tuple(
            leaves[0]
            if structure is None
            else structure.unflatten([next(given) if _is_array(v) else v for v in leaves])
            for leaves, structure in zip(self.leaves, self.structures, strict=True)
        )


class Branches:
    """Blocks of which one is chosen when compiled code runs.

    Args:
        names: Of what they assign.
        blocks: They return the values of the names.
    """

    def __init__(self, names: Sequence[str], blocks: Sequence[Callable[[], Sequence[Any]]]) -> None:
        self._names = names
        self._values: list[Values] = []
        self._pieces = [Piece(self._collecting(block)) for block in blocks]

    def _collecting(self, block: Callable[[], Sequence[Any]]) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            self._values.append(Values(block()))
            return self._values[-1].arrays()

        return run

    def choose(self, predicate: Any) -> tuple[Any, ...]:
        """Returns the values of the first block if the predicate is true, else those of the second."""
        # Of each result its number in each block; `None` stands for zeros, where a block does not return.
        plan: list[tuple[int | None, int | None]] = []
        builders = [self._builder(i, plan) for i in range(len(self._names))]
        arrays = iter(staging.cond(predicate, self._pieces, plan))
        return tuple(build(arrays) for build in builders)

    def _builder(self, number: int, plan: list[Any]) -> Callable[[Any], Any]:
        """Plans the results of a name; returns what makes its value of them."""
        name = self._names[number]
        sides = [(v.structures[number], v.leaves[number], self._offset(v, number)) for v in self._values]
        undefined = [structure is None for structure, _, _ in sides]
        if all(undefined):
            value = sides[0][1][0]
            return lambda arrays: value
        if any(undefined):
            missing = undefined.index(True)
            if not isinstance(sides[missing][1][0], UndefinedReturnValue):
                raise ValueError(f"'{name}' must also be initialized in the {('main', 'else')[missing]} branch")
            other = sides[1 - missing]
            sides[missing] = other
        (structure, first, at), (other, second, other_at) = sides
        assert structure is not None
        if structure != other:
            raise TypeError(
                f"'{name}' must have the same nested structure in the main and else branches. Received: {structure} "
                f"and {other}."
            )
        kept: list[Any] = []
        for leaf, another in zip(first, second, strict=True):
            both = _is_array(leaf), _is_array(another)
            is_same = not any(both) or (not hasattr(leaf, "dtype") and not hasattr(another, "dtype"))
            if is_same and Fixed(leaf) == Fixed(another):
                kept.append(leaf)
            elif not all(both):
                raise TypeError(
                    f"'{name}' must be a tensor in both branches, or the same value. Received: {leaf!r:.60} in the "
                    f"main branch, and {another!r:.60} in the else branch."
                )
            else:
                kept.append(_COMPUTED)
                plan.append(tuple(None if undefined[i] else (at, other_at)[i] for i in range(2)))
            at, other_at = at + both[0], other_at + both[1]
        return lambda arrays: structure.unflatten([next(arrays) if leaf is _COMPUTED else leaf for leaf in kept])

    def _offset(self, values: Values, number: int) -> int:
        return sum(_is_array(leaf) for leaves in values.leaves[:number] for leaf in leaves)


class Loop:
    """The state of a loop between its turns.

    Args:
        names: Of what its body assigns.
        get_state: Returns their values.
        set_state: Sets them.
        body: The block, of an element if the loop goes over some.

    Attributes:
        first: The tensors and numbers that it begins with.
    """

    def __init__(
        self,
        names: Sequence[str],
        get_state: Callable[[], tuple[Any, ...]],
        set_state: Callable[[Any], None],
        body: Callable[..., Any],
    ) -> None:
        self._names = names
        self._get = get_state
        self._set = set_state
        self._body = body
        self._start = Values(())
        self.first: list[Any] = []

    def settle(self, *element: Any) -> None:
        """Takes the state as it is; names without a value, which the body assigns first, get zeros like its results.

        Args:
            *element: The shape of what the body is given.
        """
        values = self._get()
        missing = [i for i, value in enumerate(values) if _is_undefined(value)]
        if missing:
            found: list[Values] = []

            def run(*given: Any) -> list[Any]:
                self._set(values)
                self._body(*given)
                found.append(Values(self._get()))
                return found[-1].arrays()

            shapes = Piece(run, element).shapes
            zeros = found[-1].filled([jnp.zeros(s.shape, s.dtype) for s in shapes])
            values = tuple(zeros[i] if i in missing else value for i, value in enumerate(values))
        self._set(values)
        self._start = Values(values)
        self.first = self._start.arrays()

    def turn(self, *arrays: Any) -> list[Any]:
        """Computes a turn.

        Raises:
            TypeError: If a name has another structure afterwards, or another value that is no tensor.
        """
        count = len(self.first)
        self._set(self._start.filled(arrays[:count]))
        self._body(*arrays[count:])
        after = Values(self._get())
        for i, name in enumerate(self._names):
            before, now = self._start.leaves[i], after.leaves[i]
            if self._start.structures[i] != after.structures[i]:
                raise NotCompilableError(f"'{name}' has another structure after a turn of its loop")
            for leaf, other in zip(before, now, strict=True):
                if _is_array(leaf) != _is_array(other) or (not _is_array(leaf) and Fixed(leaf) != Fixed(other)):
                    raise NotCompilableError(f"'{name}' is no tensor, and changes from turn to turn of its loop")
        return after.arrays()

    def asking(self, test: Callable[[], Any]) -> Callable[..., list[Any]]:
        """Returns a condition of the loop's tensors."""

        def ask(*arrays: Any) -> list[Any]:
            self._set(self._start.filled(arrays))
            found = test()
            return [getattr(found, "value", found)]

        return ask

    def finish(self, arrays: Sequence[Any]) -> None:
        """Sets the names to what the loop has computed."""
        self._set(self._start.filled(arrays))


_COMPUTED = object()


def _is_undefined(value: Any) -> bool:
    return type(value) in (Undefined, UndefinedReturnValue)


def _is_array(leaf: Any) -> bool:
    if type(leaf) in (bool, int, float, complex):
        return True
    if _is_undefined(leaf):
        return False
    if isinstance(leaf, (np.ndarray, np.generic)):
        return leaf.dtype.kind not in "OSUMm"
    return isinstance(leaf, jax.Array)
