"""Thirty mistakes that people make, as functions that make them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lockstep as ls

# isort: split
import keras
import numpy as np

MISTAKES: dict[str, Callable[[Path], Any]] = {}


def mistake(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Registers a mistake under its name."""
    MISTAKES[function.__name__] = function
    return function


def _tf_config(text: str) -> None:
    os.environ["TF_CONFIG"] = text
    try:
        ls.cluster_resolver.TFConfigClusterResolver().cluster_spec()
        ls.distribute.MultiWorkerMirroredStrategy()
    finally:
        del os.environ["TF_CONFIG"]


def _cluster(task: dict[str, Any], *workers: str) -> None:
    _tf_config(json.dumps({"cluster": {"worker": list(workers)}, "task": task}))


@mistake
def tf_config_with_single_quotes(_: Path) -> None:
    _tf_config("{'cluster': {'worker': ['host1:2222']}}")


@mistake
def tf_config_cut_off(_: Path) -> None:
    _tf_config('{"cluster": {"worker": ["host1:2222"')


@mistake
def tf_config_index_too_large(_: Path) -> None:
    _cluster({"type": "worker", "index": 2}, "host1:2222", "host2:2222")


@mistake
def tf_config_unknown_type(_: Path) -> None:
    _cluster({"type": "master", "index": 0}, "host1:2222", "host2:2222")


@mistake
def tf_config_without_a_port(_: Path) -> None:
    _cluster({"type": "worker", "index": 0}, "host1", "host2:2222")


@mistake
def tf_config_port_too_large(_: Path) -> None:
    _cluster({"type": "worker", "index": 0}, "host1:70000", "host2:2222")


@mistake
def tf_config_one_address_twice(_: Path) -> None:
    _cluster({"type": "worker", "index": 0}, "host1:2222", "host1:2222")


@mistake
def tf_config_with_a_scheme(_: Path) -> None:
    _cluster({"type": "worker", "index": 0}, "http://host1:2222", "host2:2222")


@mistake
def a_scope_in_another_scope(_: Path) -> None:
    with ls.distribute.MirroredStrategy().scope(), ls.distribute.OneDeviceStrategy("/cpu:0").scope():
        pass


@mistake
def a_backup_of_a_model_without_scope(directory: Path) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    backup = ls.callbacks.BackupAndRestore(directory)
    model.fit(np.ones((4, 2)), np.ones((4, 1)), callbacks=[backup], verbose=0)


def _model() -> Any:
    with ls.distribute.MirroredStrategy().scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return model


@mistake
def fit_of_no_rows(_: Path) -> None:
    _model().fit(np.ones((0, 2)), np.ones((0, 1)), verbose=0)


@mistake
def fit_of_text(_: Path) -> None:
    _model().fit(ls.data.Dataset.from_tensor_slices((np.array(["a", "b"]), np.ones((2, 1)))).batch(2), verbose=0)


@mistake
def fit_of_integers_beyond_32_bits(_: Path) -> None:
    _model().fit(np.full((4, 2), 2**40), np.ones((4, 1)), verbose=0)


@mistake
def a_path_of_weights_without_their_ending(directory: Path) -> None:
    ls.callbacks.ModelCheckpoint(directory / "best.h5", save_weights_only=True)


@mistake
def a_file_that_is_not_there(directory: Path) -> None:
    list(ls.data.TFRecordDataset([str(directory / "train.tfrecord")]))


@mistake
def a_batch_of_nothing(_: Path) -> None:
    ls.data.Dataset.range(10).batch(0)


@mistake
def rows_of_different_lengths(_: Path) -> None:
    lengths = ls.data.Dataset.range(1, 4).map(lambda n: np.ones(int(n)))
    list(lengths.batch(3))


@mistake
def a_cardinality_that_is_not_kept(_: Path) -> None:
    list(ls.data.Dataset.range(9).filter(lambda n: n > 2).assert_cardinality(9))


@mistake
def a_data_set_that_is_misspelled(_: Path) -> None:
    ls.datasets.load("minst")


@mistake
def a_split_that_does_not_exist(_: Path) -> None:
    ls.datasets.load("mnist", split="validation")


@mistake
def an_array_to_distribute(_: Path) -> None:
    ls.distribute.MirroredStrategy().experimental_distribute_dataset(np.ones((4, 2)))


@mistake
def nccl_without_gpus(_: Path) -> None:
    options = ls.distribute.CommunicationOptions(implementation=ls.distribute.CommunicationImplementation.NCCL)
    ls.distribute.MultiWorkerMirroredStrategy(communication_options=options)


@mistake
def a_step_that_returns_its_state_alone(_: Path) -> None:
    program = ls.training.Program(lambda state, batch: state, ls.distribute.MirroredStrategy())
    program.fit({"w": np.ones(2, "float32")}, ls.data.Dataset.range(8).batch(4), epochs=1, verbose=0)


@mistake
def a_state_that_changes_its_shape(_: Path) -> None:
    def step(state: Any, batch: Any) -> Any:
        return {"w": state["w"][:1]}, {"loss": batch.sum()}

    program = ls.training.Program(step, ls.distribute.MirroredStrategy())
    program.fit({"w": np.ones(2, "float32")}, ls.data.Dataset.range(8).batch(4), epochs=1, verbose=0)


def _estimator(directory: Path, model_fn: Callable[..., Any]) -> ls.estimator.Estimator:
    return ls.estimator.Estimator(model_fn, str(directory / "model"))


def _input_fn() -> Any:
    return ls.data.Dataset.from_tensor_slices((np.ones((4, 2), "float32"), np.ones((4, 1), "float32"))).batch(2)


@mistake
def a_model_fn_without_train_op(directory: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: Any) -> Any:
        loss = keras.ops.mean((keras.layers.Dense(1)(features) - labels) ** 2)
        return ls.estimator.EstimatorSpec(mode, loss=loss)

    _estimator(directory, model_fn).train(_input_fn, steps=1)


@mistake
def a_loss_for_each_example(directory: Path) -> None:
    def model_fn(features: Any, labels: Any, mode: Any) -> Any:
        loss = (keras.layers.Dense(1)(features) - labels) ** 2
        train_op = ls.estimator.train.minimize(loss, keras.optimizers.SGD())
        return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    _estimator(directory, model_fn).train(_input_fn, steps=1)


@mistake
def categories_in_a_deep_network(directory: Path) -> None:
    column = ls.estimator.feature_column.categorical_column_with_identity("city", 10)
    classifier = ls.estimator.DNNClassifier([8], [column], str(directory / "model"))
    data = ({"city": np.array([[1], [2]])}, np.array([[0], [1]]))
    classifier.train(lambda: ls.data.Dataset.from_tensor_slices(data).batch(2), steps=1)


@mistake
def a_checkpoint_that_is_cut_off(directory: Path) -> None:
    with ls.checkpoint.CheckpointStore(str(directory)) as store:
        prefix = store.save(1, {"w": np.ones(1000)})
    path = Path(f"{prefix}.npz")
    path.write_bytes(path.read_bytes()[:500])
    ls.checkpoint.load(prefix)


@mistake
def an_old_name_of_tensorflow(_: Path) -> None:
    import lockstep.compat.tensorflow as tf

    tf.Session()


@mistake
def a_model_fn_without_features(directory: Path) -> None:
    _estimator(directory, lambda x, y: None)


@mistake
def a_training_of_no_steps(directory: Path) -> None:
    _estimator(directory, lambda features, labels, mode: None).train(_input_fn, steps=0)
