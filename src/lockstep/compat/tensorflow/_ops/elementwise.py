"""Elementwise functions that TensorFlow has in `tf` as well as in `tf.math`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._dtypes import as_dtype
from lockstep.compat.tensorflow._logits import remember
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.create import cast
from lockstep.compat.tensorflow._ops.make import binary, unary
from lockstep.compat.tensorflow._types import DTypeLike

__all__ = ["abs", "acos", "acosh", "add", "add_n", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "complex", "conj"]
__all__ += ["cos", "cosh", "divide", "equal", "exp", "expm1", "floor", "greater", "greater_equal", "imag", "less"]
__all__ += ["less_equal", "log", "log1p", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum"]
__all__ += ["minimum", "mod", "multiply", "negative", "not_equal", "pow", "real", "round", "rsqrt", "saturate_cast"]
__all__ += ["sigmoid", "sign", "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "truediv"]


def _device_abs(x: Tensor) -> Any:
    # The gradient of jax.numpy.abs at 0 is 1, TensorFlow's is sign(0) = 0: an L1 penalty must leave zeros alone.
    return x * jnp.sign(x) if jnp.issubdtype(x.dtype, jnp.floating) else jnp.abs(x)


# Where both are equal TensorFlow's derivative is that of x alone, and JAX's the mean of both. A NaN stays one.
@jax.jit
def _device_maximum(x: Tensor, y: Tensor) -> Any:
    return jnp.where((x >= y) | (x != x), x, y)


@jax.jit
def _device_minimum(x: Tensor, y: Tensor) -> Any:
    return jnp.where((x <= y) | (x != x), x, y)


def _host_sigmoid(x: Tensor) -> Any:
    # Both forms are computed for all elements. exp of a large number overflows in the one that is not taken.
    with np.errstate(over="ignore"):
        decay = np.exp(-np.abs(x))
        return np.where(x >= 0, 1 / (1 + decay), decay / (1 + decay)).astype(x.dtype)


def _device_sigmoid(x: Tensor) -> Any:
    result = jax.nn.sigmoid(x)
    remember("Sigmoid", result, x)
    return result


abs = unary("tf.abs", "absolute values", "abs", device=_device_abs, floats=False)
acos = unary("tf.acos", "arc cosines, in radians", "arccos")
acosh = unary("tf.acosh", "inverse hyperbolic cosines", "arccosh")
asin = unary("tf.asin", "arc sines, in radians", "arcsin")
asinh = unary("tf.asinh", "inverse hyperbolic sines", "arcsinh")
atan = unary("tf.atan", "arc tangents, in radians", "arctan")
atanh = unary("tf.atanh", "inverse hyperbolic tangents", "arctanh")
ceil = unary("tf.math.ceil", "the smallest integers that are not less", "ceil")
conj = unary("tf.math.conj", "complex conjugates", "conj", floats=False)
cos = unary("tf.cos", "cosines of radians", "cos")
cosh = unary("tf.cosh", "hyperbolic cosines", "cosh")
exp = unary("tf.exp", "e to the power of the elements", "exp")
expm1 = unary("tf.math.expm1", "e to the power of the elements, less one", "expm1")
floor = unary("tf.floor", "the largest integers that are not greater", "floor")
imag = unary("tf.math.imag", "imaginary parts", "imag", floats=False)
log = unary("tf.math.log", "natural logarithms", "log")
log1p = unary("tf.math.log1p", "natural logarithms of one more", "log1p")
logical_not = unary("tf.logical_not", "negations of truth values", "logical_not", floats=False)
negative = unary("tf.negative", "the elements with the opposite sign", "negative", floats=False)
real = unary("tf.math.real", "real parts", "real", floats=False)
round = unary("tf.round", "the nearest integers, halves to even ones", "round", floats=False)
# numpy has none; JAX's is one instruction.
rsqrt = unary(
    "tf.math.rsqrt", "reciprocals of square roots", "rsqrt", host=lambda x: 1 / np.sqrt(x), device=jax.lax.rsqrt
)
sigmoid = unary("tf.sigmoid", "1 / (1 + exp(-x))", "sigmoid", host=_host_sigmoid, device=_device_sigmoid)
sign = unary("tf.sign", "signs: -1, 0 or 1", "sign", floats=False)
sin = unary("tf.sin", "sines of radians", "sin")
sinh = unary("tf.sinh", "hyperbolic sines", "sinh")
sqrt = unary("tf.sqrt", "square roots", "sqrt")
square = unary("tf.square", "squares", "square", floats=False)
tan = unary("tf.tan", "tangents of radians", "tan")
tanh = unary("tf.tanh", "hyperbolic tangents", "tanh")

add = binary("tf.add", "sums", "add")
atan2 = binary("tf.atan2", "the angles of points, given y and x, in radians", "arctan2", floats=True)
divide = binary("tf.divide", "quotients, of integers as floating-point numbers", "divide")
# numpy compares text, too.
equal = binary("tf.equal", "whether elements are equal", "equal", host=np.equal)
greater = binary("tf.greater", "whether elements of x are greater", "greater")
greater_equal = binary("tf.greater_equal", "whether elements of x are not less", "greater_equal")
less = binary("tf.less", "whether elements of x are less", "less")
less_equal = binary("tf.less_equal", "whether elements of x are not greater", "less_equal")
logical_and = binary("tf.logical_and", "whether both are true", "logical_and")
logical_or = binary("tf.logical_or", "whether one or both are true", "logical_or")
logical_xor = binary("tf.math.logical_xor", "whether exactly one is true", "logical_xor")
maximum = binary("tf.maximum", "the greater ones of pairs", "maximum", device=_device_maximum)
minimum = binary("tf.minimum", "the lesser ones of pairs", "minimum", device=_device_minimum)
mod = binary("tf.math.mod", "remainders that have the sign of y", "mod")
multiply = binary("tf.multiply", "products", "multiply")
not_equal = binary("tf.not_equal", "whether elements differ", "not_equal")
pow = binary("tf.pow", "x to the power of y", "power")
subtract = binary("tf.subtract", "differences", "subtract")
truediv = binary("tf.truediv", "quotients, of integers as floating-point numbers", "divide")


def add_n(inputs: Tensor, name: str | None = None) -> Tensor:
    """Adds the tensors of a list, all of one shape. Source: tf.add_n."""
    xp, tensors = dispatch.pick_list(inputs)
    # One by one: stacking would need memory for all of them.
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return dispatch.give(xp, total)


def complex(real: Tensor, imag: Tensor, name: str | None = None) -> Tensor:
    """Makes complex64 numbers of real and imaginary parts. Source: tf.complex."""
    xp, real, imag = dispatch.pick(real, imag)
    # A complex64 unit: Python's 1j would make complex128 of float32.
    return dispatch.give(xp, real + imag * (np.complex64(1j) if xp is dispatch.HOST else jnp.complex64(1j)))


def saturate_cast(value: Tensor, dtype: DTypeLike, name: str | None = None) -> Tensor:
    """Converts to another type, values out of its range to its limits. Source: tf.saturate_cast."""
    xp, value = dispatch.pick(value)
    low, high = as_dtype(dtype).limits
    if as_dtype(dtype).is_integer and xp is not dispatch.SYMBOLIC and np.issubdtype(value.dtype, np.integer):
        # numpy refuses limits that the type of the elements cannot hold.
        info = np.iinfo(value.dtype)
        low, high = max(int(low), int(info.min)), min(int(high), int(info.max))
    return cast(dispatch.give(xp, xp.clip(value, low, high)), dtype)


named.record_names(globals())
