"""tf.debugging: checks of values that are known, and of shapes and types always."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from jax.core import Tracer

from lockstep._engine.runtime import environment
from lockstep._types import PyTree, Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.named import model_fn_scope
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._types import DTypeLike, ShapeLike, SizeLike
from lockstep.compat.tensorflow.errors import InvalidArgumentError
from lockstep.errors import UnsupportedError

__all__ = ["Assert", "assert_all_finite", "assert_equal", "assert_greater", "assert_greater_equal", "assert_integer"]
__all__ += ["assert_less", "assert_less_equal", "assert_near", "assert_negative", "assert_non_negative"]
__all__ += ["assert_non_positive", "assert_none_equal", "assert_positive", "assert_rank", "assert_rank_at_least"]
__all__ += ["assert_rank_in", "assert_scalar", "assert_shapes", "assert_type", "check_numerics"]
__all__ += ["enable_check_numerics", "disable_check_numerics", "is_numeric_tensor"]


_FLAG = "LOCKSTEP_CHECK_COMPILED"
_MEANING = "assertions of tf.debugging are also checked in compiled code, by a call of the host in each step"


def _verify(test: Callable[..., Any], rule: str, message: str | None, *tensors: Tensor) -> None:
    """Checks tensors at once if their values are known, else in the step, if the environment asks for that."""
    picked = [dispatch.pick(tensor) for tensor in tensors]
    if any(xp is dispatch.SYMBOLIC for xp, _ in picked):
        raise UnsupportedError(
            "Values are checked where they are known, and those of Keras' symbolic tensors never are. Check in a layer "
            "of your own, or before the model is called."
        )
    arrays = [x for _, x in picked]

    def check(*known: Any) -> None:
        values = [np.asarray(v) for v in known]
        if not np.all(test(np, *values)):
            start = f"{message}. " if message else ""
            raise InvalidArgumentError(f"{start}Elements must be {rule}. Received: {', '.join(map(repr, values))}.")

    if not any(isinstance(x, Tracer) for x in arrays):
        check(*arrays)
    elif _is_checked_after_step(test, rule, message, arrays):
        return
    elif environment.env_flag(_FLAG, _MEANING, default=False):
        jax.debug.callback(check, *arrays)
    else:
        # Map functions of datasets then run once per element, and a tf.function as it is: there values are known.
        raise UnsupportedError(
            "Values are checked where they are known, and here JAX is compiling. Check before, in a dataset's map "
            f"function, or set {_FLAG}=1 in the environment: each step then calls the host, and is slower. For NaN: "
            "jax.config.update('jax_debug_nans', True)."
        )


def _is_checked_after_step(test: Callable[..., Any], rule: str, message: str | None, arrays: list[Any]) -> bool:
    """Leaves the check to the Estimator, in whose step it is, which looks at it after the step."""
    scope = model_fn_scope()
    start = f"{message}. " if message else ""
    received = ", ".join(f"{x.dtype} of shape {tuple(x.shape)}" for x in arrays)
    text = f"{start}Elements must be {rule}. Received: others, in tensors {received}."
    return scope is not None and scope.add_check(text, test(jnp, *map(jnp.asarray, arrays)))


def _make_pair_check(name: str, rule: str, compare: Callable[..., Any]) -> Any:
    def check(
        x: Tensor, y: Tensor, message: str | None = None, summarize: int | None = None, name: str | None = None
    ) -> None:
        # Arrays of any shape: one false element is enough.
        _verify(lambda xp, a, b: compare(a, b), rule, message, x, y)

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"Raises `InvalidArgumentError` unless all elements are {rule}. Source: tf.debugging.{name}."
    return check


def _make_check(name: str, rule: str, compare: Callable[..., Any]) -> Any:
    def check(x: Tensor, message: str | None = None, summarize: int | None = None, name: str | None = None) -> None:
        _verify(lambda xp, a: compare(a), rule, message, x)

    check.__name__ = check.__qualname__ = name
    check.__doc__ = f"Raises `InvalidArgumentError` unless all elements are {rule}. Source: tf.debugging.{name}."
    return check


assert_equal = _make_pair_check("assert_equal", "equal", operator.eq)
assert_none_equal = _make_pair_check("assert_none_equal", "different", operator.ne)
assert_greater = _make_pair_check("assert_greater", "greater in the first", operator.gt)
assert_greater_equal = _make_pair_check("assert_greater_equal", "not less in the first", operator.ge)
assert_less = _make_pair_check("assert_less", "less in the first", operator.lt)
assert_less_equal = _make_pair_check("assert_less_equal", "not greater in the first", operator.le)
assert_positive = _make_check("assert_positive", "positive", lambda x: x > 0)
assert_negative = _make_check("assert_negative", "negative", lambda x: x < 0)
assert_non_negative = _make_check("assert_non_negative", "not negative", lambda x: x >= 0)
assert_non_positive = _make_check("assert_non_positive", "not positive", lambda x: x <= 0)


def assert_near(
    x: Tensor,
    y: Tensor,
    rtol: Tensor = None,
    atol: Tensor = None,
    message: str | None = None,
    summarize: int | None = None,
    name: str | None = None,
) -> None:
    """Raises `InvalidArgumentError` unless elements are close, by default to ten rounding errors.

    Source: tf.debugging.assert_near.
    """

    def is_close(xp: Any, a: Any, b: Any) -> Any:
        # TensorFlow's default for both tolerances.
        tolerance = 10 * float(np.finfo(a.dtype).eps)
        r, t = (tolerance if v is None else v for v in (rtol, atol))
        return xp.abs(a - b) <= t + r * xp.abs(b)

    _verify(is_close, "close", message, x, y)


def Assert(condition: Tensor, data: Tensor, summarize: int | None = None, name: str | None = None) -> None:
    """Raises `InvalidArgumentError` with `data` unless the condition is true. Source: tf.debugging.Assert."""
    tensors = data if isinstance(data, (list, tuple)) else [data]
    # The tensors are shown, and the condition decides.
    _verify(lambda xp, holds, *_: holds, "as the condition says", None, condition, *tensors)


def assert_all_finite(x: Tensor, message: str, name: str | None = None) -> Tensor:
    """Returns the tensor; raises `InvalidArgumentError` if an element is infinite or NaN.

    Source: tf.debugging.assert_all_finite.
    """
    _verify(lambda xp, a: xp.isfinite(a), "finite", message, x)
    # TensorFlow returns the tensor, so that the check can stand in an expression.
    return as_host(np.asarray(dispatch.pick(x)[1])) if dispatch.library_of(x) is dispatch.HOST else x


def check_numerics(tensor: Tensor, message: str, name: str | None = None) -> Tensor:
    """Checks that all elements are finite, as `assert_all_finite`. Source: tf.debugging.check_numerics."""
    return assert_all_finite(tensor, message)


def enable_check_numerics(stack_height_limit: int = 30, path_length_limit: int = 50) -> None:
    """Makes JAX raise FloatingPointError where a NaN appears; the limits must stay: JAX's traces are whole.

    Source: tf.debugging.enable_check_numerics.
    """
    # TensorFlow's defaults.
    if (stack_height_limit, path_length_limit) != (30, 50):
        raise UnsupportedError("JAX shows where a NaN appears by a whole trace. Leave the limits out.")
    jax.config.update("jax_debug_nans", True)


def disable_check_numerics() -> None:
    """Undoes `enable_check_numerics`. Source: tf.debugging.disable_check_numerics."""
    jax.config.update("jax_debug_nans", False)


def _shape(x: Tensor) -> Any:
    # np.shape would copy a variable to the host, and cannot read a symbolic tensor.
    return tuple(x.shape) if isinstance(x, (keras.KerasTensor, jax.Array, keras.Variable)) else np.shape(x)


def assert_rank(x: Tensor, rank: SizeLike, message: str | None = None, name: str | None = None) -> None:
    """Raises `InvalidArgumentError` unless the tensor has so many dimensions. Source: tf.debugging.assert_rank."""
    assert_rank_in(x, [dispatch.to_static(rank)], message)


def assert_rank_in(x: Tensor, ranks: ShapeLike, message: str | None = None, name: str | None = None) -> None:
    """Raises `InvalidArgumentError` unless the number of dimensions is one of these.

    Source: tf.debugging.assert_rank_in.
    """
    if len(_shape(x)) not in list(ranks):
        raise InvalidArgumentError(
            f"{message or ''} Dimensions must be {list(ranks)}. Received shape: {_shape(x)}.".strip()
        )


def assert_rank_at_least(x: Tensor, rank: SizeLike, message: str | None = None, name: str | None = None) -> None:
    """Raises `InvalidArgumentError` unless there are at least so many dimensions.

    Source: tf.debugging.assert_rank_at_least.
    """
    if len(_shape(x)) < dispatch.to_static(rank):
        raise InvalidArgumentError(
            f"{message or ''} There must be {rank} dimensions or more. Received: {_shape(x)}.".strip()
        )


def assert_scalar(tensor: Tensor, message: str | None = None, name: str | None = None) -> Tensor:
    """Returns the tensor; raises `InvalidArgumentError` if it has dimensions. Source: tf.debugging.assert_scalar."""
    assert_rank(tensor, 0, message)
    return tensor


def assert_shapes(
    shapes: PyTree,
    data: PyTree = None,
    summarize: int | None = None,
    message: str | None = None,
    name: str | None = None,
) -> None:
    """Raises `InvalidArgumentError` unless tensors have their shapes; a name is the same size everywhere.

    Source: tf.debugging.assert_shapes.
    """
    sizes: dict[Any, Any] = {}
    for tensor, dims in shapes.items() if isinstance(shapes, dict) else shapes:
        shape = _shape(tensor)
        if len(shape) != len(tuple(dims)):
            raise InvalidArgumentError(f"{message or ''} The shape must be {dims}. Received: {shape}.".strip())
        # A size, a letter, "." or None.
        for size, dim in zip(shape, dims, strict=True):
            # A letter is bound to the first size that it meets; "." is any size.
            wanted = sizes.setdefault(dim, size) if isinstance(dim, str) and dim != "." else dim
            if wanted not in (None, ".", size):
                raise InvalidArgumentError(
                    f"{message or ''} Dimension {dim!r} must be {wanted}. Received: {shape}.".strip()
                )


def assert_type(tensor: Tensor, tf_type: DTypeLike, message: str | None = None, name: str | None = None) -> None:
    """Raises `InvalidArgumentError` unless the elements are of a type. Source: tf.debugging.assert_type."""
    # Text lies in arrays of objects on the host.
    dtype = as_dtype(str(tensor.dtype).replace("object", "string"))
    if dtype != as_dtype(tf_type):
        raise InvalidArgumentError(
            f"{message or ''} Elements must be {as_dtype(tf_type).name}. Received: {dtype.name}.".strip()
        )


def assert_integer(x: Tensor, message: str | None = None, name: str | None = None) -> None:
    """Raises `InvalidArgumentError` unless the elements are integers. Source: tf.debugging.assert_integer."""
    if not as_dtype(str(dispatch.pick(x)[1].dtype).replace("object", "string")).is_integer:
        raise InvalidArgumentError(f"{message or ''} Elements must be integers. Received: {x!r}.".strip())


def is_numeric_tensor(tensor: Tensor) -> bool:
    """Returns whether it is a tensor of numbers. Source: tf.debugging.is_numeric_tensor."""
    from lockstep.compat.tensorflow._tensor import is_tensor

    return is_tensor(tensor) and as_dtype(str(tensor.dtype).replace("object", "string")).is_numeric
