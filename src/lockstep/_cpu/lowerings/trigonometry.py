"""Sines, cosines, tangents and their inverses, many elements at a time.

XLA's CPU compiler calls the C library for each element: 3 ns for a sine, 9 for an `atan2`. Networks of sines (SIREN),
encodings of places by sines and cosines, and losses of angles take half their time there. As polynomials, which XLA
makes vectors of, a sine takes 0.2 ns (2-core EPYC with AVX-512).

The polynomials are those of Cephes' single precision (netlib.org/cephes, `sinf.c`, `atanf.c`, `asinf.c`): within 1.6
units in the last place for sines and cosines, 3 for the others; the C library's are within 0.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._types import Aval

# For fewer elements the difference is within that of two runs; of the periodic ones, the condition takes as long.
_LEAST_ELEMENTS, _LEAST_PERIODIC = 4096, 65_536
# Up to here the rest of a division by pi/2 keeps its digits in float64, with pi/2 as a sum of two.
_LARGEST = 1e8
_HALF_PI = np.float64(1.57079632673412561417), np.float64(6.07710050650619224932e-11)
_SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
_ARCTANGENT = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_ARCSINE = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
_TAN_EIGHTH = math.tan(math.pi / 8)

Elementwise = Callable[..., jax.Array]


def sine(operand: Aval, **options: Any) -> Any:
    """Rule: a `sin` of many elements."""
    return _periodic(lax.sin, lambda x: _sine_of(*_divide(x)), operand, options)


def cosine(operand: Aval, **options: Any) -> Any:
    """Rule: a `cos` of many elements."""

    def compute(x: jax.Array) -> jax.Array:
        quarters, rest = _divide(x)
        return _sine_of(quarters + 1, rest)

    return _periodic(lax.cos, compute, operand, options)


def tangent(operand: Aval, **options: Any) -> Any:
    """Rule: a `tan` of many elements."""

    def compute(x: jax.Array) -> jax.Array:
        quarters, rest = _divide(x)
        return _sine_of(quarters, rest) / _sine_of(quarters + 1, rest)

    return _periodic(lax.tan, compute, operand, options)


def arctangent(operand: Aval, **options: Any) -> Any:
    """Rule: an `atan` of many elements."""
    return _plain(lambda x: _arctangent_of(x, jnp.ones_like(x)), operand, options)


def arctangent_of_quotient(numerator: Aval, denominator: Aval, **options: Any) -> Any:
    """Rule: an `atan2` of many elements."""
    del denominator
    return _plain(_arctangent_of, numerator, options)


def arcsine(operand: Aval, **options: Any) -> Any:
    """Rule: an `asin` of many elements."""
    return _plain(_arcsine_of, operand, options)


def arccosine(operand: Aval, **options: Any) -> Any:
    """Rule: an `acos` of many elements."""

    def compute(x: jax.Array) -> jax.Array:
        # Of half the angle where that is small, so that the result keeps its digits near 1.
        half = 2 * _arcsine_of(lax.sqrt(0.5 * (1 - lax.abs(x))))
        ends = jnp.where(x < 0, np.float32(math.pi) - half, half)
        return jnp.where(lax.abs(x) > 0.5, ends, np.float32(math.pi / 2) - _arcsine_of(x))

    return _plain(compute, operand, options)


def _plain(compute: Elementwise, operand: Aval, options: dict[str, Any]) -> Elementwise | None:
    """Returns a function of float32 arrays; `None` for others, and where an accuracy is asked for."""
    if operand.dtype != np.float32 or operand.size < _LEAST_ELEMENTS or any(v is not None for v in options.values()):
        return None
    return compute


def _periodic(theirs: Elementwise, compute: Elementwise, operand: Aval, options: dict[str, Any]) -> Elementwise | None:
    """Returns a function that leaves arrays with a very large element to XLA."""

    def exact(x: jax.Array) -> jax.Array:
        # With a wish for accuracy it is left to XLA.
        return theirs(x, accuracy=lax.AccuracyMode.HIGHEST)

    def of_small(x: jax.Array) -> jax.Array:
        # NaN, too, is not below.
        return lax.cond(jnp.max(lax.abs(x)) <= _LARGEST, compute, exact, x)

    return _plain(of_small, operand, options) if operand.size >= _LEAST_PERIODIC else None


def _divide(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns how many times pi/2 fits best into x, and the rest."""
    with jax.enable_x64(True):
        wide = lax.convert_element_type(x, np.float64)
        quarters = lax.round(wide * np.float64(2 / math.pi), lax.RoundingMethod.TO_NEAREST_EVEN)
        rest = (wide - quarters * _HALF_PI[0]) - quarters * _HALF_PI[1]
        # The sign of zero stays.
        rest = jnp.where(quarters == 0, wide, rest)
        return lax.convert_element_type(quarters, np.int32), lax.convert_element_type(rest, np.float32)


def _sine_of(quarters: jax.Array, rest: jax.Array) -> jax.Array:
    """Returns the sine of some quarters of a turn and a rest, of at most half a quarter."""
    square = rest * rest
    # The sign of zero stays.
    of_rest = jnp.where(square == 0, rest, rest + rest * square * _polynomial(square, _SINE))
    cosine_of_rest = 1 - 0.5 * square + square * square * _polynomial(square, _COSINE)
    value = jnp.where(quarters & 1 == 1, cosine_of_rest, of_rest)
    return jnp.where(quarters & 2 == 2, -value, value)


def _arctangent_of(y: jax.Array, x: jax.Array) -> jax.Array:
    """Returns the angle of the point (x, y)."""
    height, width = _away_from_zero(lax.abs(y), lax.abs(x))
    smaller, larger = lax.min(height, width), lax.max(height, width)
    # Of two infinities, a half turn's quarter; of two zeros, nothing.
    smaller = jnp.where(smaller == np.inf, larger.dtype.type(1), jnp.where(larger == np.inf, 0, smaller))
    larger = jnp.where(larger == np.inf, larger.dtype.type(1), jnp.where(larger == 0, 1, larger))
    is_steep = smaller > np.float32(_TAN_EIGHTH) * larger
    # Halved, so that the sum of two large ones is finite.
    quotient = jnp.where(is_steep, 0.5 * smaller - 0.5 * larger, smaller) / jnp.where(
        is_steep, 0.5 * smaller + 0.5 * larger, larger
    )
    square = quotient * quotient
    angle = quotient + quotient * square * _polynomial(square, _ARCTANGENT)
    angle = jnp.where(is_steep, angle + np.float32(math.pi / 4), angle)
    angle = jnp.where(height > width, np.float32(math.pi / 2) - angle, angle)
    angle = jnp.where(_is_negative(x), np.float32(math.pi) - angle, angle)
    return jnp.where(_is_negative(y), -angle, angle)


def _away_from_zero(height: jax.Array, width: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Scales points near zero, so that neither coordinate is of the numbers that XLA's threads take for zero."""
    is_near = lax.max(height, width) < 1

    def scale(size: jax.Array) -> jax.Array:
        bits = lax.bitcast_convert_type(size, np.int32)
        # Numbers below 2**-126 are so many times 2**-149 as their bits say.
        scaled = jnp.where(bits < 1 << 23, bits.astype(np.float32) * np.float32(2**-49), size * np.float32(2**100))
        return jnp.where(is_near, scaled, size)

    return scale(height), scale(width)


def _is_negative(x: jax.Array) -> jax.Array:
    """Returns where a sign is negative, that of zero too."""
    return lax.bitcast_convert_type(x, np.int32) < 0


def _arcsine_of(x: jax.Array) -> jax.Array:
    size = lax.abs(x)
    is_large = size > 0.5
    square = jnp.where(is_large, 0.5 * (1 - size), size * size)
    root = jnp.where(is_large, lax.sqrt(square), size)
    angle = root + root * square * _polynomial(square, _ARCSINE)
    angle = jnp.where(is_large, np.float32(math.pi / 2) - 2 * angle, angle)
    return jnp.where(_is_negative(x), -angle, angle)


def _polynomial(x: jax.Array, coefficients: tuple[float, ...]) -> jax.Array:
    value = jnp.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + np.float32(coefficient)
    return value
