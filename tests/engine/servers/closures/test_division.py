"""Traced functions that are divided: what a worker sends, and what servers make of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lockstep._engine.servers.closures.division import Division, divide
from lockstep._engine.step.replica_invariance import is_probe, probe

VALUE = np.linspace(0.5, 2.0, 12, dtype=np.float32).reshape(4, 3)


def _divided(function: Callable[..., Any], arguments: Sequence[Any], variables: Sequence[Any]) -> Division:
    closed = jax.make_jaxpr(function)(*arguments, *variables)
    return divide(closed, len(arguments), [(n, "value") for n in range(len(variables))], is_probe)


def _run(division: Division, arguments: Sequence[Any], read: Sequence[Any], held: Sequence[Any]) -> list[Any]:
    """Computes with the values that were read, and applies effects to those that servers hold."""
    inputs = [*arguments, *read]
    found = division.compute(*(inputs[n] for n in division.used))[division.results :]
    after = list(held)
    for effect in division.effects:
        values = effect.run([held[n] for n in effect.variables], [found[n] for n in effect.payload], None)
        for n, value in zip(effect.variables, values, strict=True):
            after[n] = value
    return after


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, v: v + x, lambda x, v, held: held + x),
        (lambda x, v: v - x * v, lambda x, v, held: held - x * held),
        (lambda x, v: v - x * (v @ v.T) @ v, lambda x, v, held: held - x * (v @ v.T) @ v),
        (lambda x, v: jnp.maximum(v, x), lambda x, v, held: np.maximum(held, x)),
        (lambda x, v: v * 0.9 + x * 0.1, lambda x, v, held: held * np.float32(0.9) + x * np.float32(0.1)),
        (lambda x, v: jnp.full((4, 3), 7.0) * x, lambda x, v, held: np.full((4, 3), 7.0) * x),
        # Too much for a server: what has changed is added.
        (lambda x, v: jnp.tanh(v @ v.T) @ v, lambda x, v, held: held + (np.tanh(v @ v.T) @ v - v)),
    ],
)
def test_effects_are_on_what_servers_hold(function: Any, expected: Any) -> None:
    x, held = np.float32(1.5), VALUE * 3
    division = _divided(function, [x], [VALUE])
    (after,) = _run(division, [x], [VALUE], [held])
    np.testing.assert_allclose(after, expected(x, VALUE, held), rtol=1e-5)


def _adam(x: Any, w: Any, m: Any, v: Any, step: Any) -> Any:
    gradient = probe(jax.grad(lambda w: jnp.sum((w * x) ** 2))(w), "0")
    rate = 0.1 * jnp.sqrt(1 - 0.99 ** (step + 1).astype("float32"))
    m2, v2 = m + (gradient - m) * 0.1, v + (jnp.square(gradient) - v) * 0.01
    return w - rate * m2 / (jnp.sqrt(v2) + 1e-7), m2, v2, step + 1


def test_of_an_optimizer_the_gradient_and_scalars_are_sent() -> None:
    variables: list[Any] = [VALUE, VALUE * 0, VALUE * 0, np.int32(3)]
    division = _divided(_adam, [np.float32(2)], variables)
    assert [p.shape for p in division.payload] == [(4, 3), ()]
    groups = {effect.variables: effect.is_by_rows for effect in division.effects}
    assert groups == {(0, 1, 2): True, (3,): False}
    held = [VALUE + 1, VALUE * 0 + 0.5, VALUE * 0 + 0.25, np.int32(9)]
    after = _run(division, [np.float32(2)], variables, held)
    gradient: Any = 8 * VALUE
    rate = 0.1 * np.sqrt(1 - 0.99**4)
    m, v = 0.5 + (gradient - 0.5) * 0.1, 0.25 + (gradient**2 - 0.25) * 0.01
    np.testing.assert_allclose(after[0], VALUE + 1 - rate * m / (np.sqrt(v) + 1e-7), rtol=1e-5)
    np.testing.assert_allclose(after[2], v, rtol=1e-5)
    assert after[3] == 10


@pytest.mark.slow
def test_ranges_of_rows_are_computed_by_themselves() -> None:
    variables: list[Any] = [VALUE, VALUE * 0, VALUE * 0, np.int32(3)]
    division = _divided(_adam, [np.float32(2)], variables)
    found = division.compute(*(([np.float32(2), *variables])[n] for n in division.used))[division.results :]
    effect = next(e for e in division.effects if e.is_by_rows)
    payload = [found[n] for n in effect.payload]
    whole = effect.run([variables[n] for n in effect.variables], payload, None)
    for start, stop in ((0, 3), (3, 4)):
        part = effect.run(
            [variables[n][start:stop] for n in effect.variables],
            [p[start:stop] if p.shape else p for p in payload],
            stop - start,
        )
        for one, all_rows in zip(part, whole, strict=True):
            np.testing.assert_array_equal(one, all_rows[start:stop])


def test_what_needs_all_gradients_is_computed_by_the_worker() -> None:
    def clipped(a: Any, b: Any) -> Any:
        g = [probe(x * 2, "0") for x in (a, b)]
        norm = jnp.sqrt(sum(jnp.sum(x**2) for x in g))
        return a - g[0] / norm, b - g[1] / norm

    division = _divided(clipped, [], [VALUE, VALUE[0]])
    assert {effect.variables for effect in division.effects} == {(0,), (1,)}
    after = _run(division, [], [VALUE, VALUE[0]], [VALUE, VALUE[0]])
    for one, expected in zip(after, clipped(VALUE, VALUE[0]), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-5)


def test_an_amount_is_added() -> None:
    closed = jax.make_jaxpr(lambda x, v: x * 2)(np.float32(3), np.float32(1))
    division = divide(closed, 1, [(0, "amount")], is_probe)
    (after,) = _run(division, [np.float32(3)], [np.float32(1)], [np.float32(10)])
    assert after == 16
