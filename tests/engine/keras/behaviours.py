"""What programs do on two workers, run there by `test_two_workers.py`."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import keras
import numpy as np
from keras import layers

import lockstep as ls

ROWS = 50


def _data(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, 6)).astype("float32"), rng.integers(0, 3, rows, dtype="int32")


def _model(strategy: Any, **compile: Any) -> keras.Model:
    keras.utils.set_random_seed(5)
    keras.backend.clear_session()
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(**{"optimizer": keras.optimizers.SGD(0.1), "loss": loss, "metrics": ["accuracy"], **compile})
    return model


def _weights(model: Any) -> dict[str, np.ndarray]:
    return {f"weight {i}": w for i, w in enumerate(model.get_weights())}


def _index(strategy: Any) -> int:
    return strategy.cluster_resolver.task_id if strategy.cluster_resolver else 0


def _failure(call: Any) -> dict[str, np.ndarray]:
    """Runs `call`, which must raise, and returns the error's type and text."""
    try:
        call()
    except Exception as error:
        return {"type": np.asarray(type(error).__name__), "text": np.asarray(str(error))}
    raise AssertionError("nothing was raised")


def _batches(x: np.ndarray, y: np.ndarray, size: int = 8) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(0, len(x), size):
        yield x[start : start + size], y[start : start + size]


def _repeated(x: np.ndarray, y: np.ndarray, times: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for _ in range(times):
        yield from _batches(x, y)


def _torch_loader(x: np.ndarray, y: np.ndarray) -> Any:
    import torch

    data = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y))
    return torch.utils.data.DataLoader(data, batch_size=8)


def _tf_dataset(x: np.ndarray, y: np.ndarray) -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((x, y)).batch(8).prefetch(1)


class _Batches(keras.utils.PyDataset):
    def __init__(self, x: np.ndarray, y: np.ndarray, **options: Any) -> None:
        super().__init__(**options)
        self._items = list(_batches(x, y))

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Any:
        return self._items[index]


def inputs(strategy: Any, kind: str) -> dict[str, np.ndarray]:
    """The same data in another form."""
    x, y = _data()
    forms: dict[str, Any] = {
        "arrays": lambda: {"x": x, "y": y, "batch_size": 8, "shuffle": False},
        "jax": lambda: {"x": keras.ops.convert_to_tensor(x), "y": y, "batch_size": 8, "shuffle": False},
        "generator": lambda: {"x": _repeated(x, y, 2), "steps_per_epoch": 7, "shuffle": False},
        "PyDataset": lambda: {"x": _Batches(x, y), "shuffle": False},
        "PyDataset with workers": lambda: {"x": _Batches(x, y, workers=2), "shuffle": False},
        "torch": lambda: {"x": _torch_loader(x, y), "shuffle": False},
        "tf.data": lambda: {"x": _tf_dataset(x, y), "shuffle": False},
        "grain": lambda: {"x": grain.MapDataset.source(list(zip(x, y, strict=True))).batch(8), "shuffle": False},
    }
    model = _model(strategy)
    history = model.fit(epochs=2, verbose=0, **forms[kind]())
    return _weights(model) | {"loss": np.asarray(history.history["loss"])}


def shuffled(strategy: Any) -> dict[str, np.ndarray]:
    """Without a seed: the workers still agree on initial weights and on the order of the data."""
    import random

    # As if the program had drawn random numbers on one worker only.
    for _ in range(_index(strategy)):
        random.random(), np.random.random()
    x, y = _data()
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), layers.Dense(8), layers.Dropout(0.3), layers.Dense(3)])
        model.compile("adam", "mse")
    order: list[Any] = []

    class Order(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if _index(self.params.get("strategy", strategy)) == 0:
                np.random.random()
            order.append(logs["loss"])

    model.fit(x, np.eye(3)[y], batch_size=8, epochs=3, verbose=0, callbacks=[Order()])
    return _weights(model) | {"losses": np.asarray(order)}


def small(strategy: Any) -> dict[str, np.ndarray]:
    """Fewer examples than replicas."""
    x, y = _data(1)
    model = _model(strategy)
    history = model.fit(x, y, epochs=2, verbose=0)
    scores = model.evaluate(x, y, verbose=0)
    return _weights(model) | {"loss": np.asarray(history.history["loss"]), "scores": np.asarray(scores)}


def ends_early(strategy: Any) -> dict[str, np.ndarray]:
    """The generator of worker 1 has three batches, that of worker 0 five."""
    x, y = _data(40)
    mine = x[: 40 - 16 * _index(strategy)]
    model = _model(strategy)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(_batches(mine, y[: len(mine)]), verbose=0)
    told = " ".join(str(w.message) for w in caught)
    return _weights(model) | {"steps": np.asarray(model.optimizer.iterations), "told": np.asarray(told)}


def raises(strategy: Any) -> dict[str, np.ndarray]:
    """The generator of worker 1 raises at the fourth batch; afterwards training goes on."""
    x, y = _data()

    def broken() -> Iterator[Any]:
        for i, batch in enumerate(_batches(x, y)):
            if i == 3 and _index(strategy) == 1:
                raise OSError("disk gone")
            yield batch

    model = _model(strategy)
    found = _failure(lambda: model.fit(broken(), verbose=0))
    found["steps"] = np.asarray(model.optimizer.iterations)
    model.fit(x, y, batch_size=8, verbose=0, shuffle=False)
    return found | _weights(model)


def recovers(strategy: Any) -> dict[str, np.ndarray]:
    """A callback raises on every worker; the program handles that and trains again."""

    class Prune(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            raise LookupError("pruned")

    class LooksAround(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if strategy.cluster_resolver is not None:
                strategy._replicas.runtime._control.check_peers()  # What the watchdog does once a second.

    x, y = _data()
    found = _failure(lambda: _model(strategy).fit(x, y, verbose=0, callbacks=[Prune()]))
    model = _model(strategy)
    model.fit(x, y, batch_size=8, shuffle=False, epochs=2, verbose=0, callbacks=[LooksAround()])
    return {"told": found["text"]} | _weights(model)


def differs(strategy: Any, what: str) -> dict[str, np.ndarray]:
    """Worker 1 does something else."""
    other = _index(strategy) == 1
    x, y = _data()
    if what == "variables":
        keras.backend.clear_session()
        with strategy.scope():
            model = keras.Sequential([keras.Input((6,)), layers.Dense(9 if other else 8), layers.Dense(3)])
            model.compile("sgd", "mse")
        return _failure(lambda: model.fit(x, np.eye(3)[y], verbose=0))
    model = _model(strategy)
    if what == "epochs":
        return _failure(lambda: model.fit(x, y, epochs=3 if other else 2, verbose=0))
    if what == "rows":
        rows = 40 if other else 50
        return _failure(lambda: model.fit(x[:rows], y[:rows], batch_size=8, verbose=0))
    if what == "shapes":
        batches = ((a[:4], b[:4]) if other and i == 2 else (a, b) for i, (a, b) in enumerate(_batches(x, y)))
        return _failure(lambda: model.fit(batches, verbose=0))
    if what == "learning rate":

        class Schedule(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                if other and epoch == 1:
                    self.model.optimizer.learning_rate = 0.5

        return _failure(lambda: model.fit(x, y, epochs=3, verbose=0, callbacks=[Schedule()]))
    assert what == "calls"
    return _failure(lambda: model.evaluate(x, y, verbose=0) if other else model.fit(x, y, verbose=0))


def initial_weights(strategy: Any) -> dict[str, np.ndarray]:
    """Worker 1 starts from other weights: the chief's count."""
    model = _model(strategy)
    if _index(strategy) == 1:
        model.set_weights([w + 1 for w in model.get_weights()])
    x, y = _data()
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    return _weights(model)


def stops(strategy: Any, where: str) -> dict[str, np.ndarray]:
    """Every worker's callback stops after the third batch of the second epoch, or one worker's after some batch."""

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if where == "batch" and self.model.optimizer.iterations == 10:
                self.model.stop_training = True
            if where == "batch of the last" and batch == 20 and _index(strategy) == 1:
                self.model.stop_training = True

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if where == "epoch of the chief" and epoch == 1 and _index(strategy) == 0:
                self.model.stop_training = True

    x, y = _data()
    model = _model(strategy)
    if where == "batch of the last":  # An epoch that nobody waits for the end of.
        x, y = np.tile(x, (2_000, 1)), np.tile(y, (2_000, *(1,) * (y.ndim - 1)))
    model.fit(x, y, batch_size=8, epochs=5, shuffle=False, verbose=0, callbacks=[Stop()])
    steps = {"steps": np.asarray(model.optimizer.iterations), "stopped": np.array(model.stop_training)}
    return _weights(model) | steps


def writes(strategy: Any, directory: str) -> dict[str, np.ndarray]:
    """Callbacks that write, and the progress bar."""
    x, y = _data()
    model = _model(strategy)
    own = Path(directory) / f"of worker {_index(strategy)}"
    own.mkdir(parents=True)
    callbacks = [
        keras.callbacks.ModelCheckpoint(str(own / "epoch-{epoch}.keras")),
        keras.callbacks.CSVLogger(str(own / "log.csv")),
        keras.callbacks.EarlyStopping("loss", patience=0, min_delta=10.0, verbose=1),
    ]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        history = model.fit(x, y, batch_size=8, epochs=4, callbacks=callbacks)
        model.evaluate(x, y)
        model.predict(x)
    return {
        "files": np.asarray(sorted(os.listdir(own))),
        "printed": np.asarray(printed.getvalue()),
        "loss": np.asarray(history.history["loss"]),
    }


def resumes(strategy: Any, directory: str) -> dict[str, np.ndarray]:
    """BackupAndRestore with a directory that only the chief can see."""
    own = Path(directory) / f"of worker {_index(strategy)}"

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 2:
                raise RuntimeError("interrupted")

    x, y = _data()
    backup = [keras.callbacks.BackupAndRestore(str(own), delete_checkpoint=False)]
    if not own.exists() or _index(strategy):
        first = _model(strategy)
        first.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=backup)
    second = _model(strategy)
    history = second.fit(x, y, batch_size=8, epochs=4, shuffle=False, verbose=0, callbacks=backup)
    return _weights(second) | {"epochs": np.asarray(history.epoch)}


def saves(strategy: Any, directory: str) -> dict[str, np.ndarray]:
    """A model that was saved goes on where it was, with its optimizer."""
    x, y = _data()
    path = str(Path(directory) / f"{_index(strategy)}.keras")
    model = _model(strategy, optimizer=keras.optimizers.Adam(1e-2))
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    model.save(path)
    called = np.asarray(model(x[:3]))
    with strategy.scope():
        model = keras.models.load_model(path)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    return _weights(model) | {"called": called, "predicted": model.predict(x, verbose=0)}


def eager(strategy: Any) -> dict[str, np.ndarray]:
    """`run_eagerly` follows the same trajectory."""
    x, y = _data()
    model = _model(strategy, run_eagerly=True)
    model.fit(x[:20], y[:20], batch_size=8, shuffle=False, verbose=0)
    scores = model.evaluate(x[:20], y[:20], verbose=0)
    return _weights(model) | {"scores": np.asarray(scores)}


def half_precision(strategy: Any, policy: str) -> dict[str, np.ndarray]:
    """Mixed precision, in float16 with loss scaling."""
    keras.config.set_dtype_policy(policy)
    try:
        x, y = _data()
        model = _model(strategy, optimizer=keras.optimizers.SGD(0.05))
        history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    finally:
        keras.config.set_dtype_policy("float32")
    return {"loss": np.asarray(history.history["loss"]), "optimizer": np.asarray(type(model.optimizer).__name__)}


def replicas(strategy: Any) -> dict[str, np.ndarray]:
    """What the strategy says of itself."""
    assert ls.distribute.get_strategy() is not strategy
    with strategy.scope():
        assert ls.distribute.get_strategy() is strategy
    return {"replicas": np.asarray(strategy.num_replicas_in_sync)}
