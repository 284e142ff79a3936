"""`types.core`: what all tensors are, variables among them."""

from __future__ import annotations

from typing import Any

import lockstep.compat.tensorflow as tf
from tests.conformance.absent import Absent


class _TensorType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, (tf.Tensor, tf.Variable))


class Tensor(metaclass=_TensorType):
    """Class of tensors and variables."""


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return Absent("internal", f"tensorflow.python.types.core.{name}")
