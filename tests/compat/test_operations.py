"""Operations give what TensorFlow 2.15.1 gives: on the host, on JAX arrays, and compiled by JAX."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from tests.compat.op_cases import CASES, EXPECTED
from tests.support.exhaustive import slow_but

FOUND: dict[str, Any] = json.loads(EXPECTED.read_text())
NARROW = {"int64": "int32", "float64": "float32"}
# Their result's shape, or which branch is taken, depends on values.
KNOWN_ONLY = {"boolean_mask", "where_indices", "unique", "math.segment_max", "math.segment_min"}
COMPILED = sorted(set(CASES) - KNOWN_ONLY)


def check(found: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check(one, other)
        return
    values = np.asarray(found)
    wanted = np.array([], expected["dtype"]) if expected["shape"] == [0] else np.asarray(_read(expected["values"]))
    assert list(values.shape) == expected["shape"]
    dtype = expected["dtype"]
    assert values.dtype.name in (dtype, NARROW.get(dtype))
    np.testing.assert_allclose(
        values.astype(np.float64), wanted.astype(np.float64), rtol=2e-5, atol=1 if dtype == "uint8" else 2e-6
    )


def _read(values: Any) -> Any:
    return [_read(v) for v in values] if isinstance(values, list) else float(values)


def test_every_case_has_an_expected_value() -> None:
    assert set(CASES) == set(FOUND)


@pytest.mark.parametrize("name", CASES)
def test_on_the_host(name: str) -> None:
    found = CASES[name](tf, tf.constant)
    check(found, FOUND[name])
    assert all(isinstance(leaf, np.ndarray) and isinstance(leaf, tf.Tensor) for leaf in jax.tree.leaves(found))


@pytest.mark.parametrize("name", sorted({*KNOWN_ONLY, *sorted(CASES)[::6]}))
def test_on_jax_arrays(name: str) -> None:
    check(CASES[name](tf, lambda v, **_: jnp.asarray(tf.constant(v))), FOUND[name])


@pytest.mark.parametrize("name", slow_but(COMPILED, *COMPILED[::4]))
def test_compiled(name: str) -> None:
    def run(zero: Any) -> Any:
        """Every input depends on an argument, so that JAX knows none of them."""
        return CASES[name](tf, lambda v: hidden(np.asarray(tf.constant(v)), zero))

    check(jax.jit(run)(0), FOUND[name])


def hidden(value: np.ndarray, zero: Any) -> Any:
    return value ^ (zero > 0) if value.dtype == bool else value + zero.astype(value.dtype)
