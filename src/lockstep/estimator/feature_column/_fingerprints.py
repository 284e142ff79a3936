"""FarmHash64 (the "na" variant), the fingerprint by which TensorFlow puts text into buckets, on hosts and devices.

The algorithm works on whole arrays of texts of one length. It only adds, multiplies, shifts and the like, so that it
takes numpy's uint64 arrays (on the host) and `Wide` ones (on a device) alike.

Source: Fingerprint64 of Google's FarmHash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._types import Array

_LOW_BITS = 0xFFFFFFFF
# FarmHash's constants k0, k1, k2: primes between 2^63 and 2^64.
_K0 = 0xC3A5C85C97CB3127
_K1 = 0xB492B66FBE98F273
_K2 = 0x9AE16A3B2F90404F
_ALL = 0xFFFFFFFFFFFFFFFF
# The multiplier of FingerprintCat64.
_MIX = 0xC6A4A7935BD1E995

Hash: TypeAlias = Any
"""64-bit unsigned integers: numpy's uint64 on the host, `Wide` on a device, or a Python integer."""


class Characters(Protocol):
    """The bytes of texts of one length."""

    def word(self, position: int) -> Hash:
        """Returns 8 bytes of each text, little end first."""
        ...

    def half(self, position: int) -> Hash:
        """Returns 4 bytes of each text, as 64 bits."""
        ...

    def byte(self, position: int) -> Hash:
        """Returns a byte of each text, as 64 bits."""
        ...


def _fingerprint(text: Characters, length: int, nothing: Hash) -> Hash:
    """Returns the fingerprints of texts of `length` bytes; `nothing` are zeros of the result's shape."""
    # By length as FarmHash: each range reads every byte, with as few multiplications as it can.
    if length > 64:
        return _long(text, length, nothing)
    if length > 32:
        return _up_to_64(text, length)
    if length > 16:
        return _from_17_to_32([text.word(at) for at in (0, 8, length - 16, length - 8)], length)
    if length >= 8:
        return _from_8_to_16(text.word(0), text.word(length - 8), length)
    if length >= 4:
        return _from_4_to_7(text.half(0), text.half(length - 4), length)
    if length:
        return _from_1_to_3(text.byte(0), text.byte(length >> 1), text.byte(length - 1), length)
    return nothing + _K2


def _from_8_to_16(first: Hash, last: Hash, length: Hash) -> Hash:
    """Hashes texts of 8 to 16 bytes, from their first and last 8 bytes (HashLen0to16)."""
    mul = _multiplier(length)
    a, b = first + _K2, last
    return _hash_16(_rotate_right(b, 37) * mul + a, (_rotate_right(a, 25) + b) * mul, mul)


def _from_4_to_7(first: Hash, last: Hash, length: Hash) -> Hash:
    """Hashes texts of 4 to 7 bytes, from their first and last 4 bytes (HashLen0to16)."""
    return _hash_16((first << 3) + length, last, _multiplier(length))


def _from_1_to_3(first: Hash, middle: Hash, last: Hash, length: Hash) -> Hash:
    """Hashes texts of 1 to 3 bytes (HashLen0to16)."""
    y, z = first + (middle << 8), (last << 2) + length
    return _shift_mix((y * _K2) ^ (z * _K0)) * _K2


def _from_17_to_32(words: Sequence[Hash], length: Hash) -> Hash:
    """Hashes texts of 17 to 32 bytes, from their first and last two words of 8 bytes (HashLen17to32)."""
    mul = _multiplier(length)
    a, b = words[0] * _K1, words[1]
    c, d = words[3] * mul, words[2] * _K2
    return _hash_16(_rotate_right(a + b, 43) + _rotate_right(c, 30) + d, a + _rotate_right(b + _K2, 18) + c, mul)


def _up_to_64(text: Characters, length: int) -> Hash:
    mul = _multiplier(length)
    a, b = text.word(0) * _K2, text.word(8)
    c, d = text.word(length - 8) * mul, text.word(length - 16) * _K2
    y = _rotate_right(a + b, 43) + _rotate_right(c, 30) + d
    z = _hash_16(y, a + _rotate_right(b + _K2, 18) + c, mul)
    e, f = text.word(16) * mul, text.word(24)
    g, h = (y + text.word(length - 32)) * mul, (z + text.word(length - 24)) * mul
    return _hash_16(_rotate_right(e + f, 43) + _rotate_right(g, 30) + h, e + _rotate_right(f + a, 18) + g, mul)


def _long(text: Characters, length: int, nothing: Hash) -> Hash:
    """Hashes texts of more than 64 bytes in blocks of 64; the last block ends at the text's end."""
    seed = 81
    x = nothing + (seed * _K2 & _ALL) + text.word(0)
    y = nothing + ((seed * _K1 + 113) & _ALL)
    z = _shift_mix(y * _K2 + 113) * _K2
    v = w = (nothing, nothing)
    for at in range(0, (length - 1) // 64 * 64, 64):
        # x and z are exchanged after each block, as in the original, which processes them in turn.
        z, y, x, v, w = _block(text, at, (x, y, z), v, w, mul=_K1, factor=1)
    mul = ((z & 0xFF) << 1) + _K1
    w = (w[0] + ((length - 1) & 63), w[1])
    v = (v[0] + w[0], v[1])
    w = (w[0] + v[0], w[1])
    z, y, x, v, w = _block(text, length - 64, (x, y, z), v, w, mul=mul, factor=9)
    first = _hash_16(v[0], w[0], mul) + _shift_mix(y) * _K0 + z
    return _hash_16(first, _hash_16(v[1], w[1], mul) + x, mul)


def _block(text: Characters, at: int, state: tuple[Hash, Hash, Hash], v: Hash, w: Hash, mul: Hash, factor: int) -> Hash:
    x, y, z = state
    x = _rotate_right(x + y + v[0] + text.word(at + 8), 37) * mul
    y = _rotate_right(y + v[1] + text.word(at + 48), 42) * mul
    x = x ^ (w[1] * factor)
    y = y + v[0] * factor + text.word(at + 40)
    z = _rotate_right(z + w[0], 33) * mul
    v = _pair(text, at, v[1] * mul, x + w[0])
    w = _pair(text, at + 32, z + w[1], y + text.word(at + 16))
    return x, y, z, v, w


def _pair(text: Characters, at: int, a: Hash, b: Hash) -> tuple[Hash, Hash]:
    first, second, third, fourth = (text.word(at + offset) for offset in (0, 8, 16, 24))
    a = a + first
    b = _rotate_right(b + a + fourth, 21)
    c = a
    a = a + second + third
    b = b + _rotate_right(a, 44)
    return a + fourth, b + c


def concatenate(one: Hash, other: Hash) -> Hash:
    """Combines two fingerprints (TensorFlow's FingerprintCat64)."""
    # What crossed columns chain; order matters, so the columns' order is part of the hash.
    result = one ^ _MIX
    result = (result ^ (_shift_mix(other * _MIX) * _MIX)) * _MIX
    return _shift_mix(_shift_mix(result) * _MIX)


def _hash_16(u: Hash, v: Hash, mul: Hash) -> Hash:
    a = _shift_mix((u ^ v) * mul)
    b = _shift_mix((v ^ a) * mul)
    return b * mul


def _shift_mix(value: Hash) -> Hash:
    return value ^ (value >> 47)


def _rotate_right(value: Hash, bits: int) -> Hash:
    return (value >> bits) | (value << (64 - bits))


def _multiplier(length: Hash) -> Hash:
    # Python's integers do not wrap around at 64 bits by themselves.
    if isinstance(length, int):
        return (_K2 + 2 * length) & _ALL
    return (length << 1) + _K2


class _HostCharacters:
    """Texts of one length on the host: uint8 (texts, length)."""

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows

    def word(self, position: int) -> Hash:
        return np.ascontiguousarray(self._rows[:, position : position + 8]).view("<u8")[:, 0]

    def half(self, position: int) -> Hash:
        return np.ascontiguousarray(self._rows[:, position : position + 4]).view("<u4")[:, 0].astype(np.uint64)

    def byte(self, position: int) -> Hash:
        return self._rows[:, position].astype(np.uint64)


def fingerprints(texts: np.ndarray) -> np.ndarray:
    """Returns the fingerprint of each text of an object array of bytes: uint64, of the same shape."""
    # TensorFlow hashes bytes, not characters: the encoding is the caller's.
    flat = texts.ravel()
    lengths = np.fromiter(map(len, flat), np.int64, len(flat))
    # By length, so that a batch of texts is hashed by a few vectorized formulas.
    result = np.empty(len(flat), np.uint64)
    for length in np.unique(lengths).tolist():
        which = np.flatnonzero(lengths == length)
        rows = np.frombuffer(b"".join(flat[which]), np.uint8).reshape(len(which), length)
        result[which] = _fingerprint(_HostCharacters(rows), length, np.zeros(len(which), np.uint64))
    return result.reshape(texts.shape)


class Wide:
    """Unsigned integers of 64 bits on a device, as pairs of uint32 arrays, which do what numpy's uint64 arrays do."""

    # JAX has no 64 bits unless it is told to, and that setting holds for the whole process.

    __slots__ = ("high", "low")

    def __init__(self, high: Array, low: Array) -> None:
        self.high = high
        self.low = low

    @classmethod
    def of(cls, value: Wide | int) -> Wide:
        """Converts a Python integer; returns a `Wide` as it is."""
        if isinstance(value, Wide):
            return value
        return cls(np.uint32((value >> 32) & _LOW_BITS), np.uint32(value & _LOW_BITS))

    @classmethod
    def of_integers(cls, values: jax.Array) -> Wide:
        """Converts integers of any dtype; negative ones to two's complement."""
        if values.dtype.itemsize == 8:
            return cls((values >> 32).astype(jnp.uint32), values.astype(jnp.uint32))
        is_negative = values < 0
        return cls(jnp.where(is_negative, np.uint32(_LOW_BITS), np.uint32(0)), values.astype(jnp.uint32))

    def __add__(self, other: Wide | int) -> Wide:
        other = Wide.of(other)
        low = self.low + other.low
        # An unsigned sum wraps around exactly if it is below an operand.
        carry = (low < other.low).astype(jnp.uint32)
        return Wide(self.high + other.high + carry, low)

    __radd__ = __add__

    def __mul__(self, other: Wide | int) -> Wide:
        other = Wide.of(other)
        # Modulo 2^64 the product of the upper halves falls away, and so do the upper bits of the mixed ones.
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


def decimal_fingerprints(values: jax.Array) -> Wide:
    """Returns the fingerprint of each integer's decimal text, as `fingerprints` of `str(value).encode()`."""
    text = _Decimal(values)
    result = _from_1_to_3(text.byte(0), text.byte(text.middle), text.byte(text.length - 1), text.wide_length)
    # Every formula is computed for all values, since lengths differ within an array; int8 needs only the first.
    if text.longest >= 4:
        middle = _from_4_to_7(text.half(0), text.half(text.length - 4), text.wide_length)
        result = where(text.length >= 4, middle, result)
    if text.longest >= 8:
        long = _from_8_to_16(text.word(0), text.word(text.length - 8), text.wide_length)
        result = where(text.length >= 8, long, result)
    if text.longest >= 17:
        words = [text.word(0), text.word(8), text.word(text.length - 16), text.word(text.length - 8)]
        result = where(text.length >= 17, _from_17_to_32(words, text.wide_length), result)
    return result


class _Decimal:
    """The characters of integers' decimal text, whose lengths differ within an array."""

    def __init__(self, values: jax.Array) -> None:
        limits = jnp.iinfo(values.dtype)
        self.longest = max(len(str(limits.min)), len(str(limits.max)))
        is_negative = values < 0
        # Unsigned, since the dtype's minimum has no signed absolute value.
        size = values.astype(jnp.uint64 if values.dtype.itemsize == 8 else jnp.uint32)
        size = jnp.where(is_negative, jnp.zeros_like(size) - size, size)
        places = len(str(np.iinfo(size.dtype).max))
        digits = [(size // size.dtype.type(10**place)) % size.dtype.type(10) for place in range(places)]
        number = sum((size >= size.dtype.type(10**place)).astype(jnp.int32) for place in range(1, places))
        count = jnp.asarray(number, jnp.int32) + 1
        self.length = count + is_negative
        self.middle = self.length >> 1
        self.wide_length = Wide(jnp.zeros_like(self.length, jnp.uint32), self.length.astype(jnp.uint32))
        # The last character first, uint32 (*shape, longest): digits stand at the same index in texts of any length.
        padded = [*digits, jnp.zeros_like(digits[0])][: self.longest]
        columns = [jnp.where(i < count, d.astype(jnp.uint32) + ord("0"), ord("-")) for i, d in enumerate(padded)]
        self._from_end = jnp.stack(columns, axis=-1)

    def byte(self, position: int | jax.Array) -> Wide:
        """Returns the character at a position, which may differ between texts."""
        return Wide(jnp.zeros_like(self.length, jnp.uint32), self._character(position))

    def half(self, position: int | jax.Array) -> Wide:
        """Returns 4 characters from a position on."""
        return Wide(jnp.zeros_like(self.length, jnp.uint32), self._four(position))

    def word(self, position: int | jax.Array) -> Wide:
        """Returns 8 characters from a position on."""
        return Wide(self._four(position + 4), self._four(position))

    def _four(self, position: int | jax.Array) -> jax.Array:
        first, second, third, fourth = (self._character(position + offset) for offset in range(4))
        return first | (second << 8) | (third << 16) | (fourth << 24)

    def _character(self, position: int | jax.Array) -> jax.Array:
        # Clipped: all formulas are computed for texts of all lengths, and `where` drops those of too long ones.
        index = jnp.clip(self.length - 1 - position, 0, self.longest - 1)
        return jnp.take_along_axis(self._from_end, index[..., None], axis=-1)[..., 0]
