"""Elementwise functions that TensorFlow has in `tf.math` only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special as scipy

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.make import binary, compute, unary
from lockstep.compat.tensorflow._types import Library

__all__ = ["angle", "is_non_decreasing", "is_strictly_increasing", "polyval"]
__all__ += ["bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e", "betainc", "digamma", "divide_no_nan", "erf", "erfc"]
__all__ += ["erfcinv", "erfinv", "floordiv", "floormod", "igamma", "igammac", "is_finite", "is_inf", "is_nan", "lbeta"]
__all__ += ["lgamma", "log_sigmoid", "multiply_no_nan", "ndtri", "nextafter", "polygamma", "reciprocal"]
__all__ += ["reciprocal_no_nan", "rint", "softplus", "softsign", "squared_difference", "xdivy", "xlog1py", "xlogy"]
__all__ += ["zeta"]

_js: Any = jax.scipy.special


def _unary(name: str, what: str, keras: str, host: Any = None, device: Any = None) -> Any:
    return unary(f"tf.math.{name}", what, keras, host=host, device=device)


def _binary(name: str, what: str, keras: str, host: Any = None, device: Any = None) -> Any:
    return binary(f"tf.math.{name}", what, keras, host=host, device=device, floats=host is not None)


bessel_i0 = _unary("bessel_i0", "the modified Bessel function of order 0", "i0", scipy.i0, _js.i0)
bessel_i0e = _unary("bessel_i0e", "bessel_i0(x) * exp(-|x|)", "i0e", scipy.i0e, _js.i0e)
bessel_i1 = _unary("bessel_i1", "the modified Bessel function of order 1", "i1", scipy.i1, _js.i1)
bessel_i1e = _unary("bessel_i1e", "bessel_i1(x) * exp(-|x|)", "i1e", scipy.i1e, _js.i1e)
digamma = _unary("digamma", "the derivative of lgamma", "digamma", scipy.digamma, _js.digamma)
erf = _unary("erf", "the error function", "erf", scipy.erf, _js.erf)
erfc = _unary("erfc", "1 - erf(x)", "erfc", scipy.erfc, _js.erfc)
erfinv = _unary("erfinv", "the inverse of erf", "erfinv", scipy.erfinv, _js.erfinv)
# By erfinv: erfc(x) = 1 - erf(x).
erfcinv = _unary("erfcinv", "the inverse of erfc", "erfcinv", scipy.erfcinv, lambda x: _js.erfinv(1 - x))
is_finite = unary("tf.math.is_finite", "whether elements are neither infinite nor NaN", "isfinite", floats=False)
is_inf = unary("tf.math.is_inf", "whether elements are infinite", "isinf", floats=False)
is_nan = unary("tf.math.is_nan", "whether elements are NaN", "isnan", floats=False)
lgamma = _unary("lgamma", "the logarithm of the absolute gamma function", "lgamma", scipy.gammaln, _js.gammaln)
log_sigmoid = _unary(
    "log_sigmoid", "the logarithm of the sigmoid", "log_sigmoid", lambda x: -np.logaddexp(0, -x), jax.nn.log_sigmoid
)
ndtri = _unary("ndtri", "quantiles of the normal distribution", "ndtri", scipy.ndtri, _js.ndtri)
reciprocal = _unary("reciprocal", "1 / x", "reciprocal")
rint = unary("tf.math.rint", "the nearest integers, halves to even ones", "rint", floats=False)
softplus = _unary("softplus", "log(1 + exp(x))", "softplus", lambda x: np.logaddexp(x, 0), jax.nn.softplus)
softsign = _unary("softsign", "x / (1 + |x|)", "softsign", lambda x: x / (1 + np.abs(x)), jax.nn.soft_sign)

# As Python's operators, also for negative numbers.
floordiv = binary("tf.math.floordiv", "quotients, rounded down", "floor_divide")
floormod = binary("tf.math.floormod", "remainders that have the sign of y", "mod")
igamma = _binary("igamma", "the lower regularised incomplete gamma function", "igamma", scipy.gammainc, _js.gammainc)
igammac = _binary(
    "igammac", "the upper regularised incomplete gamma function", "igammac", scipy.gammaincc, _js.gammaincc
)
nextafter = binary("tf.math.nextafter", "the next number after x towards y", "nextafter", floats=True)
# JAX wants the order as integers; TensorFlow's has the type of x.
polygamma = _binary(
    "polygamma",
    "the polygamma function",
    "polygamma",
    scipy.polygamma,
    lambda n, x: _js.polygamma(jnp.asarray(n, "int32"), x),
)
# numpy and JAX have no such function; keras.ops neither, so that symbolic tensors get a Lambda layer.
squared_difference = binary(
    "tf.math.squared_difference",
    "(x - y) squared",
    "squared_difference",
    host=lambda x, y: np.square(np.subtract(x, y)),
    device=lambda x, y: jnp.square(jnp.subtract(x, y)),
)
xlogy = _binary("xlogy", "x * log(y), 0 where x is 0", "xlogy", scipy.xlogy, _js.xlogy)
xlog1py = _binary("xlog1py", "x * log(1 + y), 0 where x is 0", "xlog1py", scipy.xlog1py, _js.xlog1py)
zeta = _binary("zeta", "the Hurwitz zeta function", "zeta", scipy.zeta, _js.zeta)


def _unless_zero(xp: Library, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function of x and y that gives zero where `y` is zero."""

    # The inner where keeps 0 away from the division: NaN in a branch not taken would reach the gradient.
    def compute(x: Tensor, y: Tensor) -> Any:
        y = xp.asarray(y)
        return xp.where(y == 0, xp.zeros((), y.dtype), function(x, xp.where(y == 0, xp.ones((), y.dtype), y)))

    return compute


_host_divide, _device_divide = _unless_zero(np, np.divide), _unless_zero(jnp, jnp.divide)
_host_multiply, _device_multiply = _unless_zero(np, np.multiply), _unless_zero(jnp, jnp.multiply)
divide_no_nan = _binary("divide_no_nan", "x / y, 0 where y is 0", "divide_no_nan", _host_divide, _device_divide)
multiply_no_nan = _binary(
    "multiply_no_nan", "x * y, 0 where y is 0", "multiply_no_nan", _host_multiply, _device_multiply
)
# The inner where keeps 0 / 0 out, whose NaN would reach the gradient.
xdivy = _binary(
    "xdivy",
    "x / y, 0 where x is 0",
    "xdivy",
    lambda x, y: np.where(np.equal(x, 0), 0, np.divide(x, np.where(np.equal(x, 0), 1, y))),
    lambda x, y: jnp.where(jnp.equal(x, 0), 0, jnp.divide(x, jnp.where(jnp.equal(x, 0), 1, y))),
)
reciprocal_no_nan = _unary(
    "reciprocal_no_nan",
    "1 / x, 0 where x is 0",
    "reciprocal_no_nan",
    lambda x: _host_divide(1, x),
    lambda x: _device_divide(1, x),
)


def betainc(a: Tensor, b: Tensor, x: Tensor, name: str | None = None) -> Tensor:
    """Computes the regularised incomplete beta function. Source: tf.math.betainc."""
    xp, a, b, x = dispatch.pick(a, b, x)
    return dispatch.give(xp, (scipy.betainc if xp is dispatch.HOST else _js.betainc)(a, b, x))


def lbeta(x: Tensor, name: str | None = None) -> Tensor:
    """Computes the logarithm of the absolute beta function, over the last dimension. Source: tf.math.lbeta."""
    xp, x = dispatch.pick(x)
    gammaln = scipy.gammaln if xp is dispatch.HOST else _js.gammaln
    # By logarithms: the gamma function itself overflows above 35 in float32.
    return dispatch.give(xp, gammaln(x).sum(-1) - gammaln(x.sum(-1)))


def angle(input: Tensor, name: str | None = None) -> Tensor:
    """Computes the angles of complex numbers, in radians. Source: tf.math.angle."""
    return compute(lambda xp, x: xp.angle(x), input)


def polyval(coeffs: Sequence[Tensor], x: Tensor, name: str | None = None) -> Tensor:
    """Computes a polynomial of x, whose first coefficient is that of the highest power. Source: tf.math.polyval."""
    xp, point = dispatch.pick(x)
    total: Any = xp.zeros_like(point)
    for coefficient in coeffs:
        total = total * point + dispatch.to_array(xp, coefficient)
    return dispatch.give(xp, total)


def is_non_decreasing(x: Tensor, name: str | None = None) -> Tensor:
    """Returns whether no element is less than the one before. Source: tf.math.is_non_decreasing."""
    return compute(lambda xp, v: xp.all(v.reshape(-1)[1:] >= v.reshape(-1)[:-1]), x)


def is_strictly_increasing(x: Tensor, name: str | None = None) -> Tensor:
    """Returns whether each element is greater than the one before. Source: tf.math.is_strictly_increasing."""
    return compute(lambda xp, v: xp.all(v.reshape(-1)[1:] > v.reshape(-1)[:-1]), x)


named.record_names(globals())
