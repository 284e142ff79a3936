"""tf.Variable, which is Keras' variable with TensorFlow's methods, and tf.Module, which finds variables."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import keras
import numpy as np
from jax.core import Tracer
from keras.src.backend.common.stateless_scope import get_stateless_scope

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.random_in_model import initializer_of
from lockstep.compat.tensorflow._ops.variable_rows import RowUpdates
from lockstep.compat.tensorflow._tensor import as_host, check_shape, device_name
from lockstep.compat.tensorflow._types import DTypeLike, Initializer, ShapeLike, Trackable
from lockstep.distribute import Strategy, get_strategy, has_strategy
from lockstep.distribute.internal import InReplica, Mirrored
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["Module", "Variable", "VariableAggregation", "VariableSynchronization"]


class VariableAggregation:
    """Ways to combine the replicas' updates of a variable. Source: tf.VariableAggregation."""

    NONE = "none"
    SUM = "sum"
    MEAN = "mean"
    ONLY_FIRST_REPLICA = "only_first_replica"


class VariableSynchronization:
    """Moments to combine the replicas' values of a variable. Source: tf.VariableSynchronization."""

    AUTO = "auto"
    NONE = "none"
    ON_WRITE = "on_write"
    ON_READ = "on_read"


class Variable(RowUpdates, keras.Variable):
    """A value that can be changed, and that Keras' layers track.

    Attributes:
        keeps_replica_values: True: without aggregation, replicas that assign different values each keep their own.

    Source: tf.Variable.
    """

    keeps_replica_values = True
    # A copy of a variable must not copy its strategy.
    _made_under: weakref.ref[Strategy] | None = None

    def __init__(
        self,
        initial_value: Tensor,
        trainable: bool | None = None,
        validate_shape: bool = True,
        caching_device: object = None,
        name: str | None = None,
        variable_def: object = None,
        dtype: DTypeLike = None,
        import_scope: object = None,
        constraint: Initializer = None,
        synchronization: str = "auto",
        aggregation: str | None = None,
        shape: ShapeLike = None,
    ) -> None:
        """Creates a variable.

        Args:
            initial_value: Numbers, an array, or a function of no arguments that returns them. No text.
            trainable: Whether an optimizer changes it; by default true, unless each replica has its own value.
            validate_shape: Must be true: the shape is that of the first value.
            caching_device: Refused.
            name: Its name, in the scopes before each "/".
            variable_def: Refused.
            dtype: Type of the elements, by default that of the value; 64 bits become 32.
            import_scope: Refused.
            constraint: A function that is applied to it after each update by an optimizer.
            synchronization: Of `VariableSynchronization`.
            aggregation: Of `VariableAggregation`.
            shape: Must be that of the value, or `None`.

        Raises UnsupportedError if it would hold text, or change its shape.
        """
        # Refused, not ignored: a shape that changes, or another device, would give another result.
        options = (caching_device, variable_def, import_scope)
        if not validate_shape or any(o is not None and o is not False for o in options):
            raise UnsupportedError(
                "A variable has the shape of its first value, and is held by JAX. validate_shape=False, "
                "caching_device, variable_def and import_scope are TensorFlow's alone; leave them out."
            )
        is_on_read = synchronization == VariableSynchronization.ON_READ
        value = initial_value() if callable(initial_value) else initial_value
        # In a model_fn a random first value is a tracer; the variable gets an initializer that draws it.
        drawn = initializer_of(value)
        xp, array = dispatch.pick(value)
        if isinstance(array, np.ndarray):
            # JAX may take the memory of an array as it is, and the program may go on with its array.
            array = array.copy()
        if array.dtype == object:
            raise UnsupportedError(f"A variable holds numbers. Received text: {value!r}. Keep it in a Python object.")
        if drawn is None and get_stateless_scope() is not None:
            drawn = _first_value(array)
        if is_on_read and aggregation == VariableAggregation.SUM:
            array, drawn = _of_all_replicas(array), None if drawn is None else _sum(drawn)
        with _open_scopes(name) as last:
            super().__init__(
                array if drawn is None else drawn,
                None if drawn is None else tuple(array.shape),
                # The name: Keras keeps text, and saves it.
                dtype=dispatch.usable_dtype(xp, array.dtype if dtype is None else dtype).name,
                trainable=not is_on_read if trainable is None else trainable,
                aggregation=aggregation,
                synchronization=synchronization,
                name=last,
            )
        self._made_under = weakref.ref(get_strategy()) if has_strategy() else None
        # TensorFlow may leave sizes open in shape=; Keras' variables have fixed ones.
        if shape is not None and tuple(shape) != tuple(self.shape):
            raise ArgumentError(f"shape must be that of the value, {tuple(self.shape)}. Received: {tuple(shape)}.")
        # Keras sets it after the first value, to which it does not apply.
        if constraint is not None:
            self.constraint = constraint

    @classmethod
    def from_initializer(
        cls,
        initializer: Initializer,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        trainable: bool | None,
        name: str,
        synchronization: str,
        aggregation: str,
    ) -> Variable:
        """Creates a variable by an initializer of Keras; the other arguments are as for the constructor."""
        # The constructor takes TensorFlow's arguments, and would compute a first value.
        variable = cls.__new__(cls)
        with _open_scopes(name) as last:
            super(Variable, variable).__init__(
                initializer,
                shape,
                dtype=dispatch.usable_dtype(dispatch.DEVICE, dtype).name,
                trainable=trainable is not False,
                aggregation=aggregation,
                synchronization=synchronization,
                name=last,
            )
        variable._made_under = weakref.ref(get_strategy()) if has_strategy() else None
        return variable

    def assign(self, value: Tensor, use_locking: bool = False, name: str | None = None, read_value: bool = True) -> Any:
        """Sets the value; returns the variable, or nothing if `read_value` is false."""
        super().assign(_number(value, self.dtype))
        return self if read_value else None

    def assign_add(
        self, delta: Tensor, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Adds to the value; returns as `assign`."""
        super().assign_add(_number(delta, self.dtype))
        return self if read_value else None

    def assign_sub(
        self, delta: Tensor, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtracts from the value; returns as `assign`."""
        super().assign_sub(_number(delta, self.dtype))
        return self if read_value else None

    def read_value(self) -> Any:
        """Returns the value as a tensor."""
        return self.value

    @property
    def distribute_strategy(self) -> Any:
        """The strategy in whose scope it was made; an AttributeError, as in TensorFlow, if there was none."""
        strategy = self._made_under and self._made_under()
        if strategy is None:
            raise AttributeError(f"{self.path} was made outside of a strategy's scope: it has no distribute_strategy.")
        return strategy

    @property
    def values(self) -> tuple[Any, ...]:
        """Returns each local replica's value, in their order; an AttributeError outside of a strategy's scope."""
        return self.distribute_strategy.experimental_local_results(self)

    @property
    def device(self) -> str:
        """TensorFlow's name of the device that holds it, the first if there are several."""
        value = self.value
        devices = [] if isinstance(value, Tracer) else sorted(value.devices(), key=lambda device: device.id)
        return device_name(devices[0] if devices else None)

    def is_initialized(self, name: str | None = None) -> Any:
        """Returns true: a variable has its first value from the start."""
        return as_host(np.asarray(True))

    def load(self, value: Tensor, session: None = None) -> None:
        """Sets the value, as `assign`."""
        self.assign(value)

    def set_shape(self, shape: ShapeLike) -> None:
        """Raises ArgumentError unless the shape is one that the variable has."""
        check_shape(self, shape)

    @property
    def initializer(self) -> None:
        """`None`, as in TensorFlow outside of graphs: a variable has its first value from the start."""
        return None

    def initialized_value(self) -> Any:
        """Returns the value as a tensor."""
        return self.value

    def get_shape(self) -> Any:
        """Returns the shape."""
        return as_host(np.empty(tuple(self.shape), np.bool_)).shape

    def numpy(self) -> Any:
        """Returns a copy of the value as a numpy array, or a numpy scalar."""
        return np.array(self.value)[()]


@contextlib.contextmanager
def _open_scopes(name: str | None) -> Generator[str | None]:
    """Opens the scope "dense" for the name "dense/kernel", as Keras wants it; gives the rest of the name."""
    *scopes, last = (name or "").split("/")
    with contextlib.ExitStack() as stack:
        for scope in filter(None, scopes):
            stack.enter_context(keras.name_scope(scope))
        yield last or None


def _first_value(array: Any) -> Callable[..., Any]:
    """Returns an initializer for a variable that is made while a function is traced, which gets its value afterwards.

    Raises:
        UnsupportedError: If the value is only known when the function runs.
    """
    if isinstance(array, Tracer):
        raise UnsupportedError(
            "A variable that is made in a function of strategy.run, tf.function or model.fit keeps its first value "
            f"when the function is traced. Received: a first value that is computed in it ({array}). Make it of "
            "numbers, or of an initializer such as tf.zeros([3]), and assign the value."
        )
    return lambda shape, dtype=None: keras.ops.convert_to_tensor(np.asarray(array), dtype)


def _of_all_replicas(array: Any) -> Any:
    """Returns what is read of a variable whose values on the replicas add up, and which begins with `array` on each."""
    count = get_strategy().num_replicas_in_sync if has_strategy() else 1
    return array if count == 1 else (array * count).astype(array.dtype)


def _sum(first: Callable[..., Any]) -> Callable[..., Any]:
    return lambda shape, dtype=None: _of_all_replicas(first(shape, dtype=dtype))


def _number(value: Tensor, dtype: DTypeLike) -> Any:
    # In merge_call a value of each replica is what this trace, of one of them, has.
    if isinstance(value, (InReplica, Mirrored)):
        value = value.value
    # Numbers of the host take the variable's type, so that a float may be set to 1.
    _, array = dispatch.pick(value)
    return array.astype(as_dtype(dtype).dtype) if isinstance(array, np.ndarray) else array


class Module:
    """Holds variables, layers and other modules as attributes, also in lists and dicts. Source: tf.Module."""

    def __init__(self, name: str | None = None) -> None:
        self._name = name or type(self).__name__.lower()

    def __setattr__(self, name: str, value: Any) -> None:
        # Values of a checkpoint may wait for what is assigned.
        waiting = vars(self).get("_waiting")
        object.__setattr__(self, name, value if waiting is None or name.startswith("_") else waiting.give(name, value))

    @property
    def name(self) -> str:
        """The name of the module."""
        return self._name

    @property
    def variables(self) -> tuple[Any, ...]:
        """The variables of its attributes, in the order of their names, each once."""
        # A variable in two attributes counts once.
        return tuple({id(v): v for part in _parts_of(self) for v in _variables_of(part)}.values())

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """The variables that are trained."""
        return tuple(v for v in self.variables if v.trainable)

    @property
    def non_trainable_variables(self) -> tuple[Any, ...]:
        """The variables that are not trained."""
        return tuple(v for v in self.variables if not v.trainable)

    @property
    def submodules(self) -> tuple[Any, ...]:
        """The modules and layers in its attributes."""
        return tuple(part for part in _parts_of(self) if isinstance(part, (Module, keras.layers.Layer)))

    @property
    def name_scope(self) -> Any:
        """A scope for the names of variables."""
        return keras.name_scope(self._name)

    @classmethod
    def with_name_scope(cls, method: Any) -> Any:
        """Returns the method: names have no effect. Source: tf.Module.with_name_scope."""
        return method


def _parts_of(module: Module) -> Iterator[Any]:
    """Yields the variables, layers and modules in the attributes, and in those of its modules."""
    # TensorFlow's order: by the names of attributes, depth first.
    for _, value in sorted(vars(module).items()):
        yield from _find_parts(value)


def _find_parts(value: Trackable) -> Iterator[Any]:
    # In the order of keys: the order of variables must not depend on that of insertion.
    if isinstance(value, Mapping):
        value = [value[key] for key in sorted(value, key=str)]
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _find_parts(part)
    elif isinstance(value, (keras.Variable, keras.layers.Layer)):
        yield value
    elif isinstance(value, Module):
        yield value
        yield from _parts_of(value)


def _variables_of(part: Trackable) -> list[Any]:
    if isinstance(part, keras.Variable):
        return [part]
    return list(part.variables) if isinstance(part, keras.layers.Layer) else []
