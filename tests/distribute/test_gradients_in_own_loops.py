"""The strategy's options for gradients in loops of a user's own: strategy.run and train.Program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep.errors import ArgumentError
from tests.distribute.test_gradient_dtype import mirrored

Options = ls.distribute.CommunicationOptions
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(48, 12)).astype("float32"), RNG.normal(size=(48, 10)).astype("float32")
START = {"w": RNG.normal(size=(12, 10)).astype("float32"), "b": np.zeros(10, "float32")}
OPTIONS = {
    "packs": Options(bytes_per_pack=100),
    "ring": Options(implementation="ring"),
    "bfloat16": Options(gradient_dtype="bfloat16"),
    "PowerSGD": Options(power_sgd_rank=2, power_sgd_start=0),
    "both": Options(power_sgd_rank=1, power_sgd_start=2, gradient_dtype="bfloat16"),
}
# How far the weights may be from those of one device after eight steps.
APART = {"packs": 1e-6, "ring": 1e-6, "bfloat16": 1e-3, "PowerSGD": 0.1, "both": 0.1}


def _gradients(params: Any, batch: Any) -> Any:
    x, y = batch
    return jax.grad(lambda p: jnp.mean((jnp.tanh(x @ p["w"] + p["b"]) - y) ** 2))(params)


def _step(params: Any, batch: Any) -> Any:
    context = ls.distribute.get_replica_context()
    assert context is not None
    grads = context.average_gradients(_gradients(params, batch))
    return jax.tree.map(lambda p, g: p - 0.5 * g, params, grads)


def _by_run(strategy: Any) -> Any:
    params: Any = START
    for i in range(8):
        batch = jax.tree.map(lambda a, i=i: _shares(strategy, a[i * 6 : i * 6 + 6]), (X, Y))
        params = strategy.run(_step, args=(params, batch))
    return params


def _shares(strategy: Any, array: np.ndarray) -> Any:
    each = len(array) // strategy.num_replicas_in_sync

    def share(context: Any) -> np.ndarray:
        return array[context.replica_id_in_sync_group * each :][:each]

    return strategy.experimental_distribute_values_from_function(share)


def _by_program(strategy: Any) -> Any:
    program = ls.training.Program(lambda params, batch: (_step(params, batch), {}), strategy, view="replica")
    params: Any = jax.tree.map(jnp.asarray, START)
    for i in range(8):
        params, _ = program(params, (X[i * 6 : i * 6 + 6], Y[i * 6 : i * 6 + 6]))
    return params


def _by_fit(strategy: Any) -> Any:
    program = ls.training.Program(lambda params, batch: (_step(params, batch), {}), strategy, view="replica")
    data = ls.data.Dataset.from_tensor_slices((X, Y)).batch(6)
    return program.fit(jax.tree.map(jnp.asarray, START), data, epochs=1, verbose=0)


def _alone() -> Any:
    params: Any = START
    for i in range(8):
        grads = _gradients(params, (X[i * 6 : i * 6 + 6], Y[i * 6 : i * 6 + 6]))
        params = jax.tree.map(lambda p, g: p - 0.5 * g, params, grads)
    return params


def _distance(one: Any, other: Any) -> float:
    return max(
        jax.tree.leaves(jax.tree.map(lambda a, b: float(np.abs(np.asarray(a) - np.asarray(b)).max()), one, other))
    )


LOOPS: dict[str, Callable[[Any], Any]] = {"run": _by_run, "program": _by_program, "fit": _by_fit}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_gradients_travel_as_the_strategy_says(name: str) -> None:
    found = {loop: LOOPS[loop](mirrored(OPTIONS[name], 2)) for loop in LOOPS}
    alone = _alone()
    for params in found.values():
        assert _distance(params, alone) <= APART[name]
    # What was not sent is kept in all of them: they follow the same course.
    assert _distance(found["run"], found["program"]) < 1e-5 and _distance(found["fit"], found["program"]) < 1e-5
    assert name in ("packs", "ring") or _distance(found["run"], alone) > 1e-6


@pytest.mark.slow
def test_keras_optimizers_in_run_send_less_too() -> None:
    """They add gradients up; what is kept makes up for what was not sent."""

    def trained(options: Any) -> np.ndarray:
        strategy = mirrored(options, 2)
        with strategy.scope():
            weights = keras.Variable(START["w"])
            optimizer = keras.optimizers.SGD(0.25)
            optimizer.build([weights])

        def step(x: Any, y: Any) -> None:
            grads = jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) - y) ** 2))(weights.value)
            optimizer.apply([grads], [weights])

        for i in range(8):
            strategy.run(step, args=tuple(_shares(strategy, a[i * 6 : i * 6 + 6]) for a in (X, Y)))
        return np.asarray(weights)

    plain = trained(None)
    assert 1e-6 < np.abs(trained(OPTIONS["bfloat16"]) - plain).max() < 1e-3
    assert 1e-3 < np.abs(trained(OPTIONS["PowerSGD"]) - plain).max() < 0.1


def test_functions_that_average_nothing_keep_nothing() -> None:
    strategy = mirrored(OPTIONS["both"], 2)
    found = strategy.run(lambda x: ls.distribute.get_replica_context().all_reduce("sum", x), args=(jnp.ones(3),))
    np.testing.assert_array_equal(found, [2, 2, 2])


@pytest.mark.parametrize("options", [{"gradient_dtype": "bfloat16"}, {"power_sgd_rank": 1}])
def test_other_sums_are_not_compressed(options: dict[str, Any]) -> None:
    def step(x: Any) -> Any:
        return ls.distribute.get_replica_context().all_reduce("sum", x, options=Options(**options))

    with pytest.raises(ArgumentError, match=r"concern gradients.*call average_gradients"):
        mirrored(None, 2).run(step, args=(jnp.ones(3),))
