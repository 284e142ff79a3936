"""tf.data.experimental, tf.data.Options, iterators and optionals, as programs use them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError

EXPERIMENTAL = tf.data.experimental


def _values(dataset: Any) -> list[Any]:
    return [np.asarray(v).tolist() for v in dataset.as_numpy_iterator()]


def test_every_name_is_there() -> None:
    assert all(getattr(EXPERIMENTAL, name) is not None for name in EXPERIMENTAL.__all__)
    assert "CsvDataset" in dir(EXPERIMENTAL)


def test_transformations_for_apply() -> None:
    numbers = tf.data.Dataset.range(6)
    windows = EXPERIMENTAL.group_by_window(lambda x: x % 2, lambda k, w: w.batch(2), 2)
    assert _values(numbers.apply(windows)) == [[0, 2], [1, 3], [4], [5]]
    reducer = EXPERIMENTAL.Reducer(lambda k: np.int64(0), lambda s, x: s + x, lambda s: s)
    assert _values(numbers.apply(EXPERIMENTAL.group_by_reducer(lambda x: x % 2, reducer))) == [6, 9]
    buckets = EXPERIMENTAL.bucket_by_sequence_length(lambda x: tf.shape(x)[0], [2], [2, 2])
    rows = tf.data.Dataset.from_generator(lambda: [[1], [2, 3], [4]], output_signature=tf.TensorSpec([None], tf.int32))
    assert _values(rows.apply(buckets)) == [[[1], [4]], [[2, 3]]]
    assert _values(tf.data.Dataset.from_tensor_slices([1, 1, 2]).apply(EXPERIMENTAL.unique())) == [1, 2]
    sampled = numbers.apply(EXPERIMENTAL.rejection_resample(lambda x: x % 2, [0.5, 0.5], [0.5, 0.5]))
    assert [int(v) for _, v in sampled] == list(range(6))
    with pytest.raises(ArgumentError, match="only one of"):
        EXPERIMENTAL.map_and_batch(lambda x: x, 2, num_parallel_batches=1, num_parallel_calls=1)
    assert _values(numbers.apply(EXPERIMENTAL.prefetch_to_device("/cpu:0"))) == list(range(6))


def test_a_dataset_is_padded_to_a_number_of_elements() -> None:
    dataset = tf.data.Dataset.from_tensor_slices({"a": [1, 2], "t": ["x", "y"]})
    padded = dataset.apply(EXPERIMENTAL.pad_to_cardinality(3))
    assert list(padded.as_numpy_iterator()) == [
        {"a": 1, "t": b"x", "valid": True},
        {"a": 2, "t": b"y", "valid": True},
        {"a": 0, "t": b"", "valid": False},
    ]
    for message, wrong in [
        ("known cardinalty", dataset.repeat()),
        ("less than the target", dataset.repeat(2)),
        ("to be a dictionary", tf.data.Dataset.range(2)),
    ]:
        with pytest.raises(ArgumentError, match=message):
            wrong.apply(EXPERIMENTAL.pad_to_cardinality(3))


def test_elements_by_number_and_of_lists() -> None:
    dataset = EXPERIMENTAL.from_list([([1], "a"), ([2, 3], "b")])
    element = EXPERIMENTAL.at(dataset, 1)
    assert (element[0].numpy().tolist(), element[1].numpy()) == ([2, 3], b"b")
    shuffled = tf.data.Dataset.range(9).shuffle(9, seed=2)
    assert [int(EXPERIMENTAL.at(shuffled, i)) for i in range(9)] == _values(shuffled)
    for index in (-1, 2):
        with pytest.raises(tf.errors.OutOfRangeError):
            EXPERIMENTAL.at(dataset, index)
    for wrong in ([], (1, 2), [1, (2,)]):
        with pytest.raises(ArgumentError):
            EXPERIMENTAL.from_list(wrong)


def test_iterators_and_optionals() -> None:
    iterator = iter(tf.data.Dataset.range(1))
    assert isinstance(iterator, tf.data.Iterator)
    first = EXPERIMENTAL.get_next_as_optional(iterator)
    assert isinstance(first, EXPERIMENTAL.Optional)
    assert first.has_value().numpy()
    assert first.get_value().numpy() == 0
    last = iterator.get_next_as_optional()
    assert not last.has_value()
    assert last.element_spec == iterator.element_spec
    with pytest.raises(tf.errors.InvalidArgumentError):
        last.get_value()
    with pytest.raises(tf.errors.OutOfRangeError):
        iterator.get_next()
    made = EXPERIMENTAL.Optional.from_value({"a": 1.5})
    assert made.get_value()["a"].numpy() == 1.5
    assert made.element_spec["a"].dtype == tf.float32
    assert not EXPERIMENTAL.Optional.empty(made.element_spec).has_value()


def test_options_that_tune_are_kept_and_wrong_ones_refused() -> None:
    options = tf.data.Options()
    options.autotune.enabled = True
    options.autotune.cpu_budget = 4
    options.experimental_optimization.map_fusion = True
    options.experimental_slack = True
    options.threading.max_intra_op_parallelism = 3
    options.experimental_distribute.num_devices = 2
    options.experimental_external_state_policy = EXPERIMENTAL.ExternalStatePolicy.WARN
    other = tf.data.Options()
    other.autotune.enabled = False
    other.experimental_distribute.auto_shard_policy = EXPERIMENTAL.AutoShardPolicy.DATA
    dataset = tf.data.Dataset.range(3).with_options(options).map(lambda x: x).with_options(other)
    found = dataset.options()
    assert (found.autotune.enabled, found.autotune.cpu_budget) == (False, 4)
    assert found.experimental_optimization.map_fusion
    assert found.experimental_distribute.auto_shard_policy == EXPERIMENTAL.AutoShardPolicy.DATA
    assert found.experimental_slack
    assert found.threading.max_intra_op_parallelism == 3
    assert _values(dataset) == [0, 1, 2]
    with pytest.raises(AttributeError, match="Cannot set the property"):
        options.wrong = 1
    with pytest.raises(TypeError, match="must be of type"):
        options.autotune.enabled = 3
    with pytest.raises(TypeError):
        options.experimental_optimization = 3


def test_datasets_made_of_several_have_their_options() -> None:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = EXPERIMENTAL.AutoShardPolicy.OFF
    one = tf.data.Dataset.range(3).with_options(options)
    two = tf.data.Dataset.range(3)
    for made in (
        tf.data.Dataset.zip((one, two)),
        two.concatenate(one),
        tf.data.Dataset.sample_from_datasets([two, one]),
        tf.data.Dataset.choose_from_datasets([two, one], two),
    ):
        assert made.options().experimental_distribute.auto_shard_policy == EXPERIMENTAL.AutoShardPolicy.OFF


def test_rows_of_a_data_base(tmp_path: Path) -> None:
    path = str(tmp_path / "people.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("create table people (name text, age integer, height real)")
    connection.executemany("insert into people values (?, ?, ?)", [("ann", 30, 1.5), (None, None, 2.0)])
    connection.commit()
    connection.close()
    query = "select name, age, height from people order by height"
    dataset = EXPERIMENTAL.SqlDataset("sqlite", path, query, (tf.string, tf.int32, tf.float64))
    assert [tuple(v.numpy() for v in row) for row in dataset] == [(b"ann", 30, 1.5), (b"", 0, 2.0)]
    with pytest.raises(ArgumentError, match="sqlite"):
        EXPERIMENTAL.SqlDataset("mysql", path, query, (tf.string,))


def test_files_of_examples_and_of_csv(tmp_path: Path) -> None:
    path = str(tmp_path / "examples.tfrecord")

    def example(number: int) -> bytes:
        value = tf.train.Feature(int64_list=tf.train.Int64List(value=[number]))
        return tf.train.Example(features=tf.train.Features(feature={"n": value})).SerializeToString()

    serialized = tf.data.Dataset.from_tensor_slices([example(n) for n in range(5)])
    EXPERIMENTAL.TFRecordWriter(path).write(serialized)
    features = {"n": tf.io.FixedLenFeature([], tf.int64)}
    batches = EXPERIMENTAL.make_batched_features_dataset(
        path, 2, features, reader=tf.data.TFRecordDataset, num_epochs=1, shuffle=False
    )
    assert isinstance(batches, tf.data.Dataset)
    assert [b["n"].numpy().tolist() for b in batches] == [[0, 1], [2, 3], [4]]
    labelled = EXPERIMENTAL.make_batched_features_dataset(path, 2, features, label_key="n", num_epochs=1, shuffle=False)
    assert [label.numpy().tolist() for _, label in labelled] == [[0, 1], [2, 3], [4]]
    parsed = serialized.batch(5).apply(EXPERIMENTAL.parse_example_dataset(features))
    assert next(iter(parsed))["n"].numpy().tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(TypeError, match="scalars of text"):
        EXPERIMENTAL.TFRecordWriter(path).write(tf.data.Dataset.range(3))
    table = tmp_path / "table.csv"
    table.write_text("a,b\n1,x\n")
    batch = next(iter(EXPERIMENTAL.make_csv_dataset(str(table), 1, num_epochs=1)))
    assert (batch["a"].numpy().tolist(), batch["b"].numpy().tolist()) == ([1], [b"x"])
    rows = EXPERIMENTAL.CsvDataset(str(table), [tf.int32, tf.string], header=True)
    assert [(a.numpy(), b.numpy()) for a, b in rows] == [(1, b"x")]


def test_saved_datasets(tmp_path: Path) -> None:
    tf.data.Dataset.range(4).map(lambda x: {"x": x}).save(str(tmp_path / "data"))
    loaded = tf.data.Dataset.load(str(tmp_path / "data"))
    assert isinstance(loaded, tf.data.Dataset)
    assert [e["x"].numpy() for e in loaded] == [0, 1, 2, 3]
    assert _values(tf.data.Dataset.range(3).snapshot(str(tmp_path / "snap"))) == [0, 1, 2]
