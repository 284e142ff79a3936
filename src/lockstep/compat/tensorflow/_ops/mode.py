"""What TensorFlow programs ask or tell the runtime about how functions are carried out."""

from __future__ import annotations

import logging
from typing import Any

from lockstep.compat.tensorflow._ops import dispatch

__all__ = ["executing_eagerly", "get_logger", "inside_function", "is_symbolic_tensor"]


def executing_eagerly() -> bool:
    """Whether values are known here: not while JAX compiles. Source: tf.executing_eagerly."""
    return not dispatch.is_traced()


def inside_function() -> bool:
    """Whether JAX is compiling this code. Source: tf.inside_function."""
    return dispatch.is_traced()


def is_symbolic_tensor(tensor: Any) -> bool:
    """Whether the tensor stands for values to come. Source: tf.is_symbolic_tensor."""
    import keras
    from jax.core import Tracer

    return isinstance(tensor, (Tracer, keras.KerasTensor))


def get_logger() -> logging.Logger:
    """Returns lockstep's logger. Source: tf.get_logger."""
    return logging.getLogger("lockstep")
