"""Ragged, sparse and listed tensors give what TensorFlow 2.15.1 gives."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from tests.compat.composite_cases import EXPECTED, cases, plain

CASES = cases(tf)
FOUND: dict[str, Any] = json.loads(EXPECTED.read_text())


def test_every_case_has_an_expected_value() -> None:
    assert set(CASES) == set(FOUND)


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    compare(plain(tf, CASES[name]()), FOUND[name])


def compare(found: Any, expected: Any) -> None:
    if isinstance(expected, (list, dict)):
        assert type(found) is type(expected)
        assert len(found) == len(expected)
        for key in expected if isinstance(expected, dict) else range(len(expected)):
            compare(found[key], expected[key])
    else:
        assert found == (pytest.approx(expected, rel=1e-6) if isinstance(expected, float) else expected)


def test_what_they_are() -> None:
    ragged = tf.ragged.constant([[[1, 2], [3]], []])
    assert (ragged.shape.as_list(), ragged.ragged_rank, ragged.dtype) == ([2, None, None], 2, tf.int32)
    assert repr(ragged) == "<tf.RaggedTensor [[[1, 2], [3]], []]>"
    assert tf.type_spec_from_value(ragged) == tf.RaggedTensorSpec([2, None, None], tf.int32)
    assert repr(tf.RaggedTensorSpec([None, None], tf.int32)) == (
        "RaggedTensorSpec(TensorShape([None, None]), tf.int32, 1, tf.int64)"
    )
    assert [row.tolist() for row in tf.ragged.constant([[1, 2], [3]]).numpy()] == [[1, 2], [3]]
    sparse = tf.SparseTensor([[0, 1]], [1.0], [2, 3])
    assert tf.type_spec_from_value(sparse) == tf.SparseTensorSpec([2, 3])
    assert tf.SparseTensorSpec([None, 3]).is_compatible_with(sparse)
    assert tf.is_tensor(ragged)
    assert not isinstance(ragged, tf.Tensor)


@pytest.mark.slow
def test_values_of_jax() -> None:
    def loss(table: Any) -> Any:
        words = tf.ragged.constant([[0, 2], [1]])
        vectors = tf.ragged.map_flat_values(tf.nn.embedding_lookup, table, words)
        return tf.reduce_sum(tf.reduce_mean(vectors, axis=1) * jnp.asarray([[1.0], [2.0]]))

    np.testing.assert_allclose(jax.grad(loss)(jnp.ones((3, 1))), [[0.5], [2.0], [0.5]])
    product = jax.jit(lambda b: tf.sparse.sparse_dense_matmul(tf.SparseTensor([[0, 1]], [2.0], [2, 2]), b))
    assert product(jnp.ones((2, 1))).tolist() == [[2.0], [0.0]]


def test_an_array_in_a_loop_of_jax() -> None:
    @jax.jit
    def squares(x: Any) -> Any:
        array = tf.TensorArray(tf.float32, size=4, element_shape=[])
        _, array = tf.while_loop(
            lambda i, _: i < 4,
            lambda i, a: (i + 1, a.write(i, x * tf.cast(i, tf.float32))),
            (
                jnp.asarray(0),
                array,
            ),
        )
        return array.stack()

    assert squares(2.0).tolist() == [0.0, 2.0, 4.0, 6.0]


def test_what_cannot_be_says_what_to_do() -> None:
    ragged = tf.ragged.constant([[1], [2, 3]])
    for wrong, words in (
        (lambda: tf.RaggedTensor.from_row_splits([1, 2], [0, 3]), "number of values"),
        (lambda: ragged[:, 0], "Use a slice"),
        (lambda: ragged + tf.ragged.constant([[1, 2], [3]]), "same lengths"),
        (lambda: np.asarray(ragged), "to_tensor"),
        (lambda: tf.matmul(ragged, ragged), "to_tensor"),
        (lambda: tf.sparse.to_dense(tf.SparseTensor([[1], [0]], [1, 2], [2])), "reorder"),
        (lambda: tf.SparseTensor([[0, 1]], [1], [2]), "rank"),
        (lambda: tf.TensorArray(tf.int32, 1).write(3, 1), "1 elements"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            wrong()


def test_they_are_elements_of_datasets() -> None:
    texts = tf.data.Dataset.from_tensor_slices(["a b", "c", "d e f"]).batch(2).map(tf.strings.split)
    assert texts.element_spec == tf.RaggedTensorSpec([None, None], tf.string)
    assert [batch.to_list() for batch in texts] == [[[b"a", b"b"], [b"c"]], [[b"d", b"e", b"f"]]]
    assert [row.numpy().tolist() for row in texts.unbatch()] == [[b"a", b"b"], [b"c"], [b"d", b"e", b"f"]]
    sparse = tf.SparseTensor([[0, 1], [1, 0]], [1.0, 2.0], [2, 3])
    rows = tf.data.Dataset.from_tensor_slices(sparse)
    assert rows.element_spec == tf.SparseTensorSpec([3])
    assert [tf.sparse.to_dense(batch).numpy().tolist() for batch in rows.batch(2)] == [[[0, 1, 0], [2, 0, 0]]]


def test_examples_of_records_hold_them() -> None:
    values = tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 2]))
    record = tf.train.Example(features=tf.train.Features(feature={"a": values})).SerializeToString()
    spec = {"a": tf.io.VarLenFeature(tf.int64)}
    assert tf.io.parse_single_example(record, spec)["a"].indices.numpy().tolist() == [[0], [1]]
    found = tf.io.parse_example([record, record], spec)["a"]
    assert tf.sparse.to_dense(found).numpy().tolist() == [[1, 2], [1, 2]]
    ragged = tf.io.parse_example([record], {"a": tf.io.RaggedFeature(tf.int64)})["a"]
    assert ragged.to_list() == [[1, 2]]
    parsed = tf.data.Dataset.from_tensors([record]).map(lambda r: tf.io.parse_example(r, spec))
    assert parsed.element_spec == {"a": tf.SparseTensorSpec([1, 2], tf.int64)}
    fixed = tf.io.parse_single_example(record, {"a": tf.io.FixedLenFeature(2, tf.int64)})
    assert fixed["a"].numpy().tolist() == [1, 2]


@pytest.mark.slow
def test_models_take_sparse_inputs() -> None:
    inputs = tf.keras.Input((4,), sparse=True)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(2)(inputs))
    model.compile("sgd", "mse")
    sparse = tf.sparse.SparseTensor([[0, 0], [2, 3]], [1.0, 2.0], [3, 4])
    dense, y = tf.sparse.to_dense(sparse), np.ones([3, 2], "float32")
    np.testing.assert_array_equal(model(sparse), model(dense))
    np.testing.assert_array_equal(model.predict(sparse, verbose=0), model.predict(dense, verbose=0))
    data = tf.data.Dataset.from_tensors((sparse, y))
    assert model.evaluate(data, verbose=0) == model.evaluate(dense, y, batch_size=3, verbose=0)
    expected = model.evaluate(dense, y, verbose=0)
    np.testing.assert_allclose(model.fit(sparse, y, verbose=0).history["loss"], [expected], rtol=1e-6)
