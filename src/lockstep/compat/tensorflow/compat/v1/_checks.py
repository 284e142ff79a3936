"""TensorFlow 1's assertions: those of tf.debugging, with `data` before the message; they return an update."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops import checks
from lockstep.compat.tensorflow._ops.make import describe
from lockstep.compat.tensorflow._ops.training import group
from lockstep.compat.tensorflow._types import Argument

__all__ = ["Assert", "Print", "assert_equal", "assert_greater", "assert_greater_equal", "assert_integer", "assert_less"]
__all__ += ["assert_less_equal", "assert_near", "assert_negative", "assert_non_negative", "assert_non_positive"]
__all__ += ["assert_none_equal", "assert_positive", "assert_rank", "assert_rank_at_least", "assert_rank_in"]
__all__ += ["assert_scalar", "assert_type", "div", "no_regularizer"]


def _make(name: str, arguments: tuple[str, ...]) -> Any:
    """Returns the assertion with TensorFlow 1's order of arguments."""
    order = (*arguments, "data", "summarize", "message", "name")

    def check(*args: Argument, **kwargs: Argument) -> Any:
        given = {**dict(zip(order, args, strict=False)), **kwargs}
        # They show more of a failure in TensorFlow; here a failure shows the tensors.
        for unused in ("data", "summarize", "name"):
            given.pop(unused, None)
        getattr(checks, name)(**given)
        return group()

    return describe(check, f"tf.compat.v1.{name}", f"Checks as tf.debugging.{name} does; returns an update")


_PAIR, _ONE = ("x", "y"), ("x",)
assert_equal = _make("assert_equal", _PAIR)
assert_none_equal = _make("assert_none_equal", _PAIR)
assert_greater = _make("assert_greater", _PAIR)
assert_greater_equal = _make("assert_greater_equal", _PAIR)
assert_less = _make("assert_less", _PAIR)
assert_less_equal = _make("assert_less_equal", _PAIR)
assert_near = _make("assert_near", ("x", "y", "rtol", "atol"))
assert_negative = _make("assert_negative", _ONE)
assert_non_negative = _make("assert_non_negative", _ONE)
assert_non_positive = _make("assert_non_positive", _ONE)
assert_positive = _make("assert_positive", _ONE)
assert_rank = _make("assert_rank", ("x", "rank"))
assert_rank_at_least = _make("assert_rank_at_least", ("x", "rank"))
assert_rank_in = _make("assert_rank_in", ("x", "ranks"))


def assert_integer(x: Tensor, message: str | None = None, name: str | None = None) -> Any:
    """Checks as tf.debugging.assert_integer does; returns an update. Source: tf.compat.v1.assert_integer."""
    checks.assert_integer(x, message)
    return group()


def assert_type(tensor: Tensor, tf_type: Argument, message: str | None = None, name: str | None = None) -> Any:
    """Checks as tf.debugging.assert_type does; returns an update. Source: tf.compat.v1.assert_type."""
    checks.assert_type(tensor, tf_type, message)
    return group()


def assert_scalar(tensor: Tensor, name: str | None = None, message: str | None = None) -> Tensor:
    """Returns the tensor, checked as by tf.debugging.assert_scalar. Source: tf.compat.v1.assert_scalar."""
    return checks.assert_scalar(tensor, message)


def Assert(condition: Tensor, data: Tensor, summarize: int | None = None, name: str | None = None) -> Any:
    """Checks as tf.debugging.Assert does; returns an update. Source: tf.compat.v1.Assert."""
    checks.Assert(condition, data)
    return group()


def Print(
    input_: Tensor,
    data: Tensor,
    message: str | None = None,
    first_n: int | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Prints tensors each time it is computed, also in compiled code; returns `input_`.

    Source: tf.compat.v1.Print.
    """
    show: Any = importlib.import_module("lockstep.compat.tensorflow").print
    show(message or "", *data)
    return input_


def div(x: Tensor, y: Tensor, name: str | None = None) -> Any:
    """Divides floats; of integers returns the floor of the quotient, as Python 2 did. Source: tf.compat.v1.div."""
    math: Any = importlib.import_module("lockstep.compat.tensorflow.math")
    is_integer = all(np.issubdtype(getattr(v, "dtype", None) or np.asarray(v).dtype, np.integer) for v in (x, y))
    return math.floordiv(x, y) if is_integer else math.divide(x, y)


def no_regularizer(_: Tensor) -> None:
    """Returns `None`: no penalty. Source: tf.compat.v1.no_regularizer."""
