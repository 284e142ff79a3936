"""Integers of 64 bits on a device, as pairs of 32 bits: JAX has none of 64 unless it is told to.

They do what numpy's uint64 arrays do, so that one text of an algorithm serves for both.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._types import Array

_LOW = 0xFFFFFFFF


class Wide:
    """Unsigned integers of 64 bits.

    Args:
        high: Their upper 32 bits, a uint32 array.
        low: Their lower 32 bits.
    """

    __slots__ = ("high", "low")

    def __init__(self, high: Array, low: Array) -> None:
        self.high = high
        self.low = low

    @classmethod
    def of(cls, value: Wide | int) -> Wide:
        """Converts a Python integer; returns a `Wide` as it is."""
        if isinstance(value, Wide):
            return value
        return cls(np.uint32((value >> 32) & _LOW), np.uint32(value & _LOW))

    @classmethod
    def of_integers(cls, values: jax.Array) -> Wide:
        """Converts integers of any dtype; negative ones to two's complement."""
        if values.dtype.itemsize == 8:
            return cls((values >> 32).astype(jnp.uint32), values.astype(jnp.uint32))
        is_negative = values < 0
        return cls(jnp.where(is_negative, np.uint32(_LOW), np.uint32(0)), values.astype(jnp.uint32))

    def __add__(self, other: Wide | int) -> Wide:
        other = Wide.of(other)
        low = self.low + other.low
        # An unsigned sum wraps around exactly if it is below an operand.
        carry = (low < other.low).astype(jnp.uint32)
        return Wide(self.high + other.high + carry, low)

    __radd__ = __add__

    def __mul__(self, other: Wide | int) -> Wide:
        other = Wide.of(other)
        crossed = self.low * other.high + self.high * other.low
        return Wide(_upper_product(self.low, other.low) + crossed, self.low * other.low)

    __rmul__ = __mul__

    def __xor__(self, other: Wide | int) -> Wide:
        other = Wide.of(other)
        return Wide(self.high ^ other.high, self.low ^ other.low)

    __rxor__ = __xor__

    def __or__(self, other: Wide) -> Wide:
        return Wide(self.high | other.high, self.low | other.low)

    def __rshift__(self, bits: int) -> Wide:
        if bits >= 32:
            return Wide(jnp.zeros_like(self.high), self.high >> np.uint32(bits - 32))
        if not bits:
            return self
        return Wide(self.high >> np.uint32(bits), (self.low >> np.uint32(bits)) | (self.high << np.uint32(32 - bits)))

    def __lshift__(self, bits: int) -> Wide:
        if bits >= 32:
            return Wide(self.low << np.uint32(bits - 32), jnp.zeros_like(self.low))
        if not bits:
            return self
        return Wide((self.high << np.uint32(bits)) | (self.low >> np.uint32(32 - bits)), self.low << np.uint32(bits))

    def __mod__(self, divisor: int) -> jax.Array:
        """Returns the remainders as int32, by long division; `divisor` must be below 2**31."""
        # As many bits at a time as a remainder can be shifted by without overflow of 32 bits.
        digit = next(size for size in (16, 8, 4, 2, 1) if divisor << size <= 1 << 32)
        unit, mask = np.uint32(divisor), np.uint32((1 << digit) - 1)
        remainder = self.high % unit
        for position in range(32 - digit, -1, -digit):
            remainder = ((remainder << np.uint32(digit)) | ((self.low >> np.uint32(position)) & mask)) % unit
        return remainder.astype(jnp.int32)


def where(condition: Array, one: Wide, other: Wide) -> Wide:
    """Selects elements by a condition."""
    return Wide(jnp.where(condition, one.high, other.high), jnp.where(condition, one.low, other.low))


def _upper_product(one: Array, other: Array) -> Any:
    """Returns the upper 32 bits of a product of 32 bits by 32 bits."""
    # Schoolbook multiplication in halves of 16 bits: no partial sum exceeds 32 bits.
    half, mask = np.uint32(16), np.uint32(0xFFFF)
    one_high, one_low = one >> half, one & mask
    other_high, other_low = other >> half, other & mask
    middle = one_high * other_low + ((one_low * other_low) >> half)
    other_middle = one_low * other_high + (middle & mask)
    return one_high * other_high + (middle >> half) + (other_middle >> half)
