"""What the processes of a cluster do in tests of faults."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import keras
import numpy as np

from lockstep import estimator
from lockstep.checkpoint import latest_checkpoint
from lockstep.training.callbacks._non_finite import NonFinite
from tests.estimator import small

ROWS, BATCH = 48, 4


def _failure(call: Any, *arguments: Any, **named: Any) -> dict[str, np.ndarray]:
    """The type and the text of the error that a call raises."""
    try:
        call(*arguments, **named)
    except Exception as error:
        return {"type": np.array(type(error).__name__), "text": np.array(str(error))}
    return {"type": np.array("none"), "text": np.array("")}


def _is_odd() -> bool:
    return jax.process_index() == jax.process_count() - 1


def _data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(4)
    return random.normal(size=(ROWS, 3)).astype("float32"), random.normal(size=(ROWS, 2)).astype("float32")


def _model(strategy: Any, units: int = 5, optimizer: Any = "adam", dtype: str = "float32") -> keras.Model:
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [keras.Input((3,)), keras.layers.Dense(units, dtype=dtype), keras.layers.Dense(2)]
        model = keras.Sequential(layers)
        model.compile(optimizer, "mse")
    return model


def other_model(strategy: Any, what: str) -> dict[str, np.ndarray]:
    """One task has made another model."""
    odd: dict[str, dict[str, Any]] = {
        "layer": {"units": 6},
        "optimizer": {"optimizer": keras.optimizers.SGD(momentum=0.9)},
        "dtype": {"dtype": "bfloat16"},
    }
    model = _model(strategy, **(odd[what] if _is_odd() else {}))
    return _failure(model.fit, *_data(), BATCH, verbose=0)


class _Counts(keras.callbacks.Callback):
    steps = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps += 1


def _batches(poisoned: int | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Global batches; in one, a value of the last replica's share is not a number, on the last task alone."""
    x, y = _data()
    for i in range(ROWS // BATCH):
        part = x[i * BATCH : (i + 1) * BATCH].copy()
        if i == poisoned and _is_odd():
            part[-1, 0] = np.nan
        yield part, y[i * BATCH : (i + 1) * BATCH]


def not_a_number(strategy: Any, policy: str, directory: str, poisoned: int = 6) -> dict[str, np.ndarray]:
    """The loss of a step is not finite; weights are saved after each."""
    model, counts, callback = _model(strategy), _Counts(), NonFinite(policy)  # type: ignore[arg-type]
    path = os.path.join(directory, policy + "-{batch}.weights.h5")
    saver = keras.callbacks.ModelCheckpoint(path, save_freq=1, save_weights_only=True)
    with mock.patch.dict(os.environ, {"LOCKSTEP_COMPARE_DATA": "0"}):  # Else what differs is the first to be named.
        found = _failure(model.fit, _batches(poisoned), verbose=0, callbacks=[saver, counts, callback])
    weights = np.concatenate([w.ravel() for w in model.get_weights()])
    return {**found, "steps": np.array(counts.steps), "weights": weights, "undone": np.array(callback.undone)}


def without(strategy: Any, batches: list[int]) -> dict[str, np.ndarray]:
    """Weights of a training in which some batches were not in the data."""
    model = _model(strategy)
    kept = (b for i, b in enumerate(_batches(None)) if i not in batches)
    model.fit(kept, verbose=0)
    return {"weights": np.concatenate([w.ravel() for w in model.get_weights()])}


def estimator_not_a_number(strategy: Any, directory: str) -> dict[str, np.ndarray]:
    """The loss of an Estimator is NaN from some step on."""
    steps: list[int] = []

    class Notes(estimator.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            steps.append(int(run_context.session.run("global_step")))

    def input_fn() -> Any:
        from lockstep.data import Dataset

        x, y = small.data(400)
        x["x"][100] = np.nan
        return Dataset.from_tensor_slices((x, y)).batch(4)

    config = estimator.RunConfig(train_distribute=strategy, save_checkpoints_steps=12)
    line = small.line(directory, config)
    found = _failure(line.train, input_fn, hooks=[Notes()])
    saved = latest_checkpoint(directory) or ""
    return {**found, "steps": np.array(steps[-1]), "saved": np.array(saved.rpartition("-")[2])}


def few(strategy: Any, rows: int) -> dict[str, np.ndarray]:
    """Fewer examples than replicas."""
    model = _model(strategy)
    x, y = _data()
    found = _failure(model.fit, x[:rows], y[:rows], BATCH, epochs=3, verbose=0)
    return {**found, "weights": np.concatenate([w.ravel() for w in model.get_weights()])}


def raises(strategy: Any, at: int) -> dict[str, np.ndarray]:
    """The data of one task break at a step."""

    def broken() -> Iterator[Any]:
        for i, batch in enumerate(_batches(None)):
            if i == at and _is_odd():
                raise OSError("a disk has gone")
            yield batch

    model, counts = _model(strategy), _Counts()
    found = _failure(model.fit, broken(), verbose=0, callbacks=[counts])
    return {**found, "steps": np.array(counts.steps)}


def ends(strategy: Any, lengths: list[int]) -> dict[str, np.ndarray]:
    """The data of tasks end after different numbers of batches; a negative number stands for none."""
    mine = lengths[jax.process_index()]
    x, y = _data()

    def batches() -> Iterator[Any]:
        count = 0
        while mine < 0 or count < mine:
            at = count % (ROWS // BATCH) * BATCH
            yield x[at : at + BATCH], y[at : at + BATCH]
            count += 1

    model, counts = _model(strategy), _Counts()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = _failure(model.fit, batches(), verbose=0, callbacks=[counts])
    return {**found, "steps": np.array(counts.steps)}
