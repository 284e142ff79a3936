"""Keras calls whose data one worker has otherwise, run there by `test_same_data.py`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import layers

from lockstep._engine.input.samples import VARIABLE
from lockstep.data import Dataset
from lockstep.training import Program

SIZE = 20


def _model(strategy: Any) -> keras.Model:
    keras.utils.set_random_seed(5)
    keras.backend.clear_session()
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), layers.Dropout(0.1), layers.Dense(1)])
        model.compile("sgd", "mse", weighted_metrics=["mae"])
    return model


def _data(rows: int = 100) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, 3)).astype("float32"), rng.normal(size=(rows, 1)).astype("float32")


class _Batches(keras.utils.PyDataset):
    """Shuffles what Keras does not, in one of several ways."""

    def __init__(self, x: Any, y: Any, draws: str = "", seed: int = 0, weighs: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._x, self._y, self._draws, self._weighs = x, y, draws, weighs
        self._own = np.random.default_rng(seed)
        self._rows = np.arange(len(x))

    def __len__(self) -> int:
        return len(self._x) // SIZE

    def __getitem__(self, index: int) -> Any:
        rows = self._rows[index * SIZE : (index + 1) * SIZE]
        weights = (np.ones(SIZE, "float32"),) if self._weighs else ()
        return self._x[rows], self._y[rows], *weights

    def on_epoch_end(self) -> None:
        if self._draws == "global":
            np.random.shuffle(self._rows)
        if self._draws == "own":
            self._own.shuffle(self._rows)


class _Draws(keras.callbacks.Callback):
    """Draws random numbers: more of them on some workers."""

    def __init__(self, me: int) -> None:
        super().__init__()
        self._me = me

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        np.random.random(self._me)


def shuffled(strategy: Any, draws: str, workers: int, processes: bool = False) -> dict[str, np.ndarray]:
    """Fit of a PyDataset in the order that Keras draws, and in one that it draws itself."""
    x, y = _data()
    model = _model(strategy)
    data = _Batches(x, y, draws, workers=workers, use_multiprocessing=processes)
    me = strategy.cluster_resolver.task_id if strategy.cluster_resolver else 0
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*fork", category=RuntimeWarning)  # jax's, about any fork.
        warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
        history = model.fit(data, epochs=3, verbose=0, callbacks=[_Draws(me)])
    return {"loss": np.asarray(history.history["loss"]), "kernel": model.get_weights()[0]}


def _tuples(x: Any, y: Any, sizes: Iterator[int]) -> Iterator[Any]:
    start = 0
    for size in sizes:
        yield x[start : start + size], y[start : start + size]
        start += size


def _call(strategy: Any, what: str, odd: bool) -> Any:
    """Makes a call; with other data if odd."""
    x, y = _data()
    model = _model(strategy)
    if what == "rows":
        return model.fit(x[: 99 if odd else 100], y[: 99 if odd else 100], SIZE, verbose=0)
    if what == "batch size":
        return model.fit(x, y, SIZE + odd, verbose=0)
    if what == "dtype":
        return model.fit(x.astype("int32") if odd else x, y, SIZE, verbose=0)
    if what == "shape":
        return model.fit(x, y[:, 0] if odd else y, SIZE, verbose=0)
    if what == "shuffle":
        return model.fit(x, y, SIZE, shuffle=not odd, verbose=0)
    if what == "sample_weight":
        return model.fit(x, y, SIZE, sample_weight=np.ones(100) if odd else None, verbose=0)
    if what in ("values", "values, not compared"):
        return model.fit(x + odd, y, SIZE, verbose=0)
    if what == "class_weight":
        data = Dataset.from_tensor_slices((x, np.zeros(100, "int32"))).batch(SIZE)
        return model.fit(data, class_weight={0: 1.0 + odd}, verbose=0)
    if what == "kind":
        data = Dataset.from_tensor_slices((x, y)).batch(SIZE)
        return model.fit(data, verbose=0) if odd else model.fit(x, y, SIZE, verbose=0)
    if what == "values of a dataset":
        return model.fit(Dataset.from_tensor_slices((x + odd, y)).shuffle(100).batch(SIZE), verbose=0)
    if what == "map function":
        data = Dataset.from_tensor_slices((x, y)).map(lambda x, y: (x * (2 + odd), y))
        return model.fit(data.cache().batch(SIZE), verbose=0)
    if what == "values of a generated dataset":
        data = Dataset.from_generator(lambda: iter(list(zip(x + odd, y, strict=True))))
        return model.fit(data.batch(SIZE), verbose=0)
    if what == "seed of a dataset":
        return model.fit(Dataset.from_tensor_slices((x, y)).shuffle(100, seed=int(odd)).batch(SIZE), verbose=0)
    if what == "validation rows":
        rows = 49 if odd else 50
        return model.fit(x, y, SIZE, validation_data=(x[:rows], y[:rows]), verbose=0)
    if what == "validation weights":
        weights = (np.ones(100, "float32"),) if odd else ()
        return model.fit(x, y, SIZE, validation_data=(x, y, *weights), verbose=0)
    if what == "validation values":
        return model.fit(x, y, SIZE, validation_data=(x, y + odd), verbose=0)
    if what == "evaluate":
        return model.evaluate(x[: 99 if odd else 100], y[: 99 if odd else 100], verbose=0)
    if what == "predict":
        return model.predict(x, batch_size=SIZE + odd, verbose=0)
    if what == "train_on_batch":
        return model.train_on_batch(x, y + odd)
    if what == "first batch of a generator":
        sizes = [SIZE + odd] * 4
        return model.fit(_tuples(x, y, iter(sizes)), verbose=0)
    if what == "weights of a PyDataset":
        return model.fit(_Batches(x, y, weighs=odd), verbose=0)
    if what == "seed of a PyDataset":
        return model.fit(_Batches(x, y, "own", seed=int(odd)), epochs=2, shuffle=False, verbose=0)
    if what == "iterable of a Program":
        batches = list(_tuples(x + odd, y, iter([SIZE] * 5)))
        return Program(lambda state, batch: (state + batch[0].mean(), {}), strategy).fit(0.0, batches, verbose=0)
    raise AssertionError(what)


def differs(strategy: Any, what: str) -> dict[str, np.ndarray]:
    """Returns the error of a call for which worker 1 has other data."""
    os.environ[VARIABLE] = "0" if what == "values, not compared" else "1"
    try:
        _call(strategy, what, strategy.cluster_resolver.task_id == 1)
    except Exception as error:
        return {"type": np.asarray(type(error).__name__), "text": np.asarray(str(error))}
    finally:
        del os.environ[VARIABLE]
    return {"type": np.asarray("none"), "text": np.asarray("")}
