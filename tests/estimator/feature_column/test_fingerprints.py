from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.estimator.feature_column import _fingerprints
from lockstep.estimator.feature_column._fingerprints import Wide, concatenate, fingerprints, where

_WORDS = st.integers(0, 2**64 - 1)
# Of one length, so that JAX compiles each operation once.
_PAIRS = st.lists(st.tuples(_WORDS, _WORDS), min_size=4, max_size=4)
_MASK = 2**64 - 1


def _texts(*texts: bytes) -> np.ndarray:
    found = np.empty(len(texts), object)
    found[:] = texts
    return found


def _wide(values: list[int]) -> Wide:
    array = np.array(values, np.uint64)
    return Wide(jnp.asarray((array >> np.uint64(32)).astype(np.uint32)), jnp.asarray(array.astype(np.uint32)))


def _integers(wide: Wide) -> list[int]:
    high, low = np.asarray(wide.high).astype(np.uint64), np.asarray(wide.low).astype(np.uint64)
    return ((high << np.uint64(32)) | low).tolist()


@jax.jit
def _pair(values: Any) -> Any:
    found = _fingerprints.decimal_fingerprints(values)
    return found.high, found.low


def _hashed(values: Any) -> Wide:
    return Wide(*_pair(values))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", 11160318154034397263),
        (b"a", 12917804110809363939),
        (b"abc", 2640714258260161385),
        (b"word", 16498804621125554880),
        (b"lockstep", 7377633560936393751),
        (b"feature column", 16982544659128291903),
        (b"seventeen letters", 7723131893474706300),
        (b"x" * 32, 12901576723999808517),
        (b"thirty-three characters are these", 13391396997363738223),
        (b"y" * 64, 4471793200125962424),
        (b"z" * 65, 8299915583762718517),
        (bytes(range(256)), 5291657088564336415),
    ],
)
def test_fingerprints_are_those_of_tensorflow(text: bytes, expected: int) -> None:
    assert fingerprints(_texts(text)).tolist() == [expected]


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=20))
def test_a_fingerprint_depends_on_its_text_alone(texts: list[bytes]) -> None:
    together = fingerprints(_texts(*texts))
    assert together.tolist() == [int(fingerprints(_texts(text))[0]) for text in texts]


def test_fingerprints_keep_the_shape() -> None:
    assert fingerprints(_texts(b"a", b"bc", b"def", b"").reshape(2, 2)).shape == (2, 2)


@given(_PAIRS, st.integers(0, 63))
def test_wide_integers_calculate_modulo_two_to_the_64(pairs: list[tuple[int, int]], bits: int) -> None:
    ones, others = [a for a, _ in pairs], [b for _, b in pairs]
    one, other = _wide(ones), _wide(others)
    assert _integers(one + other) == [(a + b) & _MASK for a, b in pairs]
    assert _integers(one * other) == [(a * b) & _MASK for a, b in pairs]
    assert _integers(one * ones[0]) == [(a * ones[0]) & _MASK for a in ones]
    assert _integers(one ^ other) == [a ^ b for a, b in pairs]
    assert _integers(one >> bits) == [a >> bits for a in ones]
    assert _integers(one << bits) == [(a << bits) & _MASK for a in ones]
    chosen = where(jnp.array([True, False, True, False]), one, other)
    assert _integers(chosen) == [ones[0], others[1], ones[2], others[3]]


@pytest.mark.slow
@given(st.lists(_WORDS, min_size=4, max_size=4), st.integers(1, 2**31 - 1))
def test_remainders_of_wide_integers(values: list[int], divisor: int) -> None:
    assert np.asarray(_wide(values) % divisor).tolist() == [value % divisor for value in values]


@pytest.mark.slow
@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=8, max_size=8))
def test_integers_hash_as_their_decimal_text(values: list[int]) -> None:
    expected = fingerprints(_texts(*(str(value).encode() for value in values)))
    assert _integers(_hashed(jnp.asarray(values, jnp.int32))) == expected.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint32"])
def test_integers_of_every_type_hash_as_their_decimal_text(dtype: str) -> None:
    limits = np.iinfo(dtype)
    values = np.unique(np.linspace(limits.min, limits.max, 300).astype(dtype))
    expected = fingerprints(_texts(*(str(value).encode() for value in values.tolist())))
    assert _integers(_hashed(jnp.asarray(values))) == expected.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_integers_of_64_bits_hash_as_their_decimal_text(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    powers = [sign * 10**place + more for place in range(20) for more in (-1, 0, 1) for sign in (1, -1)]
    values = [v for v in (*powers, limits.min, limits.max) if limits.min <= v <= limits.max]
    with jax.enable_x64(True):
        found = _integers(_hashed(jnp.asarray(np.array(values, dtype))))
    assert found == fingerprints(_texts(*(str(value).encode() for value in values))).tolist()


@given(_PAIRS)
def test_two_fingerprints_become_one_on_host_and_device_alike(pairs: list[tuple[int, int]]) -> None:
    ones, others = [a for a, _ in pairs], [b for _, b in pairs]
    on_host = concatenate(np.array(ones, np.uint64), np.array(others, np.uint64))
    assert _integers(concatenate(_wide(ones), _wide(others))) == on_host.tolist()
