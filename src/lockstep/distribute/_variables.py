"""Keras variables that a replica's function reads, assigns, and takes derivatives by."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import jax.numpy as jnp
import keras
from jax import lax
from keras.src import backend
from keras.src.backend.common.stateless_scope import get_stateless_scope
from keras.src.backend.common.variables import Variable as KerasVariable
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from lockstep._engine.keras.replica_step import is_seed
from lockstep._engine.step import tape
from lockstep._engine.step.aggregation import Shards
from lockstep._engine.step.jaxprs import is_traced
from lockstep._engine.step.replica_invariance import mark_varying, probe
from lockstep._engine.step.replicas import AXIS
from lockstep._types import Array, PyTree, Variable
from lockstep.distribute import _context
from lockstep.distribute._again import Again
from lockstep.distribute._context import ReplicaContext
from lockstep.distribute._replica_values import aggregation, is_own, keep_apart
from lockstep.distribute._values import PerReplica, is_variable
from lockstep.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from lockstep.distribute._trace import Known

# added: the variable's value plus something of each replica; set: a value of each replica; together: assigned in a
# merge_call, for all replicas; own: each replica keeps what it assigns.
Way = Literal["added", "set", "together", "own"]


@dataclass(frozen=True)
class Assigned:
    """A variable that a replica's function has assigned.

    Attributes:
        variable: The variable.
        way: How.
        result: Its value, or what was added to it.
    """

    variable: Variable
    way: Way
    result: PyTree

    @cached_property
    def is_own(self) -> bool:
        """Returns whether each replica keeps what it assigned."""
        return self.way == "own"

    @cached_property
    def is_read_together(self) -> bool:
        """Returns whether the values of the replicas are combined for whoever reads it in cross-replica context."""
        return self.is_own and self.variable.aggregation != "none"

    @cached_property
    def is_unread(self) -> bool:
        """Returns whether there is nothing to read of the values of the replicas but these themselves."""
        return is_own(self.variable) and self.variable.aggregation == "none"

    def read(self, value: PyTree) -> Any:
        """Returns what cross-replica context reads, of this replica's value; in its trace."""
        return _combine(self.variable.aggregation, value, self.variable)

    def combined(self, before: Any, result: PyTree, varies: bool) -> Any:
        """Returns the variable's next value, of this replica or of all; in the trace of one."""
        how = aggregation(self.variable)
        if is_seed(self.variable):
            # The first word of a seed is each replica's own for the call; the second counts draws.
            return result.at[0].set(before[0])
        if self.way == "own" or (not varies and (how != "sum" or self.way == "together")):
            return result
        if how == "sum" and self.way != "together":
            total = lax.psum(result, AXIS)
            return before + total if self.way == "added" else total
        if how == "none" and keep_apart(self.variable):
            # Its value is an input of this trace as one of all replicas.
            raise Again
        return _combine(how, result, self.variable)


def _combine(how: str, value: PyTree, variable: Variable) -> Any:
    if how == "only_first_replica":
        # By a gather, as XLA has no broadcast between processes.
        return lax.all_gather(value, AXIS)[0]
    if how == "mean" and jnp.issubdtype(value.dtype, jnp.inexact):
        return lax.pmean(value, AXIS)
    if how == "sum":
        return lax.psum(value, AXIS)
    raise cannot_combine(variable)


def cannot_combine(variable: Variable) -> ArgumentError:
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
        known: What earlier traces have found; `None` where nothing is traced.

    Attributes:
        met: Variables that were read or assigned, and are not known.
        reader: From a variable and its value to what code reads; for who takes derivatives by variables.
    """

    reader: ClassVar[Callable[[Any, Any], Any]] = staticmethod(lambda _, value: value)

    def __init__(
        self,
        context: ReplicaContext,
        values: Callable[[Any], Any],
        sums: Callable[[str, list[Any]], bool],
        known: Known | None = None,
    ) -> None:
        _install()
        # Keras would give new variables their first values when the scope ends, while the function is still traced.
        super().__init__(initialize_variables=False)
        self.met: dict[int, Any] = {}
        self._context = context
        self._value = values
        self._is_to_sum = sums
        self._known = known
        self._derivatives = 0
        self._variables: dict[int, Any] = {}
        self._ways: dict[int, Way] = {}
        self._added: dict[int, Any] = {}
        self._adding: Any = None
        self._applied = 0
        self._is_applying = False
        self._is_as_given = False

    def __enter__(self) -> Scope:
        self._outer = current()
        _running.scope = self
        return super().__enter__()

    def __exit__(self, *args: Any, **kwargs: Any) -> None:
        _running.scope = self._outer
        super().__exit__(*args, **kwargs)

    def get_current_value(self, variable: Variable) -> Any:
        """Returns the value that the variable has here."""
        return Scope.reader(variable, self._current_value(variable))

    def _current_value(self, variable: Variable) -> Any:
        key = id(variable)
        if key in self.state_mapping:
            return self.state_mapping[key]
        found = self._value(variable)
        if found is not None:
            return found
        self.met[key] = variable
        outer = None if self.original_scope is None else self.original_scope.get_current_value(variable)
        if outer is not None:
            return outer
        known = variable._value
        if isinstance(known, PerReplica):
            # Of this trace, which does not stand: only shape and type count.
            return known.values[0]
        # Keras' regularizers take it as it is, also of a variable that has no value yet.
        return known if known is not None else _first_value(variable)

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Takes what is assigned to a variable."""
        variable, value = update
        key, way = id(variable), self._way(variable)
        # Assigned before it was read: its value of before is needed all the same, to combine the replicas' ones.
        if self._value(variable) is None:
            self.met[key] = variable
        if way == "added":
            self._added[key] = self._added[key] + self._adding if key in self._added else self._adding
        self._variables[key] = variable
        self._ways[key] = way
        self.state_mapping[key] = value

    @property
    def is_traced(self) -> bool:
        """Returns whether the function is traced for all replicas, or runs as it is."""
        return self._known is not None

    @property
    def strategy(self) -> Any:
        """The strategy that runs the function."""
        return self._context.strategy

    @property
    def is_alone(self) -> bool:
        """Returns whether there is one replica."""
        return self._context.num_replicas_in_sync == 1

    @property
    def variables(self) -> Sequence[Any]:
        """The variables that the function is known to read or assign."""
        return () if self._known is None else self._known.variables

    def next_derivatives(self, count: int) -> tuple[str, list[bool]]:
        """Returns the key of derivatives that a tape takes by so many sources, and which of them are known to exist."""
        # By their order, which is what one trace and the next have in common.
        key, self._derivatives = str(self._derivatives), self._derivatives + 1
        connected = None if self._known is None else self._known.connected.get(key)
        return key, [True] * count if connected is None else connected

    def _way(self, variable: Variable) -> Way:
        if is_own(variable):
            return "own"
        if _context.is_merging():
            return "together"
        return "added" if self._adding is not None and self._ways.get(id(variable), "added") == "added" else "set"

    def assigned(self) -> list[Assigned]:
        """Returns what was assigned."""
        return [self._assignment(self._variables[key], way) for key, way in self._ways.items()]

    def _assignment(self, variable: Variable, way: Way) -> Assigned:
        if way == "added" and variable.aggregation != "sum":
            way = "set"
        # Sums of what was added combine; sums of values would count the old value once for each replica.
        values = self._added if way == "added" else self.state_mapping
        return Assigned(variable, way, lax.convert_element_type(values[id(variable)], variable.dtype))

    def add(self, assign: Any, variable: Variable, value: PyTree, sign: int) -> Any:
        """Calls `assign_add` or `assign_sub`, and knows that it is one."""
        added: Any = backend.convert_to_tensor(value, variable.dtype)
        self._adding = added * sign
        try:
            return assign(variable, value)
        finally:
            self._adding = None

    def apply(self, apply: Any, optimizer: Any, gradients: PyTree, *rest: Any, **more: Any) -> Any:
        """Applies an optimizer to the gradients of all replicas."""
        if self._is_applying:  # An optimizer that wraps another one hands down what is summed already.
            return apply(optimizer, gradients, *rest, **more)
        self._is_applying = True
        try:
            # Its scale grows and shrinks under `cond`, where assignments would be lost.
            if isinstance(optimizer, LossScaleOptimizer):
                return _apply_scaled(optimizer, self._summed(list(gradients)), *rest, **more)
            return apply(optimizer, self._summed(list(gradients)), *rest, **more)
        finally:
            self._is_applying = False

    @contextlib.contextmanager
    def as_given(self) -> Generator[None]:
        """Lets optimizers apply gradients as they are: they are the same on all replicas, or variables combine them."""
        self._is_as_given = True
        try:
            yield
        finally:
            self._is_as_given = False

    def _summed(self, gradients: list[Any]) -> list[Any]:
        key, self._applied = str(self._applied), self._applied + 1
        # Keras allows None for a weight that the loss does not depend on.
        there = [i for i, g in enumerate(gradients) if g is not None]
        # Whether they are equal on all replicas shows in the finished record: the probe marks where to look.
        own = [probe(jnp.asarray(backend.convert_to_tensor(gradients[i])), key) for i in there]
        if not self._is_as_given and self._is_to_sum(key, own):
            own = self._context._total(own)  # pyright: ignore[reportPrivateUsage]
        for i, value in zip(there, own, strict=True):
            gradients[i] = value
        return gradients


def _apply_scaled(optimizer: Any, gradients: PyTree, trainable_variables: Any = None) -> None:
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


def _first_value(variable: Variable) -> Any:
    """Returns the value that a variable begins with which has none yet; its shape and type are all that counts."""
    return None if variable._initializer is None else variable._initializer(variable._shape, dtype=variable._dtype)


class _Running(threading.local):
    """Holds the scope of a thread."""

    scope: Scope | None = None


_running = _Running()


def current() -> Scope | None:
    """Returns the scope of the replica's function that runs on this thread."""
    return _running.scope


def traced_scope(known: Known, values: Sequence[Any], context: ReplicaContext) -> Scope:
    """Returns the scope of a replica's function that is traced, with values of the known variables."""
    pairs = zip(known.variables, values, strict=True)
    shares = Shards([None], [1.0], AXIS)
    found = {id(v): shares.own_seed(0, value) if is_seed(v) else value for v, value in pairs}
    return Scope(context, lambda v: found.get(id(v)), lambda key, gradients: known.sums.get(key, True), known)


@cache
def _install() -> None:
    """Lets a scope of ours know how variables are assigned, and optimizers applied; others see no difference."""
    for name, sign in (("assign_add", 1), ("assign_sub", -1)):
        setattr(KerasVariable, name, _adder(getattr(KerasVariable, name), sign))
    for owner in (BaseOptimizer, LossScaleOptimizer):
        owner.apply = _applier(owner.apply)


def _adder(assign: Any, sign: int) -> Any:
    @wraps(assign)
    def add(variable: Variable, value: PyTree) -> Any:
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


class Tape:
    """Takes derivatives of what a replica's function computes, by Keras variables and by its arrays."""

    def __init__(self, scope: Scope, watches_all: bool) -> None:
        self._scope = scope
        self._watches_all = watches_all
        self._start: Any = None
        self._watched: dict[int, Any] = {}  # By the id of a variable: its value when the tape began.
        self._arrays: list[Any] = []

    def begin(self) -> None:
        """Begins to record."""
        self._start = tape.begin()
        for variable in self._scope.variables if self._watches_all else ():
            if variable.trainable:
                self.watch(variable)

    def watch(self, source: Array) -> None:
        """Watches a variable or an array; integers are passed over, as they have no derivatives."""
        if not is_variable(source):
            self._arrays.append(source)
        elif id(source) not in self._watched and _is_float(value := self._scope.get_current_value(source)):
            self._watched[id(source)] = self._scope.state_mapping[id(source)] = tape.watch(value)

    def gradient(self, target: Array, sources: Sequence[Any]) -> list[Any]:
        """Returns the derivatives of a number; `None` by sources that it does not depend on, or are not watched.

        They are this replica's own: an optimizer adds them up over the replicas, even if all have computed the same.

        Raises:
            UnsupportedError: By an array that is watched, and a constant of the compiled function.
        """
        # Derivatives by variables that are constants of this trace would be zeros.
        if self._scope.met:  # Variables that are not known yet: all is traced again.
            return [jnp.zeros(s.shape, s.dtype) if _is_float(s) else None for s in sources]
        own = [self._watched_value(source) for source in sources]
        there = [i for i, value in enumerate(own) if value is not None]
        found: list[Any] = [None] * len(own)
        if not there or not is_traced(target) or self._start is None:
            return found
        key, connected = self._scope.next_derivatives(len(there))
        values = tape.derivatives(self._start, target, [own[i] for i in there], key)
        for i, value, is_connected in zip(there, values, connected, strict=True):
            found[i] = mark_varying(value) if is_connected else None
        return found

    def _watched_value(self, source: Array) -> Any:
        """Returns the value that a derivative is taken by; `None` if it is not watched."""
        if is_variable(source):
            return self._watched.get(id(source))
        # By identity: arrays that are traced cannot be compared by value.
        if not any(source is array for array in self._arrays) or not _is_float(source):
            return None
        if not is_traced(source):
            raise UnsupportedError(
                "Derivatives are taken by variables, and by arrays that a replica's function is given or computes of "
                f"such. Received: a constant, {str(source)[:60]}. Pass it to strategy.run as an argument."
            )
        return source


def _is_float(value: PyTree) -> bool:
    return jnp.issubdtype(value.dtype, jnp.inexact)
