"""Registry of a model_fn's variables: filled by its first call, compared with every later one.

Keras refuses to create variables from values in a stateless scope, and reports neither those created from initializers
nor the reductions of losses. So these methods are wrapped, once; outside of a model_fn the wrappers only call them.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import keras
import numpy as np
from keras.src.backend.common import KerasVariable, global_state

from lockstep._engine.runtime import randomness
from lockstep._engine.step.jaxprs import is_traced
from lockstep._types import ArrayLike, DType, Variable
from lockstep.errors import ArgumentError

if TYPE_CHECKING:
    from lockstep.estimator._model_fn.scope import ModelScope

IsTable = Callable[[tuple[int, ...], str], bool]
GLOBAL_STEP = "global_step"
# As small as tables of embeddings are at least.
_LARGE_BYTES = 1 << 20
_are_wrapped = False


@dataclass(frozen=True)
class Entry:
    """The registry's entry of a variable.

    Attributes:
        key: Name in checkpoints.
        trainable: Whether optimizers update it.
        local: Whether it starts anew in each run and is in no checkpoint.
        aggregation: The replicas' aggregation, see `keras.Variable.aggregation`.
        initial: Computes the first value from those of earlier variables, by key.
    """

    key: str
    shape: tuple[int, ...]
    dtype: str
    trainable: bool
    local: bool
    aggregation: str
    initial: Callable[[Mapping[str, Any]], Any]

    @property
    def is_seed(self) -> bool:
        """Returns whether the variable is the state of a random generator."""
        return self.key.rsplit("/", 1)[-1].startswith("seed_generator_state")

    def __str__(self) -> str:
        return f"{self.dtype}{self.shape}"


class Variables:
    """The registry of a model_fn's variables.

    Args:
        seed: That of random numbers in each call.
        is_table: Returns whether a variable of a shape and a dtype is large enough for parameter servers to hold it by
            rows; `None` without any.
    """

    def __init__(self, seed: int | None = None, is_table: IsTable | None = None) -> None:
        self.is_table = is_table
        # Into how many ranges of rows parameter servers divide variables, where the model_fn says so.
        self.partitions: dict[str, int] = {}
        self.entries: dict[str, Entry] = {}
        self.is_complete = False
        # One random state for all calls: initializers and dropout draw the same keys in each trace.
        self.random_state = randomness.random_states(random.getrandbits(31) if seed is None else seed)
        # Variables by id, kept alive so that no id is reused: those from outside of the model_fn, and those of the
        # first call, which layers from outside may hold.
        self._known: dict[int, tuple[Any, str]] = {}

    def registered_key(self, variable: Variable) -> str | None:
        """Returns the key of a variable that an earlier call has registered, `None` if it is new."""
        known = self._known.get(id(variable))
        return known[1] if known else None

    def register(self, variable: Variable, entry: Entry) -> None:
        """Registers a variable in the first call; compares it in later ones.

        Raises:
            ArgumentError: If the first call did not register it, or with another shape or dtype.
        """
        # Compared by dtype and shape, as printed: first values are functions, and new ones in each call.
        known = self.entries.get(entry.key)
        if known is None and self.is_complete:
            raise impurity_error(f"it made {entry.key} ({entry}), which the first call did not")
        if known is not None and str(known) != str(entry):
            raise impurity_error(f"{entry.key} was {known} in the first call, now it is {entry}")
        if known is None:
            self.entries[entry.key] = entry
            # A layer that is kept outside of the model_fn has these variables in the next call, too.
            self._known[id(variable)] = (variable, entry.key)

    def complete(self, registered: Mapping[str, Any]) -> None:
        """Ends a call: the first one fixes the registry, later ones must have registered the same variables.

        Raises:
            ArgumentError: If a later call lacks variables, or others are trainable.
        """
        if not self.is_complete:
            # A layer may be frozen after its variables are created, so this is read at the end of the call.
            self.entries.update(
                {k: replace(self.entries[k], trainable=bool(v.trainable)) for k, v in registered.items()}
            )
            self.is_complete = True
        # The global step is there from the start, and a model_fn need not ask for it.
        missing = [key for key in self.entries if key not in registered and key != GLOBAL_STEP]
        if missing:
            raise impurity_error(f"it left out {', '.join(missing[:5])}, which the first call made")
        for key, variable in registered.items():
            if self.entries[key].trainable != bool(variable.trainable):
                raise impurity_error(f"{key} is trainable, or was, and not both in the first call and now")

    def initial_values(self) -> dict[str, np.ndarray]:
        """Computes the first value of each variable, in order."""
        return dict(FirstValues(self.entries, keeps_all=True))

    def zeros(self) -> dict[str, np.ndarray]:
        """Returns zeros for a process that receives the first values from the chief."""
        return {key: np.zeros(e.shape, e.dtype) for key, e in self.entries.items()}

    def checkpoint_keys(self) -> list[str]:
        """Returns the keys of variables that are saved in checkpoints."""
        return [key for key, entry in self.entries.items() if not entry.local]

    def trainable_keys(self) -> list[str]:
        """Returns the keys of variables that optimizers update."""
        return [key for key, entry in self.entries.items() if entry.trainable]


class FirstValues(Mapping[str, np.ndarray]):
    """The first values of variables, each computed when it is asked for.

    Args:
        entries: The variables.
        keeps_all: Whether large ones are kept, too.
    """

    def __init__(self, entries: Mapping[str, Entry], keeps_all: bool = False) -> None:
        self._entries = entries
        self._keeps_all = keeps_all
        self._kept: dict[str, np.ndarray] = {}

    def __getitem__(self, key: str) -> np.ndarray:
        if key in self._kept:
            return self._kept[key]
        entry = self._entries[key]
        # A slot's first value may depend on that of its variable.
        array = np.asarray(entry.initial(self))
        if array.shape != entry.shape:
            raise ArgumentError(
                f"The initializer of {entry.key} must return the shape that the variable has, {entry.shape}. "
                f"Received: {array.shape}."
            )
        array = array.astype(entry.dtype, copy=False)
        if self._keeps_all or array.nbytes < _LARGE_BYTES:
            self._kept[key] = array
        return array

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def impurity_error(difference: str) -> ArgumentError:
    """Returns the error for a model_fn that differs from call to call."""
    return ArgumentError(
        "A model_fn must be a pure function: it is called again for each batch size, and must make the same variables "
        f"each time. Received a call in which {difference}. Make it depend on features, labels, mode, params and "
        "config only, not on counters, random choices or objects that it changes."
    )


def wrap_keras(current: Callable[[], ModelScope | None]) -> None:
    """Wraps Keras' methods, once per process; `current` returns the scope of the current model_fn call."""
    global _are_wrapped
    if _are_wrapped:
        return
    _are_wrapped = True
    keras_init: Any = KerasVariable.__init__
    keras_call: Any = keras.losses.Loss.__call__

    @functools.wraps(keras_init)
    def init(
        self: Any,
        initializer: object,
        shape: Sequence[int] | None = None,
        dtype: DType | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        scope = current()
        if scope is None:
            keras_init(self, initializer, shape, dtype, *args, **kwargs)
            return
        if not (callable(initializer) or isinstance(initializer, str)):
            initializer, shape, dtype = _from_value(initializer, dtype)
        keras_init(self, initializer, shape, dtype, *args, **kwargs)
        scope.register(self)

    @functools.wraps(keras_call)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        scope = current()
        if scope is not None:
            # Decides whether replicas' losses are summed or averaged.
            scope.loss_reduction = self.reduction
        return keras_call(self, *args, **kwargs)

    KerasVariable.__init__ = init
    keras.losses.Loss.__call__ = call


def belongs_to_metric() -> bool:
    """Returns whether a metric of Keras is creating a variable."""
    # A metric's variables start anew in each evaluation and are in no checkpoint; the open name scopes know their
    # owner.
    stack = global_state.get_global_attribute("name_scope_stack") or []
    return any(isinstance(getattr(scope, "caller", None), keras.metrics.Metric) for scope in stack)


def _from_value(value: ArrayLike, dtype: DType) -> tuple[Callable[..., Any], tuple[int, ...], Any]:
    """Returns an initializer that returns `value`, and its shape and dtype."""
    if isinstance(value, keras.Variable):
        value = value.value
    # A first value is computed once, before there is any batch.
    if is_traced(value):
        raise ArgumentError(
            "The first value of a variable must not depend on features, labels or the global step. Received: a traced "
            f"value of shape {value.shape}. For a learning rate that changes, use an optimizer of "
            "lockstep.estimator.train, which takes one computed in the model_fn, or a "
            "keras.optimizers.schedules.LearningRateSchedule."
        )
    array = np.asarray(value)
    if not dtype:
        # A number of Python has no dtype of its own: numpy's float64 is not meant.
        is_python_float = not hasattr(value, "dtype") and array.dtype.kind == "f"
        dtype = keras.config.floatx() if is_python_float else jax.dtypes.canonicalize_dtype(array.dtype).name
    return lambda shape, dtype: array.astype(dtype), array.shape, dtype
