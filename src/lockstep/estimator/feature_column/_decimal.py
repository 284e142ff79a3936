"""Fingerprints of integers' decimal text, computed on the device."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from lockstep.estimator.feature_column import _farmhash
from lockstep.estimator.feature_column._wide import Wide, where

_ZERO, _MINUS = ord("0"), ord("-")


def fingerprints(values: jax.Array) -> Wide:
    """Returns the fingerprint of each value's decimal text, as `_farmhash.fingerprints` of `str(value).encode()`."""
    text = _Decimal(values)
    result = _farmhash.from_1_to_3(text.byte(0), text.byte(text.middle), text.byte(text.length - 1), text.wide_length)
    # Every formula is computed for all values, since lengths differ within an array; int8 needs only the first.
    by_length = [(4, lambda: _farmhash.from_4_to_7(text.half(0), text.half(text.length - 4), text.wide_length))]
    by_length.append((8, lambda: _farmhash.from_8_to_16(text.word(0), text.word(text.length - 8), text.wide_length)))
    by_length.append((17, lambda: _farmhash.from_17_to_32(text.four_words(), text.wide_length)))
    for length, compute in by_length:
        if text.longest >= length:
            result = where(text.length >= length, compute(), result)
    return result


class _Decimal:
    """The characters of integers' decimal text.

    Args:
        values: The integers.
    """

    def __init__(self, values: jax.Array) -> None:
        limits = jnp.iinfo(values.dtype)
        self.longest = max(len(str(limits.min)), len(str(limits.max)))
        is_negative = values < 0
        size = _magnitude(values, is_negative)
        digits = [(size // size.dtype.type(10**place)) % size.dtype.type(10) for place in range(_places(size))]
        number = sum((size >= size.dtype.type(10**place)).astype(jnp.int32) for place in range(1, len(digits)))
        count = jnp.asarray(number, jnp.int32) + 1
        self.length = count + is_negative
        self.middle = self.length >> 1
        self._from_end = self._characters(digits, count)

    def _characters(self, digits: Sequence[jax.Array], count: jax.Array) -> jax.Array:
        """Returns the characters, the last one first: uint32 (*shape, longest)."""
        padded = [*digits, jnp.zeros_like(digits[0])][: self.longest]
        columns = [jnp.where(i < count, d.astype(jnp.uint32) + _ZERO, _MINUS) for i, d in enumerate(padded)]
        return jnp.stack(columns, axis=-1)

    @property
    def wide_length(self) -> Wide:
        """Returns the number of characters, as 64 bits."""
        return Wide(jnp.zeros_like(self.length, jnp.uint32), self.length.astype(jnp.uint32))

    def byte(self, position: int | jax.Array) -> Wide:
        """Returns the character at a position, which may differ between texts."""
        return Wide(jnp.zeros_like(self.length, jnp.uint32), self._character(position))

    def half(self, position: int | jax.Array) -> Wide:
        """Returns 4 characters from a position on."""
        return Wide(jnp.zeros_like(self.length, jnp.uint32), self._four(position))

    def word(self, position: int | jax.Array) -> Wide:
        """Returns 8 characters from a position on."""
        return Wide(self._four(position + 4), self._four(position))

    def four_words(self) -> list[Wide]:
        """Returns the first two and the last two words of 8 characters."""
        return [self.word(0), self.word(8), self.word(self.length - 16), self.word(self.length - 8)]

    def _four(self, position: int | jax.Array) -> jax.Array:
        first, second, third, fourth = (self._character(position + offset) for offset in range(4))
        return first | (second << 8) | (third << 16) | (fourth << 24)

    def _character(self, position: int | jax.Array) -> jax.Array:
        index = jnp.clip(self.length - 1 - position, 0, self.longest - 1)
        return jnp.take_along_axis(self._from_end, index[..., None], axis=-1)[..., 0]


def _magnitude(values: jax.Array, is_negative: jax.Array) -> jax.Array:
    """Returns the absolute value, unsigned, since the dtype's minimum has no signed one."""
    unsigned = jnp.uint64 if values.dtype.itemsize == 8 else jnp.uint32
    size = values.astype(unsigned)
    return jnp.where(is_negative, jnp.zeros_like(size) - size, size)


def _places(size: jax.Array) -> int:
    return len(str(np.iinfo(size.dtype).max))
