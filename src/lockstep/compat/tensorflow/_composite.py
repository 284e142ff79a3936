"""Tensors that are made of several: how the functions of this package find those that compute with them."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import numpy as np

from lockstep.compat.tensorflow._types import Argument
from lockstep.distribute.internal import UnsupportedValueError

# What computes with each class: it gets the function's name, the function and its arguments. Empty until a program uses
# one of these classes, so that functions ask in vain for the price of a look at an empty dict.
handlers: dict[type, Callable[..., Any]] = {}
# The class of specs of each of these classes.
spec_classes: dict[type, Any] = {}


class CompositeTensor(abc.ABC):
    """Base class of `RaggedTensor`, `SparseTensor` and `IndexedSlices`: values of the host.

    Source: tf.__internal__.CompositeTensor.
    """

    @property
    @abc.abstractmethod
    def spec(self) -> Any:
        """The spec of the value."""

    # numpy leaves operators with these to them.
    __array_ufunc__ = None

    def __array__(self, *args: Argument, **kwargs: Argument) -> np.ndarray[Any, Any]:
        raise UnsupportedValueError(
            f"A {type(self).__name__} is not an array of one shape, which JAX and Keras compute with. Convert it "
            "before: to_tensor() of a ragged one, tf.sparse.to_dense() of a sparse one."
        )


def handler_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    """Returns what computes with the first composite tensor among arguments, also in a list; `None` without one."""
    for value in (*args, *kwargs.values()):
        if type(value) in handlers:
            return handlers[type(value)]
        if type(value) in (list, tuple):
            for item in value:
                if type(item) in handlers:
                    return handlers[type(item)]
    return None
