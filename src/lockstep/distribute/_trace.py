"""Traces of a replica's function: its results, and the variables that it assigns."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.step import sequential_emulation, tape
from lockstep._engine.step.replica_invariance import find_varying
from lockstep._engine.step.replicas import AXIS
from lockstep._nest import flatten
from lockstep._types import PyTree
from lockstep.distribute._again import Again
from lockstep.distribute._arguments import Fixed
from lockstep.distribute._context import ReplicaContext, as_replica
from lockstep.distribute._replica_values import is_own
from lockstep.distribute._values import is_variable
from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep.distribute._variables import Assigned, Scope


# A layer's variables are there after one trace, an optimizer's after the next.
_MOST_TRACES = 4


@dataclass
class Known:
    """Findings of earlier traces of a function.

    Attributes:
        variables: Keras variables that it reads or assigns.
        sums: Whether gradients that an optimizer applies are to be added up, by the number of the application.
        connected: Which sources a target depends on, by the number of the derivatives that tapes take.
    """

    variables: list[Any]
    sums: dict[str, bool]
    connected: dict[str, list[bool]] = field(default_factory=dict[str, list[bool]])
    made_again: int = 0

    def note_new(self, variables: Iterable[Any]) -> None:
        """Takes note of variables that a trace has found.

        Raises:
            ArgumentError: If each trace makes new ones.
        """
        new = [v for v in variables if v._value is None]
        self.made_again += bool(new)
        if self.made_again > _MOST_TRACES:
            raise ArgumentError(
                "A function of strategy.run may make variables the first time that it runs, and keeps them. Received: "
                f"new ones in each of {self.made_again} traces, such as {new[0].path}. Make variables once: outside of "
                "the function, or where it finds none, such as `if self.v is None: self.v = tf.Variable(0.)`; for what "
                "lives during a call use a tensor."
            )

    def note_connected(self, key: str, now: list[bool]) -> bool:
        """Takes note of what a trace has found; returns whether it went by something else."""
        before = self.connected.get(key)
        # Once connected, always: traces that disagree would otherwise follow each other for ever.
        self.connected[key] = now if before is None else [a or b for a, b in zip(before, now, strict=True)]
        return self.connected[key] != (before or [True] * len(now))


@dataclass(frozen=True, eq=False)
class Returned:
    """Record of one replica's call of the function: results and assignments without the values of arrays.

    Attributes:
        structure: Of what the function returns.
        leaves: Of each leaf: `None` for an array, else the value itself.
        variables: The Keras variables among its leaves, by the number of the array.
        assigned: Variables.
    """

    structure: PyTree
    leaves: Sequence[Fixed | None]
    variables: Mapping[int, Any]
    assigned: Sequence[Assigned]


@dataclass(frozen=True, eq=False)
class Made:
    """Results of a trace, without their values.

    Attributes:
        structure: Of what the function returns.
        leaves: Of each leaf: `None` for an array, else the value of each replica, or one that all have.
        variables: The Keras variables among its leaves, by the number of the array.
        varies: Of each array: whether it varies between replicas.
        shapes: Of each array, of one replica.
        assigned: Variables.
        changes: Of each: whether what was assigned varies.
    """

    structure: PyTree
    leaves: Sequence[Sequence[Any] | None]
    variables: Mapping[int, Any]
    varies: Sequence[bool]
    shapes: Sequence[tuple[int, ...]]
    assigned: Sequence[Assigned]
    changes: Sequence[bool]


class Trace:
    """Traces a function."""

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
        # By the number of the replica; of 0 if one trace stands for all.
        self._returned: dict[int, Returned] = {}

    def run(self, *inputs: Any) -> list[Any]:
        """Calls the function with this replica's arrays, and values of the known variables.

        Returns:
            The arrays that it returns, and what it assigns.
        """
        count = len(self._numbers)
        args, kwargs = self._arguments(dict(zip(self._numbers, inputs[:count], strict=True)))
        scope = self._scope(inputs[count:])
        with as_replica(self._context), scope or contextlib.nullcontext(), _advice():
            returned = self._function(*args, **kwargs)
            leaves, structure = flatten(returned)
            # A variable's value is that after the function: in its scope, outside of which it has the one of before.
            arrays = [_array_of(leaf) for leaf in leaves]
        self._check(scope)
        fixed = [Fixed(leaf) if array is None else None for leaf, array in zip(leaves, arrays, strict=True)]
        of_arrays = [leaf for leaf, array in zip(leaves, arrays, strict=True) if array is not None]
        variables = {i: leaf for i, leaf in enumerate(of_arrays) if is_variable(leaf)}
        assigned = [] if scope is None else scope.assigned()
        turn = sequential_emulation.current()
        # By replica: shards of other sizes may have made Python return another value, which is no array of the record.
        self._returned[0 if turn is None else turn.number] = Returned(structure, fixed, variables, assigned)
        return [a for a in arrays if a is not None] + [a.result for a in assigned]

    def _scope(self, values: Sequence[Any]) -> Scope | None:
        if "keras" not in sys.modules:
            return None
        from lockstep.distribute._variables import traced_scope

        return traced_scope(self._known, values, self._context)

    def _check(self, scope: Scope | None) -> None:
        if scope is None:
            # The function has imported Keras: variables that it used were constants of this trace.
            if "keras" in sys.modules:
                raise Again
        elif scope.met:
            self._known.note_new(scope.met.values())
            # Their values were constants of this trace; in the next one they are its inputs.
            self._known.variables += scope.met.values()
            raise Again

    def filled(self, records: Sequence[Any]) -> list[Any]:
        """Returns records of `run`, for shares of one batch, with the derivatives in them that tapes have taken."""
        connected: dict[str, list[bool]] = {}
        axes = [(AXIS, self._context.num_replicas_in_sync)]
        found = [tape.fill_derivatives(record, axes, connected) for record in records]
        # A list, not a generator: each of them has to be noted.
        if any([self._known.note_connected(key, now) for key, now in connected.items()]):
            raise Again
        return found

    def made(self, records: Sequence[Any], own: Sequence[bool]) -> Made:
        """Returns what the trace says of its results.

        Raises:
            Again: If gradients are equal on all replicas already, which were added up; or the other way around.
            ArgumentError: If replicas have returned different structures, or assigned different variables.
        """
        notes: dict[str, bool] = {}
        found = find_varying(records[0] if len(records) == 1 else records, own, AXIS, notes)
        wrong = {key: varies for key, varies in notes.items() if self._known.sums.get(key, True) != varies}
        # Gradients that average_gradients has made equal must not be added up: they would count once for each replica.
        # That shows only in the record, so the first trace adds up what it is given.
        if wrong:
            self._known.sums.update(wrong)
            raise Again
        returned = [self._returned[i] for i in range(len(records))]
        _demand_alike(returned)
        first = returned[0]
        count = sum(leaf is None for leaf in first.leaves)
        # With one replica nothing varies, whatever it asks for its number.
        is_one = self._context.num_replicas_in_sync == 1
        found = [varies and not is_one for varies in found]
        varies = [is_own(first.variables[i]) and not is_one if i in first.variables else v for i, v in enumerate(found)]
        shapes = [aval.shape for aval in records[0].out_avals[:count]]
        changes = found[count : count + len(first.assigned)]  # What follows is kept for the next call.
        leaves = [_values_of(column) for column in zip(*(r.leaves for r in returned), strict=True)]
        return Made(first.structure, leaves, first.variables, varies[:count], shapes, first.assigned, changes)

    def finished(
        self, made: Made, results: Sequence[Any], inputs: Sequence[Any]
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Returns outputs, values of the assigned variables, and reads of those of which each replica has one."""
        count = len(made.varies)
        # The sum over replicas of what is no array of jax's is taken by jax as so many times the same.
        results = [jnp.asarray(v) for v in results]
        before = {id(v): value for v, value in zip(self._known.variables, inputs[len(self._numbers) :], strict=True)}
        values = [
            a.combined(before[id(a.variable)], value, varies)
            for a, value, varies in zip(made.assigned, results[count:], made.changes, strict=True)
        ]
        reads = [a.read(v) for a, v in zip(made.assigned, values, strict=True) if a.is_read_together]
        after = before | {id(a.variable): value for a, value in zip(made.assigned, values, strict=True)}
        outputs = [after[id(made.variables[i])] if i in made.variables else results[i] for i in range(count)]
        return outputs, values, reads


@contextlib.contextmanager
def _advice() -> Generator[None]:
    """Tells programs that were written for `jax.pmap` how replicas communicate here."""
    try:
        yield
    except NameError as error:
        # jax has no class for it: the text is all there is to go by.
        if "axis name" in str(error):
            error.add_note(
                "In functions of strategy.run replicas communicate by lockstep.distribute.get_replica_context(): "
                "all_reduce('mean', value) in place of jax.lax.pmean(value, axis_name), all_gather in place of "
                "jax.lax.all_gather."
            )
        raise


def _array_of(leaf: Any) -> Any:
    """Returns a leaf as an array; `None` for anything else, which is returned as it is."""
    if isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
        return jnp.asarray(leaf)
    return jnp.asarray(leaf.value) if is_variable(leaf) else None


def _demand_alike(returned: Sequence[Returned]) -> None:
    """Raises `ArgumentError` unless all replicas have returned the same structure, and assigned the same variables."""
    sequential_emulation.check_one_structure([r.structure for r in returned])
    kinds = [["array" if leaf is None else "value" for leaf in r.leaves] for r in returned]
    returned_variables = [[v.path for v in r.variables.values()] for r in returned]
    assigned = [[f"{a.variable.path} ({a.way})" for a in r.assigned] for r in returned]
    for what, of_each in (("return", kinds), ("return", returned_variables), ("assign", assigned)):
        odd = next((i for i, one in enumerate(of_each) if one != of_each[0]), None)
        if odd is not None:
            raise ArgumentError(
                f"All replicas must {what} the same, for shards of any size. Received: replica 0: {of_each[0]}; "
                f"replica {odd}: {of_each[odd]}. Look for a condition that depends on the size of a shard."
            )


def _values_of(column: Sequence[Fixed | None]) -> Sequence[Any] | None:
    """Returns a leaf that is no array as one value that all replicas have, or one of each."""
    values = [leaf for leaf in column if leaf is not None]
    if not values:
        return None
    return [leaf.value for leaf in (values if any(v != values[0] for v in values) else values[:1])]
