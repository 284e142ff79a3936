"""The values of Keras variables on the replicas, between the calls of a strategy's programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src.backend.common.stateless_scope import get_stateless_scope
from keras.src.backend.common.variables import initialize_all_variables

from lockstep._engine.keras.replica_step import is_seed
from lockstep._engine.step.aggregation import Shards
from lockstep._engine.step.jaxprs import is_traced
from lockstep._engine.step.placement import broadcast_from_chief, local_copy, replicate
from lockstep._engine.step.program_digest import describe
from lockstep._engine.step.replicas import Replicas
from lockstep._engine.step.state import LocalCopies
from lockstep.distribute._collectives import gather, reduce
from lockstep.distribute._replica_values import aggregation, is_apart, is_own, keep_apart
from lockstep.distribute._values import PerReplica
from lockstep.distribute._variables import Assigned, cannot_combine
from lockstep.errors import UnsupportedError


class Held:
    """The values of variables on the replicas, between the calls of a strategy's programs.

    A variable itself holds an ordinary array of this process. One that still holds what it was given has not been
    changed, and its value on the replicas is good.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._copies = LocalCopies()

    def values(self, variables: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the values of variables on the replicas; of an outer function that is traced, its own.

        Raises:
            UnsupportedError: For variables of which each replica has its own value, in such a function.
        """
        outer = get_stateless_scope()
        if outer is not None:
            return tuple([_outer_value(outer, v) for v in variables])
        return self._values(variables)

    def _values(self, variables: Sequence[Any]) -> tuple[Any, ...]:
        new = [v for v in variables if v not in self._copies]
        if new:
            # All at once: one comparison and one broadcast, and not a collective for each variable.
            self._place_first(new)
        return tuple([self._placed(v) for v in variables])

    def keep(self, found: Sequence[tuple[Assigned, jax.Array, jax.Array | None]]) -> None:
        """Takes values that a program has computed, and gives this process' copy of what is read to the variables.

        Args:
            found: What was assigned, its value on the replicas, and what is read of it.

        Raises:
            UnsupportedError: In a function that is traced and does not know of variables.
        """
        outer = get_stateless_scope()
        if outer is not None:
            for assigned, placed, _ in found:
                # It is the outer function that returns values; the variable itself changes where that one is called.
                outer.add_update((assigned.variable, placed))
            return
        is_one = self._replicas.count == 1  # What is on its device is an array of this process.
        for assigned, placed, read in found:
            variable = assigned.variable
            if is_traced(placed):
                raise _lost(variable)
            if is_apart(variable):
                # Of several processes each reads that of its own first replica, as in TensorFlow.
                variable._direct_assign(_rows_of(placed).values[0])
            elif assigned.is_unread or read is None:
                variable._direct_assign(_rows_of(placed))
            else:
                variable._direct_assign(read if is_one else local_copy(read))
            self._copies.remember(variable, variable._value, placed)

    def value_of(self, variable: Any, number: int, device: Any) -> Any:
        """Returns what one replica of this process reads of a variable, on its device.

        Raises:
            UnsupportedError: If the variable has no value yet.
        """
        if variable._value is None:
            raise UnsupportedError(
                "Variables that a replica's function reads must exist before replicas run one after the other. "
                f"Received: {variable.path}, which was made by the function. Build the model and the optimizer first."
            )
        value = variable._value
        if is_own(variable):
            shards = self._values([variable])[0].addressable_shards
            value = next(shard.data[0] for shard in shards if shard.device == device)
        elif is_seed(variable):
            value = Shards([None], [1.0]).own_seed(number, value)
        return jax.device_put(value, device)

    def assign(self, of_each: Sequence[Assigned], is_same: bool) -> None:
        """Gives a variable what the replicas of this process have made of it, one after the other.

        Raises:
            ArgumentError: If they differ, and nothing says how to combine them.
        """
        variable, way, results = of_each[0].variable, of_each[0].way, [a.result for a in of_each]
        how, own = aggregation(variable), PerReplica(results)
        if how == "none" and way != "own" and not is_same and keep_apart(variable):
            way = "own"
            of_each = [Assigned(a.variable, "own", a.result) for a in of_each]
        if way == "own":
            rows = [jax.device_put(v[None], d) for v, (_, d) in zip(results, self._replicas.local, strict=True)]
            shape = (self._replicas.count, *variable.shape)
            stack = jax.make_array_from_single_device_arrays(shape, self._replicas.by_example, rows)
            read = None if how == "none" else _join(self._replicas, how, own, variable)
            self.keep([(of_each[0], stack, read)])
            return
        before = variable._value
        if is_seed(variable):
            # Of a seed's two words the first is each replica's own for the call; the second counts draws, alike on all.
            value = results[0].at[0].set(before[0])
        # Equal values still add up where the aggregation is SUM, unless merge_call has assigned one for all.
        elif is_same and (how != "sum" or way == "together"):
            value = results[0]
        else:
            value = _join(self._replicas, how, own, variable)
        device = next(iter(before.devices()))
        variable._direct_assign((before if way == "added" else 0) + jax.device_put(value, device))

    def own_values(self, variable: Any) -> PerReplica | None:
        """Returns the values of a variable of which each replica has its own; `None` if that is not so."""
        if not is_own(variable):
            return None
        return _rows_of(self.values([variable])[0])

    def _place_first(self, variables: Sequence[Any]) -> None:
        """Places variables for the first time; of several processes, the chief's values count."""
        # Keras puts off the first value of a variable that is made in a stateless scope.
        if any(v._value is None for v in variables):
            initialize_all_variables()
        placed = [self._whole(v) for v in variables]
        if not self._replicas.runtime.is_alone:
            # Before the broadcast, which is a sum: with other shapes tasks would hang in it, and not say what differs.
            mine = {f"{i}, {v.path}": describe(v.value) for i, v in enumerate(variables)}
            advice = "Every task must make the same model and optimizer, and use them alike."
            self._replicas.runtime.check_same("variables in strategy.run", mine, advice)
            placed = broadcast_from_chief(self._replicas, placed)
            for variable, value in zip(variables, placed, strict=True):
                # The chief's values are everyone's, so that workers need no common seed.
                variable._direct_assign(local_copy(value))
        for variable, value in zip(variables, placed, strict=True):
            self._copies.remember(variable, variable._value, self._shard(variable) if is_own(variable) else value)

    def _placed(self, variable: Any) -> jax.Array:
        """Returns a variable's value on the replicas: that of the last program, unless it was assigned to since."""
        placed = self._copies.placed(variable, variable._value)
        # One that replicas have just begun to keep apart was placed as a whole.
        if placed is None or placed.ndim != len(variable.shape) + is_own(variable):
            placed = self._shard(variable) if is_own(variable) else self._whole(variable)
            self._copies.remember(variable, variable._value, placed)
        return placed

    def _whole(self, variable: Any) -> jax.Array:
        with jax.ensure_compile_time_eval():  # Also where an outer function is traced.
            return replicate(self._replicas, variable._value)

    def _shard(self, variable: Any) -> jax.Array:
        """Places a row for each replica: a part of the value if replicas are summed, else all of it."""
        value, count = np.asarray(variable._value), self._replicas.count
        # As in TensorFlow (values_util.on_read_assign_cross_replica), where the parts of integers lose what does not
        # divide.
        parts = [_part(value, i, count) if variable.aggregation == "sum" else value for i, _ in self._replicas.local]
        rows = [jax.device_put(p[None], d) for p, (_, d) in zip(parts, self._replicas.local, strict=True)]
        return jax.make_array_from_single_device_arrays((count, *value.shape), self._replicas.by_example, rows)


def _lost(variable: Any) -> UnsupportedError:
    return UnsupportedError(
        "jax.jit does not know of Keras variables, and would lose what is assigned to them. Received: strategy.run of "
        f"a function that assigns {variable.path}, inside of a function that is traced. Call run outside of it: run "
        "compiles its function itself."
    )


def _outer_value(scope: keras.StatelessScope, variable: Any) -> Any:
    if is_own(variable):
        raise UnsupportedError(
            "Variables of which each replica has its own value, such as a metric's, keep these between calls of "
            f"strategy.run. Received: {variable.path} inside of a function that is traced. Call run outside of it."
        )
    value = scope.get_current_value(variable)
    return variable._value if value is None else value


def _join(replicas: Replicas, how: str, own: PerReplica, variable: Any) -> jax.Array:
    """The values of all replicas, combined as arrays of this process."""
    if how == "sum" or (how == "mean" and jnp.issubdtype(variable.dtype, jnp.inexact)):
        return reduce(replicas, how, own, None)
    if how == "only_first_replica":
        # By a gather, as XLA has no broadcast between processes.
        return gather(replicas, PerReplica([v[None] for v in own.values]), 0)[0]
    raise cannot_combine(variable)


def _rows_of(stack: jax.Array) -> PerReplica:
    """The values that are the rows of an array, a row on each replica."""
    # JAX lists shards by device, which need not be the order of the replicas.
    shards = sorted(stack.addressable_shards, key=lambda s: s.index[0].start or 0)
    return PerReplica([shard.data[0] for shard in shards], [stack.shape[1:]] * len(stack))


def _part(value: np.ndarray, number: int, count: int) -> np.ndarray:
    """A replica's part of a sum; what does not divide falls to the first."""
    if value.dtype.kind in "iub":
        each = value // count
        return (each + value - each * count if number == 0 else each).astype(value.dtype)
    return (value / np.asarray(count, value.dtype)).astype(value.dtype)
