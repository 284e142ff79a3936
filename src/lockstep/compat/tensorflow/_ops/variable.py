"""tf.Variable: Keras' variable, with TensorFlow's way to make and to change one."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from lockstep.compat.tensorflow._dtypes import as_dtype
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.indexing import (
    tensor_scatter_nd_add,
    tensor_scatter_nd_sub,
    tensor_scatter_nd_update,
)
from lockstep.compat.tensorflow._ops.random_in_model import initializer_of
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["Variable", "VariableAggregation", "VariableSynchronization"]


class VariableAggregation:
    """How the replicas' updates of a variable are combined. Source: tf.VariableAggregation."""

    NONE = "none"
    SUM = "sum"
    MEAN = "mean"
    ONLY_FIRST_REPLICA = "only_first_replica"


class VariableSynchronization:
    """When the replicas' values of a variable are combined. Source: tf.VariableSynchronization."""

    AUTO = "auto"
    NONE = "none"
    ON_WRITE = "on_write"
    ON_READ = "on_read"


class Variable(keras.Variable):
    """A value that can be changed, and that Keras' layers track.

    Source: tf.Variable.
    """

    def __init__(
        self,
        initial_value: Any,
        trainable: bool | None = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        import_scope: Any = None,
        constraint: Any = None,
        synchronization: str = "auto",
        aggregation: str | None = None,
        shape: Any = None,
    ) -> None:
        """Makes a variable.

        Args:
            initial_value: Numbers, an array, or a function of no arguments that returns them. No text.
            trainable: Whether an optimizer changes it; by default true.
            validate_shape: Must be true: the shape is that of the first value.
            caching_device: Refused.
            name: Its name.
            variable_def: Refused.
            dtype: Type of the elements, by default that of the value; 64 bits become 32.
            import_scope: Refused.
            constraint: A function that is applied to it after each update by an optimizer.
            synchronization: Of `VariableSynchronization`.
            aggregation: Of `VariableAggregation`.
            shape: Must be that of the value, or `None`.

        Raises UnsupportedError if it would hold text, or change its shape.
        """
        _refuse(not validate_shape, caching_device, variable_def, import_scope)
        value = initial_value() if callable(initial_value) else initial_value
        drawn = initializer_of(value)
        xp, array = dispatch.pick(value)
        if array.dtype == object:
            raise UnsupportedError(f"A variable holds numbers. Received text: {value!r}. Keep it in a Python object.")
        super().__init__(
            array if drawn is None else drawn,
            None if drawn is None else tuple(array.shape),
            dtype=dispatch.usable(xp, array.dtype if dtype is None else dtype).name,
            trainable=trainable is not False,
            aggregation=aggregation,
            synchronization=synchronization,
            name=name,
        )
        if shape is not None and tuple(shape) != tuple(self.shape):
            raise ArgumentError(f"shape must be that of the value, {tuple(self.shape)}. Received: {tuple(shape)}.")
        if constraint is not None:
            self.constraint = constraint

    @classmethod
    def made_by(
        cls,
        initializer: Any,
        shape: tuple[int, ...],
        dtype: Any,
        trainable: bool | None,
        name: str,
        synchronization: str,
        aggregation: str,
    ) -> Variable:
        """Makes one by an initializer of Keras; the other arguments are as for the constructor."""
        variable = cls.__new__(cls)
        super(Variable, variable).__init__(
            initializer,
            shape,
            dtype=dispatch.usable(dispatch.DEVICE, dtype).name,
            trainable=trainable is not False,
            aggregation=aggregation,
            synchronization=synchronization,
            name=name,
        )
        return variable

    def assign(self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True) -> Any:
        """Sets the value; returns the variable, or nothing if `read_value` is false."""
        super().assign(_number(value, self.dtype))
        return self if read_value else None

    def assign_add(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Adds to the value; returns as `assign`."""
        super().assign_add(_number(delta, self.dtype))
        return self if read_value else None

    def assign_sub(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtracts from the value; returns as `assign`."""
        super().assign_sub(_number(delta, self.dtype))
        return self if read_value else None

    def read_value(self) -> Any:
        """Returns the value as a tensor."""
        return self.value

    def initialized_value(self) -> Any:
        """Returns the value as a tensor."""
        return self.value

    def scatter_nd_update(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Sets elements at index vectors."""
        return self.assign(tensor_scatter_nd_update(self, indices, updates))

    def scatter_nd_add(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Adds to elements at index vectors."""
        return self.assign(tensor_scatter_nd_add(self, indices, updates))

    def scatter_nd_sub(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Subtracts from elements at index vectors."""
        return self.assign(tensor_scatter_nd_sub(self, indices, updates))

    def get_shape(self) -> Any:
        """Returns the shape."""
        return as_host(np.empty(tuple(self.shape), np.bool_)).shape

    def numpy(self) -> Any:
        """Returns the value as a numpy array, or a numpy scalar."""
        return np.asarray(self.value)[()]


def _refuse(*options: Any) -> None:
    if any(o is not None and o is not False for o in options):
        raise UnsupportedError(
            "A variable has the shape of its first value, and is held by JAX. validate_shape=False, caching_device, "
            "variable_def and import_scope are TensorFlow's alone; leave them out."
        )


def _number(value: Any, dtype: Any) -> Any:
    _, array = dispatch.pick(value)
    return array.astype(as_dtype(dtype).dtype) if isinstance(array, np.ndarray) else array
