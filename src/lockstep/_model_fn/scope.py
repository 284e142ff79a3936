"""One call of a model_fn: where its variables get their values, and where what it says is collected."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from lockstep._model_fn import creation
from lockstep._model_fn.records import GradientSite, HostNeed, Recorded, SummaryOp
from lockstep._model_fn.variables import GLOBAL_STEP, Entry, Variables, impure
from lockstep._step.tracing import is_traced
from lockstep.errors import ArgumentError, StartupOrderError

_running = threading.local()


class ReachedGradient(Exception):  # It is a way out of a call, not an error.
    """The call has come to the gradients that it was made for.

    Attributes:
        loss: What to take the gradients of.
        keys: Of which variables.
    """

    def __init__(self, loss: Any, keys: tuple[str, ...]) -> None:
        super().__init__()
        self.loss = loss
        self.keys = keys


class ModelScope(keras.StatelessScope):
    """Makes one call of a model_fn a pure function of its variables.

    Args:
        variables: What is known of them.
        mode: "train", "eval" or "infer".
        values: The current value of each variable, by key; what is missing is zero (in the first call).
        texts: Computed integers for text, as the first call asked for them; or `None` in the first call.
        gradients: For each place that asks for gradients as values, these.
        stop_at: Leave the call at this place, by `ReachedGradient`.
        replicas: Over how many replicas the model_fn runs.

    Attributes:
        recorded: What the call has said.
        collections: Values by the name of a collection, such as those of `lockstep.losses`.
        loss_reduction: How the last loss was made of its examples' losses, if a function of `lockstep.losses` or a
            loss of Keras has computed it.
        assigned: The keys of the variables that were set.
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
    ) -> None:
        creation.install(current)
        super().__init__(initialize_variables=False)
        self.mode = mode
        self.replicas = replicas
        self.recorded = Recorded()
        self.collections: dict[str, list[Any]] = {}
        self.loss_reduction: str | None = None
        self.assigned: set[str] = set()
        self._variables = variables
        self._values = dict(values)
        self._texts = texts
        self._gradients = gradients
        self._stop_at = stop_at
        # By id; the variables are kept alive, so that an id stays that variable's.
        self._met: dict[int, tuple[Any, str]] = {}
        self._keys: dict[str, Any] = {}
        self._own: dict[str, Any] = {}
        self._next: _Next | None = None
        self._meet_global_step()

    def __enter__(self) -> ModelScope:
        self._before = current()
        _running.scope = self
        return super().__enter__()

    def __exit__(self, *args: Any, **kwargs: Any) -> None:
        _running.scope = self._before
        super().__exit__(*args, **kwargs)

    @property
    def global_step(self) -> jax.Array:
        """The number of steps done before this one: an integer of no dimensions."""
        return self._values[GLOBAL_STEP]

    @property
    def values(self) -> dict[str, Any]:
        """The current value of each variable, by key."""
        return dict(self._values)

    def replace_values(self, values: Mapping[str, Any]) -> None:
        """Sets the current value of each variable."""
        self._values = dict(values)

    def trainable_variables(self) -> list[Any]:
        """The variables that are trainable and were made or used so far, in the order of their creation."""
        return [v for v in self._keys.values() if v.trainable]

    @property
    def variables(self) -> dict[str, Any]:
        """The variables that were made or used so far, by key."""
        return dict(self._keys)

    def key_of(self, variable: Any) -> str:
        """The name of a variable in checkpoints, such as "dense/kernel"."""
        return self._key(variable)

    def known_key_of(self, variable: Any) -> str | None:
        """As `key_of`; `None` for a variable that was neither made nor used so far."""
        met = self._met.get(id(variable))
        return None if met is None else met[1]

    def slot(self, variable: Any, name: str, initial: Callable[[Any], Any] = jnp.zeros_like) -> Any:
        """Returns a variable that belongs to another one, such as its momentum.

        Args:
            variable: To which it belongs.
            name: Its own name; `key_of(variable)/name` is its key.
            initial: Computes its first value from that of `variable`.
        """
        owner = self.key_of(variable)
        first: Callable[[Mapping[str, Any]], Any] = lambda values: initial(jnp.asarray(values[owner]))  # noqa: E731
        shaped = jax.eval_shape(initial, jax.ShapeDtypeStruct(tuple(variable.shape), variable.dtype))
        return self.derived(f"{owner}/{name}", first, shaped.shape, shaped.dtype)

    def variable(
        self, name: str, initial: Callable[[], Any], shape: Sequence[int], dtype: Any, local: bool = False
    ) -> Any:
        """Returns a variable that is not trainable.

        Args:
            name: Its key.
            initial: Computes its first value.
            shape: Its shape.
            dtype: Its type.
            local: Whether it starts anew in each run, and is in no checkpoint.
        """
        return self.derived(name, lambda values: initial(), shape, dtype, local)

    def derived(
        self,
        name: str,
        initial: Callable[[Mapping[str, Any]], Any],
        shape: Sequence[int],
        dtype: Any,
        local: bool = False,
    ) -> Any:
        """Returns a variable that is not trainable, whose first value depends on those of the variables before it.

        Args:
            name: Its key.
            initial: Computes its first value from the others', by key.
            shape: Its shape.
            dtype: Its type.
            local: Whether it starts anew in each run, and is in no checkpoint.
        """
        if name not in self._own:
            self._next = _Next(name, initial, local)
            self._own[name] = keras.Variable(
                "zeros", tuple(shape), jnp.dtype(dtype).name, trainable=False, name=name.replace("/", "_")
            )
        return self._own[name]

    def gradients(self, loss: Any, variables: Sequence[Any]) -> list[Any]:
        """Returns the gradients of a loss, as values, averaged over the replicas.

        The part of the model_fn up to here runs once more for it; XLA merges what is computed twice.

        Args:
            loss: An array; the gradients of its sum are taken.
            variables: Of which.
        """
        site = GradientSite(tuple(self.key_of(v) for v in variables))
        number = len(self.recorded.sites)
        self.recorded.sites.append(site)
        if number == self._stop_at:
            raise ReachedGradient(loss, site.keys)
        if self._gradients is None:
            return [jnp.zeros(v.shape, v.dtype) for v in variables]
        if number >= len(self._gradients):
            raise impure("it asked for more gradients as values")
        return list(self._gradients[number])

    def record(self, name: str, value: Any) -> None:
        """Gives a value a name, by which hooks may ask for it; a second one of this name becomes "<name>_1"."""
        values = self.recorded.values
        values[_unique(name.removesuffix(":0"), values)] = value

    def add_summary(self, summary: SummaryOp) -> None:
        """Adds a value for TensorBoard."""
        self.recorded.summaries.append(summary)

    def host_ids(self, leaf: str, shape: tuple[int, ...], function: Callable[[Any], Any], dtype: Any) -> Any:
        """Returns integers for the text of a leaf; see `Text.ids`."""
        number = len(self.recorded.needs)
        self.recorded.needs.append(HostNeed(leaf, function, np.dtype(dtype)))
        if self._texts is None:
            return jnp.zeros(shape, dtype)
        return self._texts[number]

    def made(self, variable: Any) -> None:
        """Takes note of a variable that the call has made; called by its constructor."""
        following, self._next = self._next, None
        initializer, shape, dtype = variable._initializer, tuple(variable.shape), variable._dtype
        entry = Entry(
            key=following.key if following else _unique(variable.path, self._keys),
            shape=shape,
            dtype=dtype,
            trainable=variable.trainable,
            local=following.local if following else creation.belongs_to_metric(),
            aggregation=variable.aggregation,
            initial=following.initial if following else (lambda values: initializer(shape, dtype=dtype)),
        )
        self._meet(variable, entry)

    def get_current_value(self, variable: Any) -> Any:
        """Returns a variable's value; called by Keras."""
        key = self._key(variable)
        if key not in self._values:
            entry = self._variables.entries[key]
            self._values[key] = jnp.zeros(entry.shape, entry.dtype)
        return self._values[key]

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Sets a variable's value; called by Keras."""
        variable, value = update
        key = self._key(variable)
        self.assigned.add(key)
        self._values[key] = value

    def _key(self, variable: Any) -> str:
        met = self._met.get(id(variable))
        return met[1] if met else self._meet_known(variable)

    def _meet_known(self, variable: Any) -> str:
        """Takes note of a variable that this call uses and has not made."""
        key = self._variables.key_of_known(variable)
        if key is not None:
            self._meet(variable, self._variables.entries[key])
            return key
        value = variable._value
        if value is None or is_traced(value):
            raise ArgumentError(
                f"A model_fn must make its layers itself, or use ones that are built. Received: {variable.path}, made "
                "by another call and kept by an object from outside of the model_fn. Make that object in the model_fn."
            )
        first = np.asarray(value)
        entry = Entry(
            key=_unique(variable.path, self._keys),
            shape=first.shape,
            dtype=variable._dtype,
            trainable=variable.trainable,
            local=False,
            aggregation=variable.aggregation,
            initial=lambda values: first,
        )
        self._meet(variable, entry)
        return entry.key

    def _meet(self, variable: Any, entry: Entry) -> None:
        self._variables.meet(variable, entry)
        self._met[id(variable)] = (variable, entry.key)
        self._keys[entry.key] = variable

    def _meet_global_step(self) -> None:
        dtype = jax.dtypes.canonicalize_dtype(np.int64)
        entry = Entry(
            GLOBAL_STEP, (), dtype.name, False, False, "only_first_replica", lambda values: np.zeros((), dtype)
        )
        known = self._variables.entries
        if GLOBAL_STEP not in known:
            known[GLOBAL_STEP] = entry
        self._values.setdefault(GLOBAL_STEP, jnp.zeros((), dtype))


class _Next:
    """What is known of the variable that is made next."""

    def __init__(self, key: str, initial: Callable[[Mapping[str, Any]], Any], local: bool) -> None:
        self.key = key
        self.initial = initial
        self.local = local


def current() -> ModelScope | None:
    """Returns the running call of a model_fn on this thread."""
    return getattr(_running, "scope", None)


def demand(what: str) -> ModelScope:
    """Returns the running call of a model_fn.

    Raises:
        StartupOrderError: If there is none.
    """
    scope = current()
    if scope is None:
        raise StartupOrderError(
            f"{what} can only be used inside of a model_fn, while lockstep.estimator.Estimator calls it. Received: a "
            "call outside of one."
        )
    return scope


def record(name: str, value: Any) -> Any:
    """Gives a value a name inside of a model_fn, by which hooks may ask for it; returns the value.

    Args:
        name: Its name; a second value of the same one becomes "<name>_1".
        value: An array.

    Raises:
        StartupOrderError: Outside of a model_fn.

    Source: the names of TensorFlow's operations, such as tf.identity(value, name=name).
    """
    demand("record").record(name, value)
    return value


def _unique(name: str, taken: Mapping[str, Any]) -> str:
    found, number = name, 0
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found
