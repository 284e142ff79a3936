"""Learning rates against tables, computed from their definitions with Python's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.errors import ArgumentError
from lockstep.estimator import train as t

STEPS = [0, 1, 3, 5, 9, 10, 11, 17, 20, 23, 100]


def _wave(part: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * part))


def _cycled(step: int) -> float:
    rounds = max(1, math.ceil(step / 10))
    return (0.1 - 0.0001) * (1 - step / (10 * rounds)) ** 0.5 + 0.0001


def _restarted(step: float, longer: float, higher: float, alpha: float) -> float:
    length, height = 5.0, 1.0
    while step >= length:
        step, length, height = step - length, length * longer, height * higher
    return 0.1 * ((1 - alpha) * height * _wave(step / length) + alpha)


CASES: dict[str, tuple[Callable[[Any], Any], Callable[[int], float]]] = {
    "exponential": (lambda s: t.exponential_decay(0.1, s, 10, 0.5), lambda s: 0.1 * 0.5 ** (s / 10)),
    "exponential stairs": (lambda s: t.exponential_decay(0.1, s, 10, 0.5, True), lambda s: 0.1 * 0.5 ** (s // 10)),
    "natural": (lambda s: t.natural_exp_decay(0.1, s, 10, 0.5), lambda s: 0.1 * math.exp(-0.5 * s / 10)),
    "natural stairs": (
        lambda s: t.natural_exp_decay(0.1, s, 10, 0.5, True),
        lambda s: 0.1 * math.exp(-0.5 * (s // 10)),
    ),
    "inverse": (lambda s: t.inverse_time_decay(0.1, s, 10, 0.5), lambda s: 0.1 / (1 + 0.5 * s / 10)),
    "inverse stairs": (lambda s: t.inverse_time_decay(0.1, s, 10, 0.5, True), lambda s: 0.1 / (1 + 0.5 * (s // 10))),
    "polynomial": (
        lambda s: t.polynomial_decay(0.1, s, 10, 0.01, 2.0),
        lambda s: 0.09 * (1 - min(s, 10) / 10) ** 2 + 0.01,
    ),
    "polynomial cycle": (lambda s: t.polynomial_decay(0.1, s, 10, power=0.5, cycle=True), _cycled),
    "piecewise": (
        lambda s: t.piecewise_constant(s, [3, 10, 20], [1.0, 0.5, 0.2, 0.1]),
        lambda s: 1.0 if s <= 3 else 0.5 if s <= 10 else 0.2 if s <= 20 else 0.1,
    ),
    "cosine": (
        lambda s: t.cosine_decay(0.1, s, 10, 0.1),
        lambda s: 0.1 * (0.9 * _wave(min(s, 10) / 10) + 0.1),
    ),
    "restarts": (lambda s: t.cosine_decay_restarts(0.1, s, 5, 2.0, 0.9, 0.1), lambda s: _restarted(s, 2.0, 0.9, 0.1)),
    "even restarts": (lambda s: t.cosine_decay_restarts(0.1, s, 5, 1.0, 0.9), lambda s: _restarted(s, 1.0, 0.9, 0)),
    "linear cosine": (
        lambda s: t.linear_cosine_decay(0.1, s, 10, 2, 0.1, 0.01),
        lambda s: 0.1 * ((0.1 + 1 - min(s, 10) / 10) * _wave(4 * min(s, 10) / 10) + 0.01),
    ),
    "noisy without noise": (
        lambda s: t.noisy_linear_cosine_decay(0.1, s, 10, initial_variance=0.0),
        lambda s: 0.1 * ((1 - min(s, 10) / 10) * _wave(min(s, 10) / 10) + 0.001),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_table(name: str) -> None:
    decay, expected = CASES[name]
    table = [expected(step) for step in STEPS]
    traced = jax.jit(jax.vmap(decay))(np.array(STEPS, np.int32))
    assert traced.dtype == jnp.float32
    np.testing.assert_allclose(traced, table, rtol=2e-5, atol=1e-7)
    plain = [decay(step) for step in STEPS[:4]]
    assert all(value.dtype == jnp.float32 and value.shape == () for value in plain)
    np.testing.assert_allclose(plain, table[:4], rtol=2e-5, atol=1e-7)


def test_noise_depends_on_the_step() -> None:
    import random

    def rates() -> list[float]:
        found = []
        for step in range(1, 8):
            random.seed(1)
            found.append(float(t.noisy_linear_cosine_decay(0.1, step, 10)))
        return found

    assert rates() == rates()
    quiet = [float(t.linear_cosine_decay(0.1, step, 10)) for step in range(1, 8)]
    factors = [
        (noisy - calm) / (0.1 * _wave(s / 10)) * (1 + s) ** 0.275
        for s, (noisy, calm) in enumerate(zip(rates(), quiet, strict=True), 1)
    ]
    assert len({round(f, 4) for f in factors}) == 7
    assert max(abs(f) for f in factors) < 5


def test_a_variable_may_hold_the_step_or_the_rate() -> None:
    rate = t.exponential_decay(keras.Variable(0.4), keras.Variable(10, dtype="int32"), 10, 0.5)
    np.testing.assert_allclose(rate, 0.2)
    assert t.exponential_decay(jnp.float16(0.4), 10, 10, 0.5).dtype == jnp.float16


def test_pieces_of_integers_are_integers() -> None:
    found = t.piecewise_constant_decay(7, [5], [10, 20])
    assert found == 20
    assert found.dtype == jnp.int32
    np.testing.assert_allclose(t.piecewise_constant(5.5, [5.0, 6.0], [0.3, 0.2, 0.1]), 0.2)


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=6, unique=True).map(sorted),
    st.integers(-5, 1005),
)
def test_pieces_are_chosen_by_their_boundaries(boundaries: list[int], step: int) -> None:
    values = [float(i) for i in range(len(boundaries) + 1)]
    assert t.piecewise_constant(step, boundaries, values) == sum(step > b for b in boundaries)


@pytest.mark.parametrize(
    ("decay", "message"),
    [
        (lambda: t.exponential_decay(0.1, None, 10, 0.5), "is computed in the model_fn, or for a given number"),
        (lambda: t.cosine_decay(0.1, t.get_global_step(), 10), "is computed in the model_fn, or for a given number"),
        (lambda: t.piecewise_constant(1, [1, 2], [0.1, 0.2]), "one value more than boundaries"),
        (lambda: t.piecewise_constant(1, [1.0], [0.1, 0.2]), "boundaries must be integers or floats"),
        (lambda: t.piecewise_constant(1, [1], [0.1, 1]), "values must be integers or floats"),
    ],
)
def test_what_has_no_meaning_is_refused(decay: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        decay()
