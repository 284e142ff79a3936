"""FarmHash64 (the "na" variant), the fingerprint by which TensorFlow puts text into buckets.

The algorithm works on whole arrays of texts of one length. It only adds, multiplies, shifts and the like, so that it
takes numpy's uint64 arrays (on the host) and `Wide` ones (on a device) alike.

Source: Fingerprint64 of Google's FarmHash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

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


def fingerprint(text: Characters, length: int, nothing: Hash) -> Hash:
    """Returns the fingerprints of texts of `length` bytes; `nothing` are zeros of the result's shape."""
    if length > 64:
        return _long(text, length, nothing)
    if length > 32:
        return _up_to_64(text, length)
    if length > 16:
        return from_17_to_32([text.word(at) for at in (0, 8, length - 16, length - 8)], length)
    if length >= 8:
        return from_8_to_16(text.word(0), text.word(length - 8), length)
    if length >= 4:
        return from_4_to_7(text.half(0), text.half(length - 4), length)
    if length:
        return from_1_to_3(text.byte(0), text.byte(length >> 1), text.byte(length - 1), length)
    return nothing + _K2


def from_8_to_16(first: Hash, last: Hash, length: Hash) -> Hash:
    """Hashes texts of 8 to 16 bytes, from their first and last 8 bytes (HashLen0to16)."""
    mul = _multiplier(length)
    a, b = first + _K2, last
    return _hash_16(_rotate_right(b, 37) * mul + a, (_rotate_right(a, 25) + b) * mul, mul)


def from_4_to_7(first: Hash, last: Hash, length: Hash) -> Hash:
    """Hashes texts of 4 to 7 bytes, from their first and last 4 bytes (HashLen0to16)."""
    return _hash_16((first << 3) + length, last, _multiplier(length))


def from_1_to_3(first: Hash, middle: Hash, last: Hash, length: Hash) -> Hash:
    """Hashes texts of 1 to 3 bytes (HashLen0to16)."""
    y, z = first + (middle << 8), (last << 2) + length
    return _shift_mix((y * _K2) ^ (z * _K0)) * _K2


def from_17_to_32(words: Sequence[Hash], length: Hash) -> Hash:
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
        # x and z are exchanged after each block.
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
    if isinstance(length, int):
        return (_K2 + 2 * length) & _ALL
    return (length << 1) + _K2


class _HostCharacters:
    """Texts of one length on the host.

    Args:
        rows: uint8 (texts, length).
    """

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows

    def word(self, position: int) -> Hash:
        return np.ascontiguousarray(self._rows[:, position : position + 8]).view("<u8")[:, 0]

    def half(self, position: int) -> Hash:
        return np.ascontiguousarray(self._rows[:, position : position + 4]).view("<u4")[:, 0].astype(np.uint64)

    def byte(self, position: int) -> Hash:
        return self._rows[:, position].astype(np.uint64)


def fingerprints(texts: np.ndarray) -> np.ndarray:
    """Returns the fingerprint of each text.

    Args:
        texts: An object array of bytes, of any shape.

    Returns:
        uint64, of the same shape.
    """
    flat = texts.ravel()
    lengths = np.fromiter(map(len, flat), np.int64, len(flat))
    # By length, so that a batch of texts is hashed by a few vectorized formulas.
    result = np.empty(len(flat), np.uint64)
    for length in np.unique(lengths).tolist():
        which = np.flatnonzero(lengths == length)
        rows = np.frombuffer(b"".join(flat[which]), np.uint8).reshape(len(which), length)
        result[which] = fingerprint(_HostCharacters(rows), length, np.zeros(len(which), np.uint64))
    return result.reshape(texts.shape)
