"""Each optimizer against its recurrence, written out in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

from lockstep.errors import ArgumentError
from lockstep.estimator import train as t
from tests.training.driver import Trained, spec, train

START = np.array([0.5, -1.0, 0.02, 2.0], np.float32)
GRADIENTS = np.random.default_rng(0).normal(0.2, 1.0, (20, 4)).astype(np.float32)

# (variable, state, gradient) -> variable; the state is a dictionary that the recurrence keeps.
Recurrence = Callable[[Any, dict[str, Any], Any], Any]


def gradient_descent(rate: float) -> Recurrence:
    return lambda w, state, g: w - rate * g


def momentum(rate: float, m: float, nesterov: bool) -> Recurrence:
    def step(w: Any, state: dict[str, Any], g: Any) -> Any:
        state["Momentum"] = m * state.get("Momentum", 0) + g
        return w - rate * (g + m * state["Momentum"] if nesterov else state["Momentum"])

    return step


def adagrad(rate: float, start: float) -> Recurrence:
    def step(w: Any, state: dict[str, Any], g: Any) -> Any:
        state["Adagrad"] = state.get("Adagrad", start) + g**2
        return w - rate * g / np.sqrt(state["Adagrad"])

    return step


def adam(rate: float, b1: float, b2: float, epsilon: float) -> Recurrence:
    def step(w: Any, state: dict[str, Any], g: Any) -> Any:
        count = state["count"] = state.get("count", 0) + 1
        state["Adam"] = b1 * state.get("Adam", 0) + (1 - b1) * g
        state["Adam_1"] = b2 * state.get("Adam_1", 0) + (1 - b2) * g**2
        corrected = rate * np.sqrt(1 - b2**count) / (1 - b1**count)
        return w - corrected * state["Adam"] / (np.sqrt(state["Adam_1"]) + epsilon)

    return step


def adadelta(rate: float, rho: float, epsilon: float) -> Recurrence:
    def step(w: Any, state: dict[str, Any], g: Any) -> Any:
        state["Adadelta"] = rho * state.get("Adadelta", 0) + (1 - rho) * g**2
        moved = g * np.sqrt(state.get("Adadelta_1", 0) + epsilon) / np.sqrt(state["Adadelta"] + epsilon)
        state["Adadelta_1"] = rho * state.get("Adadelta_1", 0) + (1 - rho) * moved**2
        return w - rate * moved

    return step


def rmsprop(rate: float, decay: float, m: float, epsilon: float, centered: bool) -> Recurrence:
    last = "RMSProp_2" if centered else "RMSProp_1"

    def step(w: Any, state: dict[str, Any], g: Any) -> Any:
        state["RMSProp"] = decay * state.get("RMSProp", 1) + (1 - decay) * g**2
        variance = state["RMSProp"]
        if centered:
            state["RMSProp_1"] = decay * state.get("RMSProp_1", 0) + (1 - decay) * g
            variance = variance - state["RMSProp_1"] ** 2
        state[last] = m * state.get(last, 0) + rate * g / np.sqrt(variance + epsilon)
        return w - state[last]

    return step


def ftrl(rate: float, l1: float = 0, l2: float = 0, shrinkage: float = 0, power: float = -0.5, start: float = 0.1):
    def step(w: Any, state: dict[str, Any], g: Any) -> Any:
        before = state.get("Ftrl", start)
        after = state["Ftrl"] = before + g**2
        moved = (after**-power - before**-power) / rate
        z = state["Ftrl_1"] = state.get("Ftrl_1", 0) + g + 2 * shrinkage * w - moved * w
        return np.where(np.abs(z) > l1, (np.sign(z) * l1 - z) / (after**-power / rate + 2 * l2), 0)

    return step


def proximal(rate: float, l1: float, l2: float, start: float | None = None) -> Recurrence:
    def step(w: Any, state: dict[str, Any], g: Any) -> Any:
        own = rate
        if start is not None:
            state["ProximalAdagrad"] = state.get("ProximalAdagrad", start) + g**2
            own = rate / np.sqrt(state["ProximalAdagrad"])
        moved = w - own * g
        return np.sign(moved) * np.maximum(np.abs(moved) - own * l1, 0) / (1 + own * l2)

    return step


CASES: dict[str, tuple[Callable[[], t.Optimizer], Recurrence]] = {
    "gradient descent": (lambda: t.GradientDescentOptimizer(0.1), gradient_descent(0.1)),
    "momentum": (lambda: t.MomentumOptimizer(0.1, 0.9), momentum(0.1, 0.9, False)),
    "nesterov": (lambda: t.MomentumOptimizer(0.1, 0.9, use_nesterov=True), momentum(0.1, 0.9, True)),
    "adagrad": (lambda: t.AdagradOptimizer(0.3), adagrad(0.3, 0.1)),
    "adagrad from 1": (lambda: t.AdagradOptimizer(0.3, 1.0), adagrad(0.3, 1.0)),
    "adam": (lambda: t.AdamOptimizer(), adam(0.001, 0.9, 0.999, 1e-8)),
    "adam with all": (lambda: t.AdamOptimizer(0.05, 0.8, 0.95, 0.1), adam(0.05, 0.8, 0.95, 0.1)),
    "adadelta": (lambda: t.AdadeltaOptimizer(), adadelta(0.001, 0.95, 1e-8)),
    "adadelta with all": (lambda: t.AdadeltaOptimizer(1.0, 0.9, 1e-3), adadelta(1.0, 0.9, 1e-3)),
    "rmsprop": (lambda: t.RMSPropOptimizer(0.05), rmsprop(0.05, 0.9, 0.0, 1e-10, False)),
    "rmsprop with all": (lambda: t.RMSPropOptimizer(0.05, 0.8, 0.9, 1e-3), rmsprop(0.05, 0.8, 0.9, 1e-3, False)),
    "centered rmsprop": (
        lambda: t.RMSPropOptimizer(0.05, momentum=0.5, centered=True),
        rmsprop(0.05, 0.9, 0.5, 1e-10, True),
    ),
    "ftrl": (lambda: t.FtrlOptimizer(0.3), ftrl(0.3)),
    "ftrl with penalties": (
        lambda: t.FtrlOptimizer(0.3, l1_regularization_strength=0.2, l2_regularization_strength=0.1),
        ftrl(0.3, l1=0.2, l2=0.1),
    ),
    "ftrl with shrinkage": (
        lambda: t.FtrlOptimizer(0.3, l1_regularization_strength=0.05, l2_shrinkage_regularization_strength=0.1),
        ftrl(0.3, l1=0.05, shrinkage=0.1),
    ),
    "ftrl with a power": (
        lambda: t.FtrlOptimizer(0.3, -0.3, 0.5, beta=0.7),
        ftrl(0.3, l2=0.7 / (2 * 0.3), power=-0.3, start=0.5),
    ),
    "ftrl with a fixed rate": (lambda: t.FtrlOptimizer(0.3, 0.0), ftrl(0.3, power=0.0)),
    "proximal gradient descent": (
        lambda: t.ProximalGradientDescentOptimizer(0.1, 0.3, 0.2),
        proximal(0.1, 0.3, 0.2),
    ),
    "proximal adagrad": (
        lambda: t.ProximalAdagradOptimizer(0.1, l1_regularization_strength=0.3, l2_regularization_strength=0.2),
        proximal(0.1, 0.3, 0.2, 0.1),
    ),
}


def _trained(make: Callable[[], t.Optimizer], dtype: str = "float32") -> Trained:
    def model(gradient: Any) -> Any:
        w = keras.Variable(START, dtype=dtype, name="w")
        loss = jnp.sum(w.value * gradient.astype(dtype))
        return spec(make().minimize(loss, global_step=t.get_global_step()), loss)

    return train(model, list(GRADIENTS))


def _expected(recurrence: Recurrence) -> tuple[Any, dict[str, Any]]:
    w, state = START.astype(np.float64), {}
    for gradient in GRADIENTS.astype(np.float64):
        w = recurrence(w, state, gradient)
    return w, state


@pytest.mark.parametrize("name", CASES)
def test_follows_its_recurrence(name: str) -> None:
    make, recurrence = CASES[name]
    done = _trained(make)
    w, state = _expected(recurrence)
    np.testing.assert_allclose(done["w"], w, rtol=1e-4, atol=1e-6)
    slots = {key.removeprefix("w/"): value for key, value in done.values.items() if key.startswith("w/")}
    assert set(slots) == set(state) - {"count"}
    for key, value in slots.items():
        np.testing.assert_allclose(value, state[key], rtol=1e-4, atol=1e-5, err_msg=key)
    assert done["global_step"] == 20


def test_adam_keeps_the_powers_of_its_betas() -> None:
    done = _trained(lambda: t.AdamOptimizer(beta1=0.8, beta2=0.95))
    np.testing.assert_allclose(done["beta1_power"], 0.8**21, rtol=1e-5)
    np.testing.assert_allclose(done["beta2_power"], 0.95**21, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["adam with all", "adagrad", "nesterov", "rmsprop with all"])
def test_half_precision_stays_and_is_near(name: str, dtype: str) -> None:
    make, recurrence = CASES[name]
    done = _trained(make, dtype)
    assert {str(v.dtype) for k, v in done.values.items() if k.startswith("w")} == {dtype}
    w, _ = _expected(recurrence)
    np.testing.assert_allclose(done["w"].astype(np.float64), w, atol=0.01 if dtype == "float16" else 0.1)


def test_slots_are_called_as_the_optimizer() -> None:
    done = _trained(lambda: t.AdamOptimizer(name="Mine"))
    assert {"w/Mine", "w/Mine_1"} < set(done.values)
    done = _trained(lambda: t.FtrlOptimizer(0.1, accum_name="Sums", linear_name="Lines"))
    assert {"w/Sums", "w/Lines"} < set(done.values)


@pytest.mark.parametrize(
    "make",
    [
        lambda: t.AdagradOptimizer(0.1, 0.0),
        lambda: t.ProximalAdagradOptimizer(0.1, -1.0),
        lambda: t.ProximalGradientDescentOptimizer(0.1, -1.0),
        lambda: t.FtrlOptimizer(0.1, 0.5),
        lambda: t.FtrlOptimizer(0.1, initial_accumulator_value=-0.1),
        lambda: t.FtrlOptimizer(0.1, l1_regularization_strength=-0.1),
        lambda: t.FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=-0.1),
        lambda: t.GradientDescentOptimizer(0.1, name=""),
    ],
)
def test_arguments_out_of_range_are_refused(make: Callable[[], t.Optimizer]) -> None:
    with pytest.raises(ArgumentError, match="Received"):
        make()


@pytest.mark.parametrize("rate", ["0.1", None, True, np.ones(2)])
def test_a_learning_rate_is_a_number(rate: Any) -> None:
    with pytest.raises(ArgumentError, match="learning_rate must be a number"):
        _trained(lambda: t.GradientDescentOptimizer(rate))
