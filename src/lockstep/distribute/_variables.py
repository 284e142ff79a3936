"""Keras variables that a replica's function reads and assigns: their values, and how those of replicas are combined."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, Literal

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax import lax
from keras.src import backend
from keras.src.backend.common.stateless_scope import get_stateless_scope
from keras.src.backend.common.variables import Variable, initialize_all_variables
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from lockstep._keras.replica_step import is_seed
from lockstep._step.placement import from_chief, local_copy, place_whole
from lockstep._step.replicas import AXIS, Replicas
from lockstep._step.shares import Shares
from lockstep._step.tracing import is_traced
from lockstep._step.variance import noted
from lockstep.distribute import _context
from lockstep.distribute._reduce import gather, reduce
from lockstep.distribute._replica_context import ReplicaContext
from lockstep.distribute._trace import Known
from lockstep.distribute._values import PerReplica
from lockstep.errors import ArgumentError, UnsupportedError

# added: the variable's value plus something of each replica; set: a value of each replica; together: assigned in a
# merge_call, for all replicas; own: each replica keeps what it assigns.
Way = Literal["added", "set", "together", "own"]


def is_own(variable: Any) -> bool:
    """Whether each replica has a value of its own, which are combined when it is read."""
    return variable.synchronization == "on_read"


def aggregation(variable: Any) -> str:
    """How values of replicas are combined; of batch normalisation's moving averages as tf.keras does it."""
    is_moving = variable.path.endswith(("/moving_mean", "/moving_variance"))
    return "mean" if variable.aggregation == "none" and is_moving else variable.aggregation


@dataclass(frozen=True)
class Assigned:
    """A variable that a replica's function has assigned.

    Attributes:
        variable: The variable.
        way: How.
        result: Its value, or what was added to it.
    """

    variable: Any
    way: Way
    result: Any

    @property
    def is_own(self) -> bool:
        """Whether each replica keeps what it assigned."""
        return self.way == "own"

    @property
    def is_read_together(self) -> bool:
        """Whether the values of the replicas are combined for whoever reads it in cross-replica context."""
        return self.is_own and self.variable.aggregation != "none"

    def read(self, value: Any) -> Any:
        """Returns what cross-replica context reads, of this replica's value; in its trace."""
        return _combined(self.variable.aggregation, value, self.variable)

    def combined(self, before: Any, result: Any, varies: bool) -> Any:
        """Returns the variable's next value, of this replica or of all; in the trace of one.

        Raises:
            ArgumentError: If replicas have assigned different values, and nothing says what becomes of them.
        """
        how = aggregation(self.variable)
        if is_seed(self.variable):
            return result.at[0].set(before[0])
        if self.way == "own" or (not varies and (how != "sum" or self.way == "together")):
            return result
        if how == "sum" and self.way != "together":
            total = lax.psum(result, AXIS)
            return before + total if self.way == "added" else total
        return _combined(how, result, self.variable)


def _combined(how: str, value: Any, variable: Any) -> Any:
    if how == "only_first_replica":
        return lax.all_gather(value, AXIS)[0]
    if how == "mean" and jnp.issubdtype(value.dtype, jnp.inexact):
        return lax.pmean(value, AXIS)
    if how == "sum":
        return lax.psum(value, AXIS)
    raise cannot_combine(variable)


def cannot_combine(variable: Any) -> ArgumentError:
    """Says that replicas have assigned different values, and nothing says what becomes of them."""
    return ArgumentError(
        f"A variable that replicas assign must get the same value from all, or say how to combine theirs. Received: "
        f"different values for {variable.path} ({variable.dtype}{list(variable.shape)}), whose aggregation is "
        f"{variable.aggregation!r}. Make it with aggregation='mean' (floats only), 'sum' or 'only_first_replica', or "
        "combine the values with get_replica_context().all_reduce."
    )


class Scope(keras.StatelessScope):
    """Gives variables their values in one replica's call of its function, and takes what is assigned to them.

    Args:
        context: Of the replica.
        values: Returns the value of a variable; `None` if it is not known.
        sums: For each application of an optimizer, in their order, whether its gradients are to be added up; all those
            not told are.

    Attributes:
        met: Variables that were read or assigned, and are not known.
    """

    def __init__(
        self, context: ReplicaContext, values: Callable[[Any], Any], sums: Callable[[str, list[Any]], bool]
    ) -> None:
        _install()
        super().__init__(initialize_variables=False)
        self.met: dict[int, Any] = {}
        self._context = context
        self._value = values
        self._is_to_sum = sums
        self._variables: dict[int, Any] = {}
        self._ways: dict[int, Way] = {}
        self._added: dict[int, Any] = {}
        self._adding: Any = None
        self._applied = 0
        self._is_applying = False

    def __enter__(self) -> Scope:
        self._outer = current()
        _running.scope = self
        return super().__enter__()

    def __exit__(self, *args: Any, **kwargs: Any) -> None:
        _running.scope = self._outer
        super().__exit__(*args, **kwargs)

    def get_current_value(self, variable: Any) -> Any:
        """Returns the value that the variable has here."""
        key = id(variable)
        if key in self.state_mapping:
            return self.state_mapping[key]
        found = self._value(variable)
        if found is not None:
            return found
        self.met[key] = variable
        return None if self.original_scope is None else self.original_scope.get_current_value(variable)

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Takes what is assigned to a variable."""
        variable, value = update
        key, way = id(variable), self._way(variable)
        if self._value(variable) is None:
            self.met[key] = variable
        if way == "added":
            self._added[key] = self._added[key] + self._adding if key in self._added else self._adding
        self._variables[key] = variable
        self._ways[key] = way
        self.state_mapping[key] = value

    def _way(self, variable: Any) -> Way:
        if is_own(variable):
            return "own"
        if _context.is_merging():
            return "together"
        return "added" if self._adding is not None and self._ways.get(id(variable), "added") == "added" else "set"

    def assigned(self) -> list[Assigned]:
        """Returns what was assigned."""
        return [self._assignment(self._variables[key], way) for key, way in self._ways.items()]

    def _assignment(self, variable: Any, way: Way) -> Assigned:
        if way == "added" and variable.aggregation != "sum":
            way = "set"
        values = self._added if way == "added" else self.state_mapping
        return Assigned(variable, way, lax.convert_element_type(values[id(variable)], variable.dtype))

    def add(self, assign: Any, variable: Any, value: Any, sign: int) -> Any:
        """Calls `assign_add` or `assign_sub`, and knows that it is one."""
        added: Any = backend.convert_to_tensor(value, variable.dtype)
        self._adding = added * sign
        try:
            return assign(variable, value)
        finally:
            self._adding = None

    def apply(self, apply: Any, optimizer: Any, gradients: Any, *rest: Any, **more: Any) -> Any:
        """Applies an optimizer to the gradients of all replicas."""
        if self._is_applying:  # An optimizer that wraps another one hands down what is summed already.
            return apply(optimizer, gradients, *rest, **more)
        self._is_applying = True
        try:
            if isinstance(optimizer, LossScaleOptimizer):
                return _apply_scaled(optimizer, self._summed(list(gradients)), *rest, **more)
            return apply(optimizer, self._summed(list(gradients)), *rest, **more)
        finally:
            self._is_applying = False

    def _summed(self, gradients: list[Any]) -> list[Any]:
        key, self._applied = str(self._applied), self._applied + 1
        there = [i for i, g in enumerate(gradients) if g is not None]
        own = [noted(jnp.asarray(backend.convert_to_tensor(gradients[i])), key) for i in there]
        if self._is_to_sum(key, own):
            own = self._context._total(own)  # pyright: ignore[reportPrivateUsage]
        for i, value in zip(there, own, strict=True):
            gradients[i] = value
        return gradients


def _apply_scaled(optimizer: Any, gradients: Any, trainable_variables: Any = None) -> None:
    """Applies an optimizer whose `apply` assigns variables under a condition, which JAX would not see."""
    variables = optimizer._trainable_variables if trainable_variables is None else trainable_variables
    if not optimizer.built:
        with backend.name_scope(optimizer.name, caller=optimizer):
            optimizer.build(variables)
    own = optimizer.variables
    values = optimizer.stateless_apply([v.value for v in own], gradients, [v.value for v in variables])
    for of_each, found in zip((variables, own), values, strict=True):
        for variable, value in zip(of_each, found, strict=True):
            variable.assign(value)


_running = threading.local()


def current() -> Scope | None:
    """Returns the scope of the replica's function that runs on this thread."""
    return getattr(_running, "scope", None)


def traced_scope(known: Known, values: Sequence[Any], context: ReplicaContext) -> Scope:
    """Returns the scope of a replica's function that is traced, with values of the known variables."""
    pairs = zip(known.variables, values, strict=True)
    shares = Shares([None], [1.0], AXIS)
    found = {id(v): shares.own_seed(0, value) if is_seed(v) else value for v, value in pairs}
    return Scope(context, lambda v: found.get(id(v)), lambda key, gradients: known.sums.get(key, True))


@cache
def _install() -> None:
    """Lets a scope of ours know how variables are assigned, and optimizers applied; others see no difference."""
    for name, sign in (("assign_add", 1), ("assign_sub", -1)):
        setattr(Variable, name, _adder(getattr(Variable, name), sign))
    for owner in (BaseOptimizer, LossScaleOptimizer):
        owner.apply = _applier(owner.apply)


def _adder(assign: Any, sign: int) -> Any:
    @wraps(assign)
    def add(variable: Any, value: Any) -> Any:
        scope = get_stateless_scope()
        return scope.add(assign, variable, value, sign) if isinstance(scope, Scope) else assign(variable, value)

    return add


def _applier(apply: Any) -> Any:
    @wraps(apply)
    def applied(optimizer: Any, grads: Any, *rest: Any, **more: Any) -> Any:
        scope = current()
        if scope is None:
            return apply(optimizer, grads, *rest, **more)
        return scope.apply(apply, optimizer, grads, *rest, **more)

    return applied


class Held:
    """The values of variables on the replicas, between the calls of a strategy's programs.

    A variable itself holds an ordinary array of this process. One that still holds what it was given has not been
    changed, and its value on the replicas is good.
    """

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        # By id: a sign that the variable lives, what it was given, and what is on the replicas.
        self._held: dict[int, tuple[Any, Any, jax.Array]] = {}

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
        new = [v for v in variables if id(v) not in self._held]
        if new:
            self._meet(new)
        return tuple([self._placed(v) for v in variables])

    def keep(self, variable: Any, placed: jax.Array, read: jax.Array | None) -> None:
        """Takes the value that a program has computed, and gives this process' copy of what is read to the variable.

        Raises:
            UnsupportedError: In a function that is traced and does not know of variables.
        """
        outer = get_stateless_scope()
        if outer is not None:
            return outer.add_update((variable, placed))
        if is_traced(placed):
            raise UnsupportedError(
                "jax.jit does not know of Keras variables, and would lose what is assigned to them. Received: "
                f"strategy.run of a function that assigns {variable.path}, inside of a function that is traced. Call "
                "run outside of it: run compiles its function itself."
            )
        is_unread = is_own(variable) and variable.aggregation == "none"
        variable._direct_assign(_rows_of(placed) if is_unread or read is None else local_copy(read))
        self._remember(variable, placed)

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
            value = Shares([None], [1.0]).own_seed(number, value)
        return jax.device_put(value, device)

    def assign(self, of_each: Sequence[Assigned], is_same: bool) -> None:
        """Gives a variable what the replicas of this process have made of it, one after the other.

        Raises:
            ArgumentError: If they differ, and nothing says how to combine them.
        """
        variable, way, results = of_each[0].variable, of_each[0].way, [a.result for a in of_each]
        how, own = aggregation(variable), PerReplica(results)
        if way == "own":
            rows = [jax.device_put(v[None], d) for v, (_, d) in zip(results, self._replicas.local, strict=True)]
            shape = (self._replicas.count, *variable.shape)
            stack = jax.make_array_from_single_device_arrays(shape, self._replicas.by_example, rows)
            self.keep(variable, stack, None if how == "none" else _joined(self._replicas, how, own, variable))
            return
        before = variable._value
        if is_seed(variable):
            value = results[0].at[0].set(before[0])
        elif is_same and (how != "sum" or way == "together"):
            value = results[0]
        else:
            value = _joined(self._replicas, how, own, variable)
        device = next(iter(before.devices()))
        variable._direct_assign((before if way == "added" else 0) + jax.device_put(value, device))

    def own_values(self, variable: Any) -> PerReplica | None:
        """Returns the values of a variable of which each replica has its own; `None` if that is not so."""
        if not is_own(variable):
            return None
        return _rows_of(self.values([variable])[0])

    def _meet(self, variables: Sequence[Any]) -> None:
        """Where several processes take part, the chief's values count."""
        if any(v._value is None for v in variables):
            initialize_all_variables()
        placed = [self._whole(v) for v in variables]
        if not self._replicas.runtime.is_alone:
            placed = from_chief(self._replicas, placed)
            for variable, value in zip(variables, placed, strict=True):
                variable._direct_assign(local_copy(value))
        for variable, value in zip(variables, placed, strict=True):
            self._remember(variable, self._divided(variable) if is_own(variable) else value)

    def _placed(self, variable: Any) -> jax.Array:
        _, local, placed = self._held[id(variable)]
        if variable._value is local:
            return placed
        value = self._divided(variable) if is_own(variable) else self._whole(variable)
        self._remember(variable, value)
        return value

    def _whole(self, variable: Any) -> jax.Array:
        with jax.ensure_compile_time_eval():  # Also where an outer function is traced.
            return place_whole(self._replicas, variable._value)

    def _divided(self, variable: Any) -> jax.Array:
        """What is assigned for all replicas is divided among them if they add up, else all get it."""
        value, count = np.asarray(variable._value), self._replicas.count
        parts = [_part(value, i, count) if variable.aggregation == "sum" else value for i, _ in self._replicas.local]
        rows = [jax.device_put(p[None], d) for p, (_, d) in zip(parts, self._replicas.local, strict=True)]
        return jax.make_array_from_single_device_arrays((count, *value.shape), self._replicas.by_example, rows)

    def _remember(self, variable: Any, placed: jax.Array) -> None:
        key = id(variable)
        self._held[key] = (weakref.ref(variable, lambda _: self._held.pop(key, None)), variable._value, placed)


def _outer_value(scope: keras.StatelessScope, variable: Any) -> Any:
    if is_own(variable):
        raise UnsupportedError(
            "Variables of which each replica has its own value, such as a metric's, keep these between calls of "
            f"strategy.run. Received: {variable.path} inside of a function that is traced. Call run outside of it."
        )
    value = scope.get_current_value(variable)
    return variable._value if value is None else value


def _joined(replicas: Replicas, how: str, own: PerReplica, variable: Any) -> jax.Array:
    """The values of all replicas, combined as arrays of this process."""
    if how == "sum" or (how == "mean" and jnp.issubdtype(variable.dtype, jnp.inexact)):
        return reduce(replicas, how, own, None)
    if how == "only_first_replica":
        return gather(replicas, PerReplica([v[None] for v in own.values]), 0)[0]
    raise cannot_combine(variable)


def _rows_of(stack: jax.Array) -> PerReplica:
    """The values that are the rows of an array, a row on each replica."""
    shards = sorted(stack.addressable_shards, key=lambda s: s.index[0].start or 0)
    return PerReplica([shard.data[0] for shard in shards], [stack.shape[1:]] * len(stack))


def _part(value: np.ndarray, number: int, count: int) -> np.ndarray:
    """A replica's part of a sum; what does not divide falls to the first."""
    if value.dtype.kind in "iub":
        each = value // count
        return (each + value - each * count if number == 0 else each).astype(value.dtype)
    return (value / np.asarray(count, value.dtype)).astype(value.dtype)
