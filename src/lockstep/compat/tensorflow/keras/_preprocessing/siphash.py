"""SipHash-2-4, the keyed hash by which TensorFlow puts text into buckets if a salt is given.

Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012.
"""

from __future__ import annotations

from collections.abc import Sequence

_MASK = (1 << 64) - 1


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _round(v: list[int], count: int) -> None:
    a, b, c, d = v
    for _ in range(count):
        a = (a + b) & _MASK
        b = _rotate(b, 13) ^ a
        a = _rotate(a, 32)
        c = (c + d) & _MASK
        d = _rotate(d, 16) ^ c
        a = (a + d) & _MASK
        d = _rotate(d, 21) ^ a
        c = (c + b) & _MASK
        b = _rotate(b, 17) ^ c
        c = _rotate(c, 32)
    v[:] = [a, b, c, d]


def siphash(text: bytes, key: Sequence[int]) -> int:
    """Returns the hash of a text by a key of two integers: 64 bits, not negative."""
    k0, k1 = (k & _MASK for k in key)
    # The constants spell "somepseudorandomlygeneratedbytes".
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    whole = len(text) // 8 * 8
    # The last word holds what is left, and the length in its highest byte.
    last = text[whole:].ljust(7, b"\0") + bytes([len(text) & 0xFF])
    for at in range(0, whole + 8, 8):
        word = int.from_bytes(last if at == whole else text[at : at + 8], "little")
        v[3] ^= word
        _round(v, 2)
        v[0] ^= word
    v[2] ^= 0xFF
    _round(v, 4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]
