"""Fingerprints of integers' decimal text, computed on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep.feature_column import _farmhash
from lockstep.feature_column._wide import Wide, where

_ZERO, _MINUS = ord("0"), ord("-")


def fingerprints(values: jax.Array) -> Wide:
    """Returns what `_farmhash.fingerprints` returns for `str(value).encode()` of each value."""
    text = _Decimal(values)
    found = _farmhash.from_1_to_3(text.byte(0), text.byte(text.middle), text.byte(text.length - 1), text.wide_length)
    by_length = [(4, lambda: _farmhash.from_4_to_7(text.half(0), text.half(text.length - 4), text.wide_length))]
    by_length.append((8, lambda: _farmhash.from_8_to_16(text.word(0), text.word(text.length - 8), text.wide_length)))
    by_length.append((17, lambda: _farmhash.from_17_to_32(text.four_words(), text.wide_length)))
    for length, compute in by_length:
        if text.longest >= length:
            found = where(text.length >= length, compute(), found)
    return found


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
        written = jnp.asarray(number, jnp.int32) + 1
        self.length = written + is_negative
        self.middle = self.length >> 1
        self._from_end = self._characters(digits, written)

    def _characters(self, digits: Sequence[jax.Array], written: jax.Array) -> jax.Array:
        """The characters, the last one first: uint32 (*shape, longest)."""
        padded = [*digits, jnp.zeros_like(digits[0])][: self.longest]
        columns = [jnp.where(i < written, d.astype(jnp.uint32) + _ZERO, _MINUS) for i, d in enumerate(padded)]
        return jnp.stack(columns, axis=-1)

    @property
    def wide_length(self) -> Wide:
        """How many characters there are."""
        return Wide(jnp.zeros_like(self.length, jnp.uint32), self.length.astype(jnp.uint32))

    def byte(self, position: Any) -> Wide:
        """The character at a position, which may differ between the texts."""
        return Wide(jnp.zeros_like(self.length, jnp.uint32), self._character(position))

    def half(self, position: Any) -> Wide:
        """4 characters from a position on."""
        return Wide(jnp.zeros_like(self.length, jnp.uint32), self._four(position))

    def word(self, position: Any) -> Wide:
        """8 characters from a position on."""
        return Wide(self._four(position + 4), self._four(position))

    def four_words(self) -> list[Wide]:
        """The first two and the last two words."""
        return [self.word(0), self.word(8), self.word(self.length - 16), self.word(self.length - 8)]

    def _four(self, position: Any) -> jax.Array:
        first, second, third, fourth = (self._character(position + offset) for offset in range(4))
        return first | (second << 8) | (third << 16) | (fourth << 24)

    def _character(self, position: Any) -> jax.Array:
        place = jnp.clip(self.length - 1 - position, 0, self.longest - 1)
        return jnp.take_along_axis(self._from_end, place[..., None], axis=-1)[..., 0]


def _magnitude(values: jax.Array, is_negative: jax.Array) -> jax.Array:
    """The absolute value, unsigned, so that the least integer has one too."""
    unsigned = jnp.uint64 if values.dtype.itemsize == 8 else jnp.uint32
    size = values.astype(unsigned)
    return jnp.where(is_negative, jnp.zeros_like(size) - size, size)


def _places(size: jax.Array) -> int:
    return len(str(np.iinfo(size.dtype).max))
