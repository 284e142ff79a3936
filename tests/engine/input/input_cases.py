"""What programs do with datasets on several workers, run there by `test_workers_input.py`."""

from __future__ import annotations

import json
from typing import Any

import keras
import numpy as np
from keras import layers

from lockstep.data import AutoShardPolicy, Dataset, InputContext, Options, TextLineDataset


def _arrays(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(rows, 6)).astype("float32"), rng.integers(0, 3, rows)


def _model(strategy: Any, **compile: Any) -> keras.Model:
    keras.utils.set_random_seed(5)
    keras.backend.clear_session()
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), layers.Dense(8, activation="tanh"), layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss, metrics=["accuracy"], **compile)
    return model


def _with_policy(dataset: Dataset, policy: str) -> Dataset:
    options = Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy[policy]
    return dataset.with_options(options)


def fit(strategy: Any, rows: int, size: int, policy: str = "AUTO", eager: bool = False) -> dict[str, np.ndarray]:
    """fit, evaluate and predict: unseeded shuffles, a cache, class weights, batches that do not divide."""
    dataset = Dataset.from_tensor_slices(_arrays(rows)).map(lambda x, y: (x * 2, y)).cache()
    trained = _with_policy(dataset.shuffle(9).batch(size).prefetch(2), policy)
    model = _model(strategy, run_eagerly=eager)
    weights = {0: 1.0, 1: 2.0, 2: 0.5}
    history = model.fit(trained, epochs=3, class_weight=weights, validation_data=dataset.batch(5), verbose=0)
    found = {f"weight {i}": w for i, w in enumerate(model.get_weights())}
    found |= {name: np.asarray(values) for name, values in history.history.items()}
    found["evaluated"] = np.asarray(model.evaluate(dataset.batch(7), verbose=0))
    found["predicted"] = model.predict(dataset.batch(7), verbose=0)
    return found


def _lines(path: str) -> Dataset:
    return TextLineDataset(path).map(lambda line: np.float32(line))


def fit_by_files(strategy: Any, files: list[str], size: int, eager: bool = False) -> dict[str, np.ndarray]:
    """Fit with AutoShardPolicy.FILE; the loss is the sum of all numbers in the files, whatever the batches."""
    data = Dataset.from_tensor_slices(files).interleave(_lines, cycle_length=2)
    data = data.map(lambda v: (np.reshape(v, (1,)), np.zeros(1, "float32"))).batch(size)
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), layers.Dense(1, use_bias=False, kernel_initializer="ones")])
        seen = keras.metrics.Sum(name="seen")
        model.compile(keras.optimizers.SGD(0.0), "mae", metrics=[_Seen(seen)], run_eagerly=eager)
    history = model.fit(_with_policy(data, "FILE"), epochs=2, verbose=0)
    return {"seen": np.asarray(history.history["seen"])}


class _Seen(keras.metrics.Metric):
    """The sum of the predictions."""

    def __init__(self, total: keras.metrics.Sum) -> None:
        super().__init__(name="seen")
        self._total = total

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self._total.update_state(y_pred)

    def result(self) -> Any:
        return self._total.result()

    def reset_state(self) -> None:
        self._total.reset_state()


def _rows(strategy: Any, element: Any) -> list[Any]:
    return [np.asarray(v).tolist() for v in strategy.experimental_local_results(element)]


def iterate(strategy: Any, count: int, size: int) -> dict[str, np.ndarray]:
    """What each replica gets of a distributed dataset."""
    dataset = Dataset.range(count).batch(size)
    batches = [_rows(strategy, e) for e in strategy.experimental_distribute_dataset(dataset)]
    return {"batches": np.asarray(json.dumps(batches))}


def from_function(strategy: Any, count: int) -> dict[str, np.ndarray]:
    """The same of an input function; pipelines of different length."""

    def make(context: InputContext) -> Dataset:
        size = context.get_per_replica_batch_size(4)
        return Dataset.range(count).shard(context.num_input_pipelines, context.input_pipeline_id).batch(size)

    batches = [_rows(strategy, e) for e in strategy.distribute_datasets_from_function(make)]
    return {"batches": np.asarray(json.dumps(batches))}


def _long(files: list[str], policy: str) -> Dataset:
    if policy == "FILE":
        dataset = TextLineDataset(files).map(lambda line: int(line))
    else:
        dataset = Dataset.range(23).map(lambda i: i + 100)
    return _with_policy(dataset.cache().shuffle(7).repeat(2).batch(6).prefetch(2), policy)


def begin(strategy: Any, files: list[str], policy: str, point: int) -> dict[str, np.ndarray]:
    """Reads some batches, then says where it is, and reads the rest."""
    iterator = iter(strategy.experimental_distribute_dataset(_long(files, policy)))
    for _ in range(point):
        next(iterator)
    position = json.dumps(iterator.get_state())
    return {"position": np.asarray(position), "rest": np.asarray(json.dumps([_rows(strategy, e) for e in iterator]))}


def resume(strategy: Any, files: list[str], policy: str, position: str) -> dict[str, np.ndarray]:
    """Reads on from a position; of a new dataset."""
    iterator = iter(strategy.experimental_distribute_dataset(_long(files, policy)))
    iterator.set_state(json.loads(position))
    return {"rest": np.asarray(json.dumps([_rows(strategy, e) for e in iterator]))}


def different(strategy: Any) -> dict[str, np.ndarray]:
    """The workers make different datasets."""
    import lockstep as ls

    me = strategy.cluster_resolver.task_id if strategy.cluster_resolver else 0
    try:
        _model(strategy).fit(Dataset.from_tensor_slices(_arrays(8)).batch(4 + 4 * me), verbose=0)
    except ls.errors.MismatchError as error:
        return {"message": np.asarray(str(error))}
    return {"message": np.asarray("no error")}


def broken(strategy: Any, path: str) -> dict[str, np.ndarray]:
    """A number in a file cannot be read."""
    import lockstep as ls

    data = _lines(path).map(lambda v: (np.full(6, v), 0)).batch(4)
    try:
        _model(strategy).fit(data, verbose=0)
    except ls.errors.InputError as error:
        return {"message": np.asarray(str(error))}
    return {"message": np.asarray("no error")}
