"""Shards of a variable as TensorFlow's programs see them, of one that a strategy's `variable_partitioner` divides.

A variable stays one object, which optimizers, `save` and checkpoints take as any other. In TensorFlow it is a
ShardedVariable: a list of variables, of which `layer.weights` has each.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras.src.backend.common import KerasVariable

from lockstep._types import Array, Tensor
from lockstep.compat.tensorflow._shape import TensorShape

# Of a variable, what `shards_of` has made.
_SHARDS = "_lockstep_shards"
_STRATEGIES = "lockstep.distribute._parameter_server"


class VariableShard:
    """Rows of a variable that servers hold together.

    Attributes:
        variable: The whole variable.
        rows: The rows, from one and below another.
        device: TensorFlow's name of the server that holds them, or of all servers where that depends on the others.

    Source: the elements of `variables` of TensorFlow's ShardedVariable.
    """

    def __init__(self, variable: Any, number: int, rows: tuple[int, int], device: str) -> None:
        self.variable, self.rows, self.device = variable, rows, device
        self._number = number

    @property
    def name(self) -> str:
        """The variable's name with the number of the shard, such as "embedding/embeddings/part_0:0"."""
        return f"{self.variable.path}/part_{self._number}:0"

    @property
    def shape(self) -> TensorShape:
        """The shape of these rows."""
        start, stop = self.rows
        return TensorShape((stop - start, *self.variable.shape[1:]))

    @property
    def dtype(self) -> Any:
        """The type of the elements."""
        return self.variable.dtype

    @property
    def trainable(self) -> bool:
        """Returns whether optimizers change it."""
        return bool(self.variable.trainable)

    def numpy(self) -> Array:
        """Returns the values as a numpy array."""
        return np.array(self.variable.value[slice(*self.rows)])

    def value(self) -> Any:
        """Returns the values as a tensor."""
        return self.variable.value[slice(*self.rows)]

    def read_value(self) -> Any:
        """Returns the values as a tensor."""
        return self.value()

    def assign(self, value: Tensor, use_locking: bool = False, name: str | None = None, read_value: bool = True) -> Any:
        """Sets these rows."""
        del use_locking, name, read_value
        whole = np.array(self.variable.value)
        whole[slice(*self.rows)] = np.broadcast_to(np.asarray(value), self.shape)
        self.variable.assign(whole)
        return self

    def assign_add(self, delta: Tensor, *_: object, **__: object) -> Any:
        """Adds to these rows."""
        return self.assign(self.numpy() + np.asarray(delta))

    def assign_sub(self, delta: Tensor, *_: object, **__: object) -> Any:
        """Subtracts from these rows."""
        return self.assign(self.numpy() - np.asarray(delta))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        del copy
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __jax_array__(self) -> Any:
        return self.value()

    def __len__(self) -> int:
        return self.rows[1] - self.rows[0]

    def __getitem__(self, key: Any) -> Any:
        return self.value()[key]

    def __repr__(self) -> str:
        return f"<tf.Variable {self.name!r} shape={self.shape} dtype={self.dtype}, on {self.device}>"


def _add_operators() -> None:
    """Lets shards be computed with as the tensors of their values."""

    def binary(function: Callable[[Any, Any], Any], is_swapped: bool) -> Callable[[Any, Any], Any]:
        def compute(self: VariableShard, other: Any) -> Any:
            other = other.value() if isinstance(other, VariableShard) else other
            return function(other, self.value()) if is_swapped else function(self.value(), other)

        return compute

    for name in ("add", "sub", "mul", "truediv", "pow", "matmul"):
        setattr(VariableShard, f"__{name}__", binary(getattr(operator, name), False))
        setattr(VariableShard, f"__r{name}__", binary(getattr(operator, name), True))
    VariableShard.__neg__ = lambda self: -self.value()  # pyright: ignore[reportAttributeAccessIssue]


_add_operators()


def install() -> None:
    """Has variables that are made in the scope of a strategy with a partitioner know their shards."""
    kind: Any = KerasVariable
    original = kind.__init__

    @functools.wraps(original)
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        # A program without the strategy has none of its scopes open.
        if _STRATEGIES in sys.modules and self.shape:
            _divide(self)

    kind.__init__ = begin


def _divide(variable: Any) -> None:
    from lockstep.distribute.internal import partition_in_scope

    shape, dtype = tuple(variable.shape), keras.backend.standardize_dtype(variable.dtype)
    pieces = partition_in_scope(shape, dtype)
    if pieces is not None:
        shards = [VariableShard(variable, n, p.rows, _device(p.server)) for n, p in enumerate(pieces)]
        setattr(variable, _SHARDS, tuple(shards))


def _device(server: int | None) -> str:
    return "/job:ps" if server is None else f"/job:ps/replica:0/task:{server}/device:CPU:0"


def shards_of(variable: Any) -> tuple[VariableShard, ...]:
    """Returns the shards of a variable, none of one that is whole."""
    return vars(variable).get(_SHARDS, ())


def variables_of(variable: Any) -> list[Any]:
    """Returns the shards of a variable, as the attribute `variables` of TensorFlow's ShardedVariable."""
    if not shards_of(variable):
        raise AttributeError(f"{type(variable).__name__!r} object has no attribute 'variables'")
    return list(shards_of(variable))


def with_shards(variables: Sequence[Any]) -> list[Any]:
    """Returns variables, in place of one that is divided its shards."""
    return [each for v in variables for each in (shards_of(v) or (v,))]


def whole_of(parts: Any) -> Any:
    """Returns the variable of which a list has all shards, in their order; anything else as it is."""
    if isinstance(parts, (list, tuple)) and parts and isinstance(parts[0], VariableShard):
        variable = parts[0].variable
        shards = shards_of(variable)
        if len(parts) == len(shards) and all(a is b for a, b in zip(parts, shards, strict=True)):
            return variable
    return parts
