"""An optimizer's state that the replicas divide among them: the same training, a part of the bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest

import lockstep as ls
from benchmarks.traffic.hlo import counted
from benchmarks.traffic.programs import compiled_text
from lockstep._engine.keras.state import ShardedValue
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.training.callbacks._backup_and_restore import BackupAndRestore
from tests.distribute.test_gradient_dtype import fit, mirrored
from tests.engine.keras.sharded_cases import WIDTH, bytes_on_each, model_of


def _sharded(count: int = 4) -> Any:
    return mirrored(None, count, shard_optimizer_state=True)


def _assert_same(one: Any, other: Any) -> None:
    values = zip(
        [*one.variables, *one.optimizer.variables], [*other.variables, *other.optimizer.variables], strict=True
    )
    for a, b in values:
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=2e-6, err_msg=a.path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adam", "accumulating, scaled"])
def test_training_is_the_same(name: str) -> None:
    plain, sharded = (model_of(s, name) for s in (mirrored(None), _sharded()))
    assert fit(sharded).history["loss"] == pytest.approx(fit(plain).history["loss"], abs=1e-5)
    _assert_same(sharded, plain)
    whole, parts = bytes_on_each(plain), bytes_on_each(sharded)
    assert len(set(parts)) == 1 and parts[0] < 0.4 * whole[0]


@pytest.mark.slow
def test_each_replica_updates_its_part() -> None:
    model = model_of(_sharded())
    fit(model, 1)
    x, y = np.ones((12, 6), "float32"), np.ones(12, "int32")
    text = compiled_text(model, (x, y))
    # Weights are collected after the update; without dividing, nothing is.
    assert counted(text)["all-gather"] > 0
    plain = model_of(mirrored(None))
    fit(plain, 1)
    assert counted(compiled_text(plain, (x, y)))["all-gather"] == 0


class _Reads(keras.callbacks.Callback):
    """Reads the optimizer's variables, and changes one, in the middle of an epoch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 1:
            self.read = [np.asarray(v) for v in self.model.optimizer.variables]
            self.model.optimizer.learning_rate = 0.005


@pytest.mark.slow
def test_callbacks_read_and_change_the_whole() -> None:
    found = []
    for strategy in (mirrored(None), _sharded()):
        reads, model = _Reads(), model_of(strategy)
        fit(model, 1, [reads])
        found.append((reads.read, model))
    for a, b in zip(found[0][0], found[1][0], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6)
    _assert_same(found[1][1], found[0][1])


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_saved_and_restored_on_other_replicas(tmp_path: Path, count: int) -> None:
    whole, first = model_of(mirrored(None)), model_of(_sharded())
    fit(whole, 2)
    backup = BackupAndRestore(tmp_path / "backup", save_freq=3, delete_checkpoint=False)
    fit(first, 1, [backup])
    resumed = model_of(_sharded(count))
    fit(resumed, 2, [BackupAndRestore(tmp_path / "backup", save_freq=3)])
    _assert_same(resumed, whole)
    first.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    _assert_same(loaded, first)


@pytest.mark.slow
def test_mixed_precision_and_several_steps_a_dispatch() -> None:
    x, y = np.random.default_rng(0).normal(size=(65, 6)).astype("float32"), np.arange(65, dtype="int32") % 3
    found = []
    for strategy in (mirrored(None), _sharded()):
        keras.config.set_dtype_policy("mixed_bfloat16")
        try:
            model = model_of(strategy)
        finally:
            keras.config.set_dtype_policy("float32")
        found.append((model, model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0).history["loss"]))
    assert found[1][1] == pytest.approx(found[0][1], abs=2e-3)
    assert max(bytes_on_each(found[1][0])) < 0.4 * max(bytes_on_each(found[0][0]))


@pytest.mark.slow
def test_memory_is_not_taken_for_what_nobody_reads() -> None:
    model = model_of(_sharded())
    fit(model, 1)
    momentum = model.optimizer.variables[2]
    held = vars(momentum)["_value"]
    assert isinstance(held, ShardedValue) and held._whole is None
    assert np.asarray(momentum).shape == tuple(momentum.shape) == (6, WIDTH)
    momentum.assign(np.ones((6, WIDTH), "float32"))
    np.testing.assert_array_equal(momentum.numpy(), np.ones((6, WIDTH)))


@pytest.mark.slow
def test_steps_one_by_one_are_the_same() -> None:
    plain, sharded = model_of(mirrored(None)), model_of(_sharded())
    x, y = np.random.default_rng(0).normal(size=(12, 6)).astype("float32"), np.arange(12, dtype="int32") % 3
    for _ in range(3):
        plain.train_on_batch(x, y), sharded.train_on_batch(x, y)
    _assert_same(sharded, plain)
    np.testing.assert_allclose(sharded.predict(x, verbose=0), plain.predict(x, verbose=0), atol=1e-5)


@pytest.mark.slow
def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ArgumentError, match="must be True or False"):
        mirrored(None, shard_optimizer_state=1)
    with pytest.raises(UnsupportedError, match="XLA divides the step"):
        mirrored(ls.distribute.CommunicationOptions(bytes_per_pack=9), shard_optimizer_state=True)
    strategy = _sharded(2)
    with strategy.scope():
        variable = keras.Variable(1.0)
    with pytest.raises(UnsupportedError, match=r"Keras variables in strategy\.run.*optimizer_state=\.\.\."):
        strategy.run(lambda: variable.value + 1)
    assert jax.tree.leaves(strategy.run(lambda x: x + 1, args=(np.float32(1),)))
    model = model_of(strategy)
    model.run_eagerly = True
    with pytest.raises(UnsupportedError, match="Received: a model with run_eagerly=True"):
        fit(model, 1)
