"""SidecarEvaluator, and DatasetCreator."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError, CheckpointError

X, Y = np.arange(24.0, dtype=np.float32).reshape(12, 2), np.arange(12.0, dtype=np.float32)

DATA = tf.data.Dataset.from_tensor_slices((X, Y)).batch(6)


def _model(weight: float = 0.5) -> Any:
    model = tf.keras.Sequential(
        [tf.keras.Input((2,)), tf.keras.layers.Dense(1, kernel_initializer=tf.keras.initializers.Constant(weight))]
    )
    model.compile(tf.keras.optimizers.SGD(1e-3), "mse")
    return model


class _Evaluations(tf.keras.callbacks.Callback):
    def __init__(self, ended: threading.Semaphore) -> None:
        super().__init__()
        self.ended, self.seen = ended, []

    def on_test_end(self, logs: Any = None) -> None:
        self.seen.append((int(self.model.optimizer.iterations), float(self.model.layers[-1].kernel[0, 0])))
        self.ended.release()


@pytest.mark.slow
def test_each_newer_checkpoint_is_evaluated_until_the_last(tmp_path: Path) -> None:
    trained = _model()
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(model=trained, optimizer=trained.optimizer), tmp_path, max_to_keep=2
    )
    ended = threading.Semaphore(0)
    callback = _Evaluations(ended)
    evaluator = tf.keras.utils.SidecarEvaluator(
        _model(weight=9.0), DATA, tmp_path, max_evaluations=3, callbacks=[callback], timeout=60
    )
    expected = []

    def train() -> None:
        for _ in range(3):
            trained.fit(X, Y, batch_size=12, verbose=0, shuffle=False)
            expected.append((int(trained.optimizer.iterations), float(trained.layers[-1].kernel[0, 0])))
            manager.save()
            assert ended.acquire(timeout=60)

    trainer = threading.Thread(target=train)
    trainer.start()
    evaluator.start()
    trainer.join()
    assert callback.seen == expected
    assert [iterations for iterations, _ in expected] == [1, 2, 3]


def test_weights_of_a_callback_are_evaluated(tmp_path: Path) -> None:
    trained = _model()
    save = tf.keras.callbacks.ModelCheckpoint(tmp_path / "ckpt-{epoch}", save_weights_only=True)
    trained.fit(X, Y, batch_size=12, verbose=0, callbacks=[save])
    callback = _Evaluations(threading.Semaphore(0))
    tf.keras.utils.SidecarEvaluator(
        _model(weight=9.0), DATA, tmp_path, max_evaluations=1, callbacks=[callback], timeout=60
    ).start()
    assert callback.seen == [(1, float(trained.layers[-1].kernel[0, 0]))]


def test_it_ends_when_no_checkpoint_comes_in_time(tmp_path: Path) -> None:
    callback = _Evaluations(threading.Semaphore(0))
    tf.keras.utils.experimental.SidecarEvaluator(_model(), DATA, tmp_path, callbacks=[callback], timeout=0.1).start()
    assert callback.seen == []


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    other = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(3)])
    tf.train.CheckpointManager(tf.train.Checkpoint(model=other), tmp_path, max_to_keep=1).save()
    with pytest.raises(CheckpointError, match="model"):
        tf.keras.utils.SidecarEvaluator(_model(), DATA, tmp_path, timeout=5).start()


@pytest.mark.parametrize("wrong", [{"max_evaluations": 0}, {"timeout": 0}])
def test_limits_are_positive(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        tf.keras.utils.SidecarEvaluator(_model(), DATA, tmp_path, **wrong)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [tf.distribute.MirroredStrategy, tf.distribute.ParameterServerStrategy])
def test_data_of_a_dataset_creator_are_those_of_its_dataset(strategy: Any) -> None:
    def dataset_fn(context: Any) -> Any:
        batch = context.get_per_replica_batch_size(6)
        return tf.data.Dataset.from_tensor_slices((X, Y)).shard(context.num_input_pipelines, 0).batch(batch)

    histories = []
    for data in (tf.keras.utils.experimental.DatasetCreator(dataset_fn), dataset_fn(tf.distribute.InputContext())):
        with strategy().scope():
            model = _model()
        histories.append((model.fit(data, epochs=2, verbose=0).history, model.evaluate(data, verbose=0)))
    assert histories[0] == histories[1]


def test_a_dataset_creator_takes_a_function() -> None:
    with pytest.raises(ArgumentError, match="must be a `callable`"):
        tf.keras.utils.experimental.DatasetCreator([1, 2])
    with pytest.raises(ArgumentError, match="InputOptions"):
        tf.keras.utils.experimental.DatasetCreator(lambda context: [], input_options=3)
