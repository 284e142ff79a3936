"""Ragged and sparse tensors in datasets: batches, rows and specs are those of TensorFlow 2.15."""

from __future__ import annotations

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError, InputError


def test_batches_of_arrays_that_differ_are_ragged() -> None:
    rows = tf.data.Dataset.from_generator(
        lambda: (np.arange(n) for n in range(5)), output_signature=tf.TensorSpec([None], tf.int64)
    )
    dataset = rows.ragged_batch(2)
    assert dataset.element_spec == tf.RaggedTensorSpec([None, None], tf.int64, 1)
    assert [b.to_list() for b in dataset] == [[[], [0]], [[0, 1], [0, 1, 2]], [[0, 1, 2, 3]]]
    assert [b.to_list() for b in rows.ragged_batch(2, drop_remainder=True)] == [[[], [0]], [[0, 1], [0, 1, 2]]]
    applied = rows.apply(tf.data.experimental.dense_to_ragged_batch(5))
    assert next(iter(applied)).row_lengths().numpy().tolist() == [0, 1, 2, 3, 4]
    again = dataset.unbatch()
    assert again.element_spec == tf.RaggedTensorSpec([None], tf.int64, 0)
    assert [r.numpy().tolist() for r in again] == [list(range(n)) for n in range(5)]
    with pytest.raises(ArgumentError, match=r"tf\.int32 or tf\.int64"):
        rows.ragged_batch(2, row_splits_dtype=tf.float32)


def test_only_what_is_not_known_is_ragged() -> None:
    signature = (tf.TensorSpec([None, 2], tf.float32), tf.TensorSpec([], tf.int32))
    rows = tf.data.Dataset.from_generator(
        lambda: ((np.ones((n, 2), np.float32), n) for n in range(4)), output_signature=signature
    )
    dataset = rows.ragged_batch(4, drop_remainder=True)
    ragged, numbers = dataset.element_spec
    assert ragged == tf.RaggedTensorSpec([4, None, 2], tf.float32, 1)
    assert numbers == tf.TensorSpec([4], tf.int32)
    batch, count = next(iter(dataset))
    assert batch.row_lengths().numpy().tolist() == count.numpy().tolist() == [0, 1, 2, 3]


def test_several_axes_may_differ() -> None:
    shapes = [(1, 2, 2), (2, 0, 2), (0, 3, 2)]
    rows = tf.data.Dataset.from_generator(
        lambda: (np.ones(s, np.int32) for s in shapes), output_signature=tf.TensorSpec([None, None, 2], tf.int32)
    )
    dataset = rows.ragged_batch(3)
    assert dataset.element_spec == tf.RaggedTensorSpec([None, None, None, 2], tf.int32, 2)
    assert next(iter(dataset)).to_list() == [[[[1, 1], [1, 1]]], [[], []], []]


def test_batches_of_small_arrays_are_sparse() -> None:
    rows = tf.data.Dataset.from_generator(
        lambda: (np.arange(n, dtype=np.int32) for n in (1, 2)), output_signature=tf.TensorSpec([None], tf.int32)
    )
    dataset = rows.sparse_batch(2, [6])
    assert dataset.element_spec == tf.SparseTensorSpec([None, 6], tf.int32)
    batch = next(iter(dataset))
    assert batch.indices.numpy().tolist() == [[0, 0], [1, 0], [1, 1]]
    assert batch.values.numpy().tolist() == [0, 0, 1]
    assert batch.dense_shape.numpy().tolist() == [2, 6]
    assert next(dataset.as_numpy_iterator()).tolist() == [[0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]]
    row = list(dataset.unbatch())[1]
    assert (row.indices.numpy().tolist(), row.values.numpy().tolist()) == ([[0], [1]], [0, 1])
    widest = rows.apply(tf.data.experimental.dense_to_sparse_batch(2, [-1]))
    assert next(iter(widest)).dense_shape.numpy().tolist() == [2, 2]
    assert [b.dense_shape.numpy().tolist() for b in dataset.batch(1)] == [[1, 2, 6]]
    with pytest.raises(InputError, match="must fit into row_shape"):
        next(iter(rows.sparse_batch(2, [1])))


def test_rows_of_a_ragged_tensor_are_batched_as_ragged_ones() -> None:
    dataset = tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 3], [], [4, 5, 6]]))
    assert dataset.element_spec == tf.RaggedTensorSpec([None], tf.int32, 0)
    assert [r.numpy().tolist() for r in dataset] == [[1], [2, 3], [], [4, 5, 6]]
    batches = dataset.batch(2)
    assert batches.element_spec == tf.RaggedTensorSpec([None, None], tf.int32, 1)
    assert [b.to_list() for b in batches] == [[[1], [2, 3]], [[], [4, 5, 6]]]
    assert [r.numpy().tolist() for r in batches.unbatch()] == [[1], [2, 3], [], [4, 5, 6]]
    lengths = dataset.map(tf.size)
    assert [int(n) for n in lengths] == [1, 2, 0, 3]
    whole = tf.data.Dataset.from_tensors(tf.ragged.constant([[1], [2, 3]]))
    assert whole.map(lambda r: r.to_tensor()).as_numpy_iterator().get_next().tolist() == [[1, 0], [2, 3]]


def test_rows_of_a_sparse_tensor_are_sparse() -> None:
    sparse = tf.SparseTensor([[0, 0], [1, 2]], [1, 2], [3, 4])
    dataset = tf.data.Dataset.from_tensor_slices(sparse)
    assert dataset.element_spec == tf.SparseTensorSpec([4], tf.int32)
    assert [r.tolist() for r in dataset.as_numpy_iterator()] == [[1, 0, 0, 0], [0, 0, 2, 0], [0, 0, 0, 0]]
    batch = next(iter(dataset.batch(2)))
    assert batch.indices.numpy().tolist() == [[0, 0], [1, 2]]
    assert dataset.batch(2).element_spec == tf.SparseTensorSpec([None, 4], tf.int32)
