"""Several steps in one dispatch: nothing that a program can see changes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep._engine.loop import loop
from lockstep.data import Dataset
from lockstep.training.callbacks import TensorBoard

ROWS = 150
BATCH = 8


@pytest.fixture(autouse=True)
def steps_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else the machine does: the clock that says how many steps go together stands still."""
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: 0.0))


def data() -> tuple[Any, Any]:
    generator = np.random.default_rng(3)
    return generator.normal(size=(ROWS, 5)).astype("float32"), generator.integers(0, 3, ROWS)


def model(**compiled: Any) -> Any:
    keras.utils.set_random_seed(1)
    with ls.distribute.MirroredStrategy().scope():
        made = keras.Sequential(
            [keras.Input((5,)), keras.layers.Dense(16, "tanh"), keras.layers.Dropout(0.2), keras.layers.Dense(3)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        made.compile("adam", loss, metrics=["accuracy"], **compiled)
    return made


class Watch(keras.callbacks.Callback):
    """Notes the batches of which it is told."""

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.iterations: list[int] = []
        self._stop_at = stop_at

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.begun.append(batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ended.append(batch)
        self.iterations.append(int(self.model.optimizer.iterations))
        if batch == self._stop_at:
            self.model.stop_training = True


def trained(callbacks: Any = (), epochs: int = 2, **compiled: Any) -> Any:
    x, y = data()
    made = model(**compiled)
    history = made.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=list(callbacks))
    return made, history.history


@pytest.mark.slow
def test_several_steps_do_run_in_one_dispatch() -> None:
    made, _ = trained(epochs=6)
    assert made.train_function.tuner.max_steps > 2


@pytest.mark.slow
def test_a_callback_that_looks_at_batches_changes_no_bit() -> None:
    watch = Watch()
    (watched, seen), (alone, unseen) = trained([watch]), trained()
    assert seen == unseen
    for a, b in zip(watched.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert watch.begun == watch.ended == list(range(19)) * 2
    assert watch.iterations == list(range(1, 39))


def test_steps_per_execution_says_when_callbacks_are_told() -> None:
    watch = Watch()
    made, _ = trained([watch], epochs=1, steps_per_execution=4)
    assert watch.begun == [0, 4, 8, 12, 16]
    assert watch.ended == [3, 7, 11, 15, 19]
    assert watch.iterations == [4, 8, 12, 16, 19]
    assert int(made.optimizer.iterations) == 19


@pytest.mark.slow
def test_steps_per_execution_may_be_auto() -> None:
    (first, one), (second, other) = trained(), trained(steps_per_execution="auto")
    assert one == other
    np.testing.assert_array_equal(first.get_weights()[0], second.get_weights()[0])


def test_a_stop_is_exact() -> None:
    made, _ = trained([Watch(stop_at=6)])
    assert int(made.optimizer.iterations) == 7


def test_checkpoints_of_some_batches_are_exact(tmp_path: Path) -> None:
    path = str(tmp_path / "{batch}.weights.h5")
    trained([keras.callbacks.ModelCheckpoint(path, save_freq=5, save_weights_only=True)], epochs=1)
    assert sorted(int(p.name.split(".")[0]) for p in tmp_path.iterdir()) == [5, 10, 15]


@pytest.mark.slow
@pytest.mark.parametrize("frequency", ["epoch", 4])
def test_who_looks_at_epochs_does_not_slow_steps_down(tmp_path: Path, frequency: Any) -> None:
    board = TensorBoard(str(tmp_path / "logs"), update_freq=frequency)
    saver = keras.callbacks.ModelCheckpoint(str(tmp_path / "m.keras"))
    made, _ = trained([board, saver, keras.callbacks.TerminateOnNaN()][: 2 if frequency == "epoch" else 3], epochs=6)
    assert (made.train_function.tuner.max_steps > 2) == (frequency == "epoch")


@pytest.mark.slow
def test_evaluate_and_predict_see_every_batch() -> None:
    x, y = data()
    made = model()
    logits = made.predict(x, batch_size=BATCH, verbose=0)
    assert logits.shape == (ROWS, 3)
    np.testing.assert_allclose(logits, np.asarray(made(x)), atol=1e-6)
    seen: list[int] = []

    class Batches(keras.callbacks.Callback):
        def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
            assert logs is not None
            seen.append(len(logs["outputs"]))

    again = made.predict(x, batch_size=BATCH, verbose=0, callbacks=[Batches()])
    np.testing.assert_array_equal(again, logits)
    assert seen == [8] * 18 + [6]
    loss, accuracy = made.evaluate(x, y, batch_size=BATCH, verbose=0)
    expected = keras.losses.sparse_categorical_crossentropy(y, logits, from_logits=True)
    assert loss == pytest.approx(float(np.mean(np.asarray(expected))), abs=1e-5)
    assert accuracy == pytest.approx(float(np.mean(logits.argmax(1) == y)), abs=1e-6)


@pytest.mark.slow
def test_data_on_the_devices_trains_as_data_from_the_host() -> None:
    x, y = data()

    def fitted(dataset: Any) -> list[Any]:
        made = model()
        made.fit(dataset, epochs=2, verbose=0)
        return made.get_weights()

    resident = Dataset.from_tensor_slices((x, y)).shuffle(50, seed=4).batch(BATCH)
    # Called for each element, so it stays on the host.
    hosted = Dataset.from_tensor_slices((x, y)).map(lambda a, b: (a, int(b))).shuffle(50, seed=4).batch(BATCH)
    for a, b in zip(fitted(resident), fitted(hosted), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.slow
def test_whoever_hears_of_batches_is_told() -> None:
    class Told(keras.callbacks.Callback):
        looks_at_batches = False
        last = -1

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.last = batch

    class Those(keras.callbacks.CallbackList):
        ended = 0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.ended += 1
            super().on_train_batch_end(batch, logs)

    told = Told()
    trained([told])
    assert told.last == -(-ROWS // BATCH) - 1
    x, y = data()
    made = model()
    those = Those([], add_history=True, model=made)
    made.fit(x, y, batch_size=BATCH, verbose=0, callbacks=those)
    assert those.ended


def test_nobody_is_told_what_nobody_hears(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(
        keras.callbacks.CallbackList, "on_train_batch_end", lambda _, batch, logs=None: told.append(batch)
    )
    epochs: list[Any] = []
    callbacks = [
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: epochs.append(logs)),
        keras.callbacks.EarlyStopping("loss"),
    ]
    _, history = trained(callbacks)
    assert [logs["loss"] for logs in epochs] == history["loss"]
    assert not told
