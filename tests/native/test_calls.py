"""Products of every size, and updates of every kind of operation, are what numpy makes of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._native import calls, compiler
from lockstep._native.update import Operation, is_known, written
from tests.support.compiler import needs_kernels

_SIZES = st.integers(1, 75)
_F = np.float32


pytestmark = needs_kernels


def test_they_are_there() -> None:
    assert calls.are_there()


@given(m=_SIZES, k=_SIZES, n=_SIZES)
def test_products(m: int, k: int, n: int) -> None:
    left, right = _random(m, k), _random(k, n)
    np.testing.assert_allclose(jax.jit(calls.product)(left, right), left @ right, rtol=1e-4, atol=1e-4)
    found = jax.jit(calls.product_with_transposed)(left, np.ascontiguousarray(right.T))
    np.testing.assert_allclose(found, left @ right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("m", "k", "n"), [(32, 784, 256), (3, 2000, 300), (400, 30, 33), (256, 256, 32), (1, 1, 1000)])
def test_products_of_which_threads_take_parts(m: int, k: int, n: int) -> None:
    left, right = _random(m, k), _random(k, n)
    expected = left.astype(np.float64) @ right
    for found in (calls.product(left, right), calls.product_with_transposed(left, np.ascontiguousarray(right.T))):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


def test_nan_and_infinity_stay_in_their_rows_and_columns() -> None:
    left, right = _random(40, 50), _random(50, 70)
    left[3, 7], right[9, 66] = np.nan, np.inf
    for found in (calls.product(left, right), calls.product_with_transposed(left, np.ascontiguousarray(right.T))):
        wrong = ~np.isfinite(np.asarray(found))
        expected = np.zeros((40, 70), bool)
        expected[3], expected[:, 66] = True, True
        np.testing.assert_array_equal(wrong, expected)


def test_without_memory_for_a_copy_it_is_an_error_of_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = "aligned_alloc(64, copied * sizeof *job->copies)"
    source = compiler._source()
    assert wanted in source
    monkeypatch.setattr(compiler, "_source", lambda: source.replace(wanted, "NULL"))
    monkeypatch.setattr(calls, "_names", {})
    compiler.library.cache_clear()
    try:
        np.testing.assert_allclose(calls.product(_random(8, 8), np.eye(8, 64, dtype=_F))[:, :8], _random(8, 8))
        with pytest.raises(jax.errors.JaxRuntimeError, match="no memory is left for a copy of a matrix"):
            jax.block_until_ready(calls.product(_random(8, 8), _random(8, 33)))
    finally:
        compiler.library.cache_clear()


@given(m=_SIZES, k=_SIZES, n=_SIZES)
def test_momentum(m: int, k: int, n: int) -> None:
    text = written(
        "g",
        ["w", "v"],
        ["rate"],
        [
            Operation("mul", {}, ("v", _F(0.9)), "kept"),
            Operation("mul", {}, ("g", "rate"), "part"),
            Operation("sub", {}, ("kept", "part"), "now"),
            Operation("add", {}, ("w", "now"), "after"),
        ],
        ["now", "after"],
    )
    left, right, weight, velocity, rate = _random(k, m), _random(k, n), _random(m, n), _random(m, n), _F(0.3)

    @jax.jit
    def update(weight: Any, velocity: Any) -> Any:
        return calls.updated(text, left, right, [weight, velocity], [jnp.asarray(rate)], 2, {0: 1, 1: 0})

    assert calls.can_update(text)
    now = velocity * _F(0.9) - (left.T @ right) * rate
    found = update(weight, velocity)
    np.testing.assert_allclose(found[0], now, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[1], weight + now, rtol=1e-4, atol=1e-4)


_UNARY = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "square": np.square,
    "is_finite": np.isfinite,
    "copy": np.copy,
    "convert_element_type": np.copy,
    "broadcast_in_dim": np.copy,
    "stop_gradient": np.copy,
}
_BINARY = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_LOGIC = {"and": np.logical_and, "or": np.logical_or}
# Not the smallest: XLA's threads take those for zero.
_SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e30)


def test_every_operation_with_every_special_number() -> None:
    left, right = np.eye(8, dtype=_F), _random(8, len(_SPECIAL) * 4)
    right[:, : len(_SPECIAL)] = np.array(_SPECIAL, _F)
    other = _random(8, right.shape[1])
    other[:] = np.array(_SPECIAL, _F)[:, None]
    # A product with 1 and 0 is the number itself, where none is infinite; so special numbers come as another array.
    values = {"g": np.ones_like(right), "a": right, "b": other}
    operations = [
        *(Operation(name, {}, ("a",), name) for name in _UNARY),
        *(Operation(name, {}, ("a", "b"), name) for name in _BINARY),
        *(Operation("integer_pow", {"y": y}, ("a",), f"power {y}") for y in (-2, 0, 1, 3)),
        Operation("not", {}, ("lt",), "not"),
        *(Operation(name, {}, ("lt", "eq"), name) for name in _LOGIC),
        Operation("select_n", {}, ("gt", "a", "b"), "select_n"),
        Operation("mul", {}, ("a", _F(np.inf)), "infinite"),
        Operation("add", {}, ("a", _F(np.nan)), "no number"),
        Operation("add", {}, ("a", _F(-0.1)), "number"),
    ]
    with np.errstate(all="ignore"):
        values |= {name: f(right) for name, f in _UNARY.items()} | {
            name: f(right, other) for name, f in _BINARY.items()
        }
        values |= {f"power {y}": right ** _F(y) for y in (-2, 0, 1, 3)} | {"not": ~values["lt"]}
        values |= {name: f(values["lt"], values["eq"]) for name, f in _LOGIC.items()}
        values |= {"select_n": np.where(values["gt"], other, right), "infinite": right * _F(np.inf)}
        values |= {"no number": right * _F(np.nan), "number": right + _F(-0.1)}
    assert all(is_known(operation.name, operation.params) for operation in operations)
    results = [operation.output for operation in operations]
    text = written("g", ["a", "b"], [], operations, results)
    assert calls.can_update(text)
    found = calls.updated(text, left, np.ones_like(right), [right, other], [], len(results), {})
    for name, array in zip(results, found, strict=True):
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(array, values[str(name)].astype(_F), rtol=1e-6, atol=1e-37, err_msg=str(name))


def test_what_cannot_be_written_is_not_known() -> None:
    assert not is_known("exp", {}) and not is_known("integer_pow", {"y": 100})


def _random(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(_F)
