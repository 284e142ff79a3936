"""One trace of a replica's function: its results, what they are, and what becomes of variables that it assigns."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._step import tape, variance
from lockstep._step.replicas import AXIS
from lockstep.distribute._arguments import Fixed
from lockstep.distribute._replica_context import ReplicaContext, as_replica
from lockstep.distribute._values import is_variable

if TYPE_CHECKING:
    from lockstep.distribute._variables import Assigned, Scope


class Again(Exception):  # It is a way out of a trace, not an error.
    """The trace has found what it should have known at its start; with that, it is to be made again."""


@dataclass
class Known:
    """What earlier traces of a function have found.

    Attributes:
        variables: Keras variables that it reads or assigns.
        sums: Whether gradients that an optimizer applies are to be added up, by the number of the application.
        connected: Which sources a target depends on, by the number of the derivatives that tapes take.
    """

    variables: list[Any]
    sums: dict[str, bool]
    connected: dict[str, list[bool]] = field(default_factory=dict[str, list[bool]])

    def note_connected(self, key: str, now: list[bool]) -> bool:
        """Takes note of what a trace has found; returns whether it went by something else."""
        before = self.connected.get(key)
        self.connected[key] = now if before is None else [a or b for a, b in zip(before, now, strict=True)]
        return self.connected[key] != (before or [True] * len(now))


@dataclass(frozen=True, eq=False)
class Made:
    """What a trace says of its results.

    Attributes:
        structure: Of what the function returns.
        leaves: Of each leaf: `None` for an array, else the value itself.
        varies: Of each array: whether it varies between replicas.
        shapes: Of each array, of one replica.
        assigned: Variables.
        changes: Of each: whether what was assigned varies.
    """

    structure: Any
    leaves: Sequence[Fixed | None]
    varies: Sequence[bool]
    shapes: Sequence[tuple[int, ...]]
    assigned: Sequence[Assigned]
    changes: Sequence[bool]


class Trace:
    """Traces a function.

    Args:
        function: Of one replica.
        arguments: Makes its (args, kwargs) of arrays, by the number of the leaf.
        numbers: The leaves that are arrays.
        originals: Python's numbers that are given as arrays, by the number of the leaf.
        known: What earlier traces have found.
        context: Of the replica.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Callable[[Mapping[int, Any]], Any],
        numbers: Sequence[int],
        known: Known,
        context: ReplicaContext,
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._numbers = numbers
        self._known = known
        self._context = context
        self._structure: Any = None
        self._leaves: list[Fixed | None] = []
        self._assigned: list[Assigned] = []

    def run(self, *inputs: Any) -> list[Any]:
        """Calls the function with this replica's arrays, and values of the known variables.

        Returns:
            The arrays that it returns, and what it assigns.

        Raises:
            Again: If there are other variables.
        """
        count = len(self._numbers)
        args, kwargs = self._arguments(dict(zip(self._numbers, inputs[:count], strict=True)))
        scope = self._scope(inputs[count:])
        with as_replica(self._context), scope or contextlib.nullcontext(), _advice():
            returned = self._function(*args, **kwargs)
        self._check(scope)
        leaves, self._structure = jax.tree.flatten(returned)
        arrays = [_array_of(leaf) for leaf in leaves]
        self._leaves = [Fixed(leaf) if array is None else None for leaf, array in zip(leaves, arrays, strict=True)]
        self._assigned = [] if scope is None else scope.assigned()
        return [a for a in arrays if a is not None] + [a.result for a in self._assigned]

    def _scope(self, values: Sequence[Any]) -> Scope | None:
        if "keras" not in sys.modules:
            return None
        from lockstep.distribute._variables import traced_scope

        return traced_scope(self._known, values, self._context)

    def _check(self, scope: Scope | None) -> None:
        if scope is None:
            if "keras" in sys.modules:
                raise Again
        elif scope.met:
            self._known.variables += scope.met.values()
            raise Again

    def filled(self, records: Sequence[Any]) -> list[Any]:
        """Returns records of `run`, for shares of one batch, with the derivatives in them that tapes have taken.

        Raises:
            Again: If it was not known which sources a target does not depend on: for these a tape returns nothing.
        """
        connected: dict[str, list[bool]] = {}
        axes = [(AXIS, self._context.num_replicas_in_sync)]
        found = [tape.filled(record, axes, connected) for record in records]
        if any([self._known.note_connected(key, now) for key, now in connected.items()]):
            raise Again
        return found

    def made(self, record: Any, own: Sequence[bool]) -> Made:
        """Returns what the trace says of its results.

        Args:
            record: The closed jaxpr of `run`.
            own: Which of its inputs may differ between replicas.

        Raises:
            Again: If gradients are equal on all replicas already, which were added up.
        """
        notes: dict[str, bool] = {}
        found = variance.varying(record, own, AXIS, notes)
        equal = {key: False for key, varies in notes.items() if not varies and self._known.sums.get(key, True)}
        if equal:
            self._known.sums.update(equal)
            raise Again
        count = sum(leaf is None for leaf in self._leaves)
        is_one = self._context.num_replicas_in_sync == 1
        found = [varies and not is_one for varies in found]
        arrays = found[:count]
        shapes = [aval.shape for aval in record.out_avals[:count]]
        changes = found[count : count + len(self._assigned)]  # What follows is kept for the next call.
        return Made(self._structure, self._leaves, arrays, shapes, self._assigned, changes)

    def finished(
        self, made: Made, results: Sequence[Any], inputs: Sequence[Any]
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Returns outputs, values of the assigned variables, and what is read of those of which each replica has one.

        Args:
            made: What the trace says.
            results: Of `run`.
            inputs: What these are for.
        """
        count = len(made.varies)
        before = {id(v): value for v, value in zip(self._known.variables, inputs[len(self._numbers) :], strict=True)}
        values = [
            a.combined(before[id(a.variable)], value, varies)
            for a, value, varies in zip(made.assigned, results[count:], made.changes, strict=True)
        ]
        reads = [a.read(v) for a, v in zip(made.assigned, values, strict=True) if a.is_read_together]
        return list(results[:count]), values, reads


@contextlib.contextmanager
def _advice() -> Generator[None]:
    """Tells programs that were written for `jax.pmap` how replicas communicate here."""
    try:
        yield
    except NameError as error:
        if "axis name" in str(error):
            error.add_note(
                "In functions of strategy.run replicas communicate by lockstep.distribute.get_replica_context(): "
                "all_reduce('mean', value) in place of jax.lax.pmean(value, axis_name), all_gather in place of "
                "jax.lax.all_gather."
            )
        raise


def _array_of(leaf: Any) -> Any:
    """A leaf of what the function returns as an array; `None` for anything else, which is returned as it is."""
    if isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
        return jnp.asarray(leaf)
    return jnp.asarray(leaf.value) if is_variable(leaf) else None
