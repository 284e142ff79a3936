"""The scope of one model_fn call: values of its variables, and records of its trace."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from lockstep._engine.step.jaxprs import current_trace, is_traced
from lockstep._types import DType, Tensor, Variable
from lockstep.errors import ArgumentError, StartupOrderError, UnsupportedError
from lockstep.estimator._model_fn.lookups import Take, current_watch, resize
from lockstep.estimator._model_fn.records import Check, GradientSite, HostNeed, SummaryOp, TraceRecords
from lockstep.estimator._model_fn.variables import (
    GLOBAL_STEP,
    Entry,
    Variables,
    belongs_to_metric,
    impurity_error,
    wrap_keras,
)

Partition = Callable[[tuple[int, ...], str], Sequence[int]]


class _Running(threading.local):
    """Holds the scope of a thread: a writer or a reader in the background must not see that of a trace."""

    scope: ModelScope | None = None


_running = _Running()


class ReachedGradient(Exception):
    """Control flow: the call has reached the gradients it was traced for, of this loss by these variables."""

    def __init__(self, loss: Tensor, keys: tuple[str, ...]) -> None:
        super().__init__()
        self.loss = loss
        self.keys = keys


class ModelScope(keras.StatelessScope):
    """The scope that makes one call of a model_fn a pure function of its variables.

    Args:
        variables: The registry of variables.
        mode: "train", "eval" or "infer".
        values: Current values of variables, by key; missing ones are zero (in the first call).
        texts: Integers computed from text, in the first call's order; `None` in the first call.
        gradients: The gradients at each gradient site.
        stop_at: The gradient site at which to leave the call by `ReachedGradient`.
        replicas: Number of replicas.
        is_read_only: Whether assignments have no effect: the call computes from the values as they are.

    Attributes:
        recorded: The records of the trace.
        collections: Values by the name of a collection, such as those of `lockstep.estimator.losses`.
        loss_reduction: The reduction of the last loss of `lockstep.estimator.losses` or Keras; `None` if there was
            none.
        assigned: The keys of assigned variables.
        shown_steps: Each global step that the model_fn was given, by its id.
        is_calling: Whether the model_fn runs.
    """

    def __init__(
        self,
        variables: Variables,
        mode: str,
        values: Mapping[str, Any],
        *,
        texts: Sequence[Any] | None = None,
        gradients: Sequence[Sequence[Any]] | None = None,
        stop_at: int | None = None,
        replicas: int = 1,
        is_read_only: bool = False,
    ) -> None:
        wrap_keras(current)
        # Keras would compute first values when the scope closes; here they are needed in a new training only.
        super().__init__(initialize_variables=False)
        self.mode = mode
        self.replicas = replicas
        self.recorded = TraceRecords()
        self.collections: dict[str, list[Any]] = {}
        self.loss_reduction: str | None = None
        self.assigned: set[str] = set()
        self.shown_steps: dict[int, Any] = {}
        self._variables = variables
        self._values = dict(values)
        self._texts = texts
        self._gradients = gradients
        self._stop_at = stop_at
        self._is_read_only = is_read_only
        # How often each variable was looked up; and whether the model_fn runs, and not a rule after it.
        self._lookups: dict[str, int] = {}
        self.is_calling = False
        # Variables and keys by id; the variables are kept alive so that no id is reused.
        self._registered: dict[int, tuple[Any, str]] = {}
        self._keys: dict[str, Any] = {}
        self._own: dict[str, Any] = {}
        self._partition: Partition | None = None
        # The key, initializer and locality of the variable that is created next.
        self._pending: tuple[str, Callable[[Mapping[str, Any]], Any], bool] | None = None
        dtype = jax.dtypes.canonicalize_dtype(np.int64)
        step = Entry(
            GLOBAL_STEP, (), dtype.name, False, False, "only_first_replica", lambda values: np.zeros((), dtype)
        )
        # TensorFlow's create_global_step: each graph of an Estimator has one, whether or not the model_fn asks for it.
        variables.entries.setdefault(GLOBAL_STEP, step)
        self._values.setdefault(GLOBAL_STEP, jnp.zeros((), dtype))

    def __enter__(self) -> ModelScope:
        self._before = current()
        self._trace = current_trace()
        _running.scope = self
        return super().__enter__()

    def __exit__(self, *args: Any, **kwargs: Any) -> None:
        _running.scope = self._before
        super().__exit__(*args, **kwargs)

    @property
    def global_step(self) -> jax.Array:
        """Returns the number of steps done before this one: an integer of no dimensions."""
        step = self._values[GLOBAL_STEP]
        self.shown_steps[id(step)] = step
        return step

    @property
    def values(self) -> dict[str, Any]:
        """Returns the current value of each variable, by key."""
        return dict(self._values)

    def replace_values(self, values: Mapping[str, Any]) -> None:
        """Sets the current value of each variable."""
        self._values = dict(values)

    def trainable_variables(self) -> list[Any]:
        """Returns the trainable variables registered so far, in order of creation."""
        return [v for v in self._keys.values() if v.trainable]

    @property
    def variables(self) -> dict[str, Any]:
        """Returns the variables registered so far, by key."""
        return dict(self._keys)

    @property
    def is_first_call(self) -> bool:
        """Returns whether this is the call that finds out what the model_fn does."""
        return not self._variables.is_complete

    @property
    def is_read_only(self) -> bool:
        """Returns whether assignments of this call are left out."""
        return self._is_read_only

    def key_of(self, variable: Variable) -> str:
        """Returns the name of a variable in checkpoints, such as "dense/kernel"."""
        registered = self._registered.get(id(variable))
        return registered[1] if registered else self._register_existing(variable)

    def known_key_of(self, variable: Variable) -> str | None:
        """Returns the name of a variable in checkpoints; `None` if it is not registered so far."""
        registered = self._registered.get(id(variable))
        return None if registered is None else registered[1]

    def slot(self, variable: Variable, name: str, initial: Callable[[Any], Any] = jnp.zeros_like) -> Any:
        """Returns a slot of a variable, such as its momentum; its first value is `initial` of the variable's."""
        owner = self.key_of(variable)
        first: Callable[[Mapping[str, Any]], Any] = lambda values: initial(jnp.asarray(values[owner]))  # noqa: E731
        slot = jax.eval_shape(initial, jax.ShapeDtypeStruct(tuple(variable.shape), variable.dtype))
        return self.derived_variable(f"{owner}/{name}", first, slot.shape, slot.dtype)

    def variable(
        self, name: str, initial: Callable[[], Any], shape: Sequence[int], dtype: DType, local: bool = False
    ) -> Any:
        """Returns a non-trainable variable, created on first use; see `derived_variable`."""
        return self.derived_variable(name, lambda values: initial(), shape, dtype, local)

    def derived_variable(
        self,
        name: str,
        initial: Callable[[Mapping[str, Any]], Any],
        shape: Sequence[int],
        dtype: DType,
        local: bool = False,
    ) -> Any:
        """Returns a non-trainable variable, of the key `name`, created on first use.

        `initial` computes the first value from those of earlier variables, by key. A `local` one starts anew in each
        run and is in no checkpoint.
        """
        if name not in self._own:
            # Keras' constructor calls `register`, which takes the pending entry; its own "zeros" is never used.
            self._pending = (name, initial, local)
            self._own[name] = keras.Variable(
                "zeros", tuple(shape), jnp.dtype(dtype).name, trainable=False, name=name.replace("/", "_")
            )
        return self._own[name]

    def gradients(self, loss: Tensor, variables: Sequence[Any]) -> list[Any]:
        """Returns the gradients of a loss (of its sum, if it is an array), as values, averaged over the replicas."""
        # The model_fn is traced up to here once more for them; XLA merges duplicate computations.
        site = GradientSite(tuple(self.key_of(v) for v in variables))
        number = len(self.recorded.sites)
        self.recorded.sites.append(site)
        if number == self._stop_at:
            raise ReachedGradient(loss, site.keys)
        if self._gradients is None:  # The first call, which finds out where the sites are.
            return [jnp.zeros(v.shape, v.dtype) for v in variables]
        # Computed site by site, in the first call's order.
        if number >= len(self._gradients):
            raise impurity_error("it asked for more gradients as values")
        return list(self._gradients[number])

    def begin_with(self, key: str, read: Callable[[], np.ndarray[Any, Any]]) -> None:
        """Lets a variable that this call has made begin with what a function returns; in the first call alone."""
        if not self._variables.is_complete:
            self._variables.entries[key] = replace(self._variables.entries[key], initial=lambda values: read())

    def make_local(self, variable: Variable) -> None:
        """Lets a variable that this call has made start anew in each run, and be in no checkpoint."""
        key = self.key_of(variable)
        if not self._variables.is_complete:
            self._variables.entries[key] = replace(self._variables.entries[key], local=True)

    def is_local(self, variable: Variable) -> bool:
        """Returns whether a variable starts anew in each run."""
        return self._variables.entries[self.key_of(variable)].local

    def record(self, name: str, value: Tensor) -> None:
        """Names a value, for hooks to fetch; a second value of the name becomes "<name>_1"."""
        # Also a TensorFlow program's tf.identity(value, name=name) ends here.
        values = self.recorded.values
        values[_unique(name.removesuffix(":0"), values)] = value

    def add_check(self, message: str, holds: Tensor) -> bool:
        """Adds a condition that must hold for all elements in each step; returns whether this call can look at it.

        It cannot from within a loop or a branch that JAX compiles, whose values do not leave it.
        """
        if current_trace() != self._trace:
            return False
        # A number: replicas' are averaged, and one failure is enough.
        self.recorded.checks.append(Check(message, 1 - jnp.all(holds).astype(jnp.float32)))
        return True

    def add_summary(self, summary: SummaryOp) -> None:
        """Adds a summary for TensorBoard."""
        self.recorded.summaries.append(summary)

    def host_ids(self, leaf: str, shape: tuple[int, ...], function: Callable[[Any], Any], dtype: DType) -> Any:
        """Returns integers for the text of a leaf; see `Text.ids`."""
        number = len(self.recorded.needs)
        self.recorded.needs.append(HostNeed(leaf, function, np.dtype(dtype)))
        # In the first call the host has computed nothing yet: it does not know which functions the model_fn uses.
        return jnp.zeros(shape, dtype) if self._texts is None else self._texts[number]

    def register(self, variable: Variable) -> None:
        """Registers a variable that the call creates; called by its constructor."""
        pending, self._pending = self._pending, None
        initializer, dtype = variable._initializer, variable._dtype
        key = _unique(variable.path, self._keys) if pending is None else pending[0]
        shape = self._whole_shape(key, variable)
        if pending is None:
            local = belongs_to_metric()
            initial: Callable[[Mapping[str, Any]], Any] = lambda values: initializer(shape, dtype=dtype)  # noqa: E731
        else:
            _, initial, local = pending
        entry = Entry(key, shape, dtype, variable.trainable, local, variable.aggregation, initial)
        if pending is None and variable.trainable:
            self._note_partition(key, shape, dtype)
        self._register(variable, entry)

    def _whole_shape(self, key: str, variable: Variable) -> tuple[int, ...]:
        """Returns a variable's shape, of a slot of a window that of the slot of the whole table."""
        watch, shape = current_watch(), tuple(variable.shape)
        if watch is not None and key in watch.sizes and key in self._variables.entries:
            return self._variables.entries[key].shape
        return shape

    @contextlib.contextmanager
    def dividing(self, partition: Partition) -> Generator[None]:
        """Has parameter servers divide the trainable variables that are made within the context, if they are tables.

        Args:
            partition: Returns, of a shape and the name of a dtype, the number of parts along each axis.
        """
        before, self._partition = self._partition, partition
        try:
            yield
        finally:
            self._partition = before

    def _note_partition(self, key: str, shape: tuple[int, ...], dtype: str) -> None:
        if self._partition is None or not shape:
            return
        parts = list(self._partition(shape, dtype))
        if len(parts) != len(shape) or max(parts[1:], default=1) > 1:
            raise UnsupportedError(
                "Parameter servers divide variables along axis 0, into ranges of rows. Received: a partitioner that "
                f"divides {key} of shape {shape} into {parts}. Use axis=0."
            )
        self._variables.partitions[key] = int(parts[0])

    def whole_shape_of(self, variable: Variable) -> tuple[int, ...]:
        """Returns a variable's shape, of a window that of the whole table."""
        return self._variables.entries[self.key_of(variable)].shape

    def is_large(self, variable: Variable) -> bool:
        """Returns whether parameter servers hold a variable by rows if the model_fn does nothing but look them up."""
        entry = self._variables.entries[self.key_of(variable)]
        return self._variables.is_table is not None and self._variables.is_table(entry.shape, entry.dtype)

    def lookup(self, variable: Variable, ids: jax.Array, take: Take) -> Any:
        """Returns rows of a variable: `take` of its value and of ids, or of a window and the rows' places in it."""
        key, watch = self.key_of(variable), current_watch()
        value = self._value_of(key)
        if watch is None or not self.is_calling:
            return take(value, ids)
        number = self._lookups.get(key, 0)
        self._lookups[key] = number + 1
        return watch.lookup(key, number, value, ids, take)

    def get_current_value(self, variable: Variable) -> Any:
        """Returns a variable's value; Keras' stateless scope calls it."""
        key, watch = self.key_of(variable), current_watch()
        if watch is not None and self.is_calling:
            watch.note_read(key)
        return self._value_of(key)

    def _value_of(self, key: str) -> Any:
        # In the first call, which is traced for shapes alone.
        if key not in self._values:
            entry = self._variables.entries[key]
            self._values[key] = jnp.zeros(entry.shape, entry.dtype)
        return self._values[key]

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Assigns a variable's value; Keras' stateless scope calls it."""
        variable, value = update
        key = self.key_of(variable)
        if self._is_read_only:
            return
        # Variables that only an optimizer changes are its slots.
        self.assigned.add(key)
        self._values[key] = value

    def _register_existing(self, variable: Variable) -> str:
        """Registers a variable that this call uses and has not created."""
        key = self._variables.registered_key(variable)
        if key is not None:
            self._register(variable, self._variables.entries[key])
            return key
        # Keras' private attribute: `value` would ask this scope.
        value = variable._value
        if value is None or is_traced(value):
            raise ArgumentError(
                f"A model_fn must make its layers itself, or use ones that are built. Received: {variable.path}, made "
                "by another call and kept by an object from outside of the model_fn. Make that object in the model_fn."
            )
        # A layer built outside keeps its value as the first one of training.
        first = np.asarray(value)
        key, trainable = _unique(variable.path, self._keys), variable.trainable
        entry = Entry(key, first.shape, variable._dtype, trainable, False, variable.aggregation, lambda values: first)
        self._register(variable, entry)
        return key

    def _register(self, variable: Variable, entry: Entry) -> None:
        self._variables.register(variable, entry)
        self._registered[id(variable)] = (variable, entry.key)
        self._keys[entry.key] = variable
        watch = current_watch()
        if watch is not None and entry.key in watch.sizes:
            resize(variable, watch.sizes[entry.key])


def current() -> ModelScope | None:
    """Returns the scope of the current model_fn call of this thread, or `None`."""
    return _running.scope


def demand(caller: str) -> ModelScope:
    """Returns the scope of the current model_fn call; raises `StartupOrderError` outside of one, for `caller`."""
    scope = current()
    if scope is None:
        raise StartupOrderError(
            f"{caller} can only be used inside of a model_fn, while lockstep.estimator.Estimator calls it. Received: a "
            "call outside of one."
        )
    return scope


def record(name: str, value: Tensor) -> Any:
    """Names a value in a model_fn, for hooks to fetch; returns the value.

    Args:
        name: The name; a second value of the name becomes "<name>_1".
        value: An array.

    Raises:
        StartupOrderError: Outside of a model_fn.

    Source: the names of TensorFlow's operations, such as tf.identity(value, name=name).
    """
    demand("record").record(name, value)
    return value


def take_rows(table: Any, ids: jax.Array, take: Take) -> Any:
    """Returns rows of a model_fn's variable, of which a task with parameter servers may have a window; or of an array.

    Args:
        table: A variable, or an array.
        ids: Integers.
        take: `(values, ids) -> rows`; ids beyond the values give NaN.
    """
    scope = current()
    if scope is None or not isinstance(table, keras.Variable):
        return take(jnp.asarray(table), ids)
    return scope.lookup(table, ids, take)


def _unique(name: str, taken: Mapping[str, Any]) -> str:
    unique, number = name, 0
    while unique in taken:
        number += 1
        unique = f"{name}_{number}"
    return unique
