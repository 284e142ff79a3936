"""The memory of a step is known before it runs."""

from __future__ import annotations

import jax
import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep.errors import ArgumentError, UnsupportedError

WEIGHTS = 64 * 1000 + 1000 + 1000 * 10 + 10
BATCH = jax.ShapeDtypeStruct((256, 64), "float32"), jax.ShapeDtypeStruct((256, 10), "float32")


def _model(strategy: ls.distribute.Strategy, **options: object) -> keras.Model:
    with strategy.scope():
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(1000, "relu"), keras.layers.Dense(10)])
        model.compile(keras.optimizers.Adam(), "mse", **options)
    return model


@pytest.mark.slow
def test_what_a_step_takes_is_said_and_nothing_is_trained() -> None:
    model = _model(ls.distribute.OneDeviceStrategy("/cpu:0"))
    before = model.get_weights()
    found = ls.training.estimate_memory(model, *BATCH)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    assert int(model.optimizer.iterations) == 0
    # Besides the weights: the mean of the loss, of two numbers; besides two moments of each: rate and steps.
    assert 0 <= found.weights - 4 * WEIGHTS <= 64
    assert 0 <= found.optimizer - 8 * WEIGHTS <= 64
    assert found.batch == 4 * 256 * 74
    # At least the activations, which the gradient needs.
    assert found.temporary >= 4 * 256 * 1000
    assert found.total >= found.weights + found.optimizer + found.batch + found.temporary
    assert str(found).startswith(f"{found.total / 2**20:.1f} MiB on each device: weights")


@pytest.mark.slow
def test_it_is_what_xla_says_of_the_program_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model(ls.distribute.MirroredStrategy())
    asked: list[int] = []
    compiled = jax.stages.Compiled.memory_analysis

    def memory_analysis(self: jax.stages.Compiled) -> object:
        analysis = compiled(self)
        asked.append(analysis.argument_size_in_bytes + analysis.temp_size_in_bytes)
        return analysis

    monkeypatch.setattr(jax.stages.Compiled, "memory_analysis", memory_analysis)
    found = ls.training.estimate_memory(model, *BATCH)
    assert len(asked) == 1
    # XLA leaves out arguments that the step does not read, as metrics that are set.
    assert abs(asked[0] - (found.total - found.outputs)) <= 256


@pytest.mark.slow
def test_devices_divide_a_batch_and_an_optimizer_that_is_sharded() -> None:
    count = ls.distribute.MirroredStrategy().num_replicas_in_sync
    assert count > 1
    alone = ls.training.estimate_memory(_model(ls.distribute.OneDeviceStrategy("/cpu:0")), *BATCH)
    whole = ls.training.estimate_memory(_model(ls.distribute.MirroredStrategy()), *BATCH)
    sharded = ls.training.estimate_memory(_model(ls.distribute.MirroredStrategy(shard_optimizer_state=True)), *BATCH)
    assert whole.batch == alone.batch // count
    assert whole.temporary < alone.temporary
    assert whole.weights == sharded.weights == alone.weights
    assert sharded.optimizer < 0.75 * whole.optimizer


@pytest.mark.slow
def test_what_cannot_be_known_is_refused() -> None:
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])
    model.compile("sgd", "mse")
    with pytest.raises(ArgumentError, match="made under no scope"):
        ls.training.estimate_memory(model, *BATCH)
    with pytest.raises(UnsupportedError, match="run_eagerly"):
        ls.training.estimate_memory(_model(ls.distribute.MirroredStrategy(), run_eagerly=True), *BATCH)
