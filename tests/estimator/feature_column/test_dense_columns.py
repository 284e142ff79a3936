from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep.estimator.feature_column as fc
from lockstep.errors import ArgumentError, StartupOrderError, UnsupportedError
from tests.estimator.feature_column.examples import FEATURES, numbers, text

_WORDS = fc.categorical_column_with_vocabulary_list("a", ["x", "yy"])
_IDENTITY = fc.categorical_column_with_identity("id", 3, default_value=2)


def _ones(shape: Any, dtype: Any = None) -> Any:
    return jnp.ones(shape, dtype)


def test_columns_stand_side_by_side_in_the_order_of_their_names() -> None:
    found = numbers([fc.numeric_column("v"), fc.indicator_column(_WORDS), fc.numeric_column("n")])
    expected = [[1, 0, 1, 1], [0, 1, 2, 2], [0, 0, -1, 3], [0, 0, -7, 0]]
    assert found.tolist() == expected
    assert found.dtype == np.float32


def test_numbers_are_normalised() -> None:
    column = fc.numeric_column("v", normalizer_fn=lambda x: (x - 1) / 2)
    assert numbers(column).ravel().tolist() == [0, 0.5, 1, -0.5]


def test_numbers_of_several_dimensions_are_put_in_one_row() -> None:
    column = fc.numeric_column("m", shape=(2, 2))
    assert numbers(column, {"m": np.arange(8).reshape(2, 2, 2)}).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_feature_of_another_shape_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"takes 3 numbers for each example.*\(4, 1\)"):
        numbers(fc.numeric_column("v", shape=3))
    with pytest.raises(ArgumentError, match="takes numbers"):
        numbers(fc.numeric_column("a"))


def test_buckets_as_numbers() -> None:
    column = fc.bucketized_column(fc.numeric_column("v", shape=2), [0.0, 1.0])
    found = numbers(column, {"v": np.array([[-1.0, 0.5], [1.0, 7.0]])})
    assert found.tolist() == [[1, 0, 0, 0, 1, 0], [0, 0, 1, 0, 0, 1]]


def test_a_boundary_belongs_to_the_bucket_above_it() -> None:
    column = fc.bucketized_column(fc.numeric_column("v"), [1.0, 3.0])
    assert numbers(column).argmax(axis=1).tolist() == [1, 1, 2, 0]


def test_indicators_count() -> None:
    assert numbers(fc.indicator_column(_IDENTITY)).tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 2]]
    too_large = fc.indicator_column(fc.categorical_column_with_identity("id", 2))
    assert numbers(too_large).tolist() == [[1, 1], [0, 1], [0, 0], [0, 0]]


def test_indicators_add_up_weights() -> None:
    column = fc.indicator_column(fc.weighted_categorical_column(_IDENTITY, "w"))
    features = {**FEATURES, "w": np.array([[0.5, 2], [3, 1], [1, 1], [4, -1]], np.float32)}
    assert numbers(column, features).tolist() == [[0.5, 2, 0], [0, 3, 0], [0, 0, 0], [0, 0, 3]]


def test_embeddings_begin_as_the_initializer_says() -> None:
    column = fc.embedding_column(_IDENTITY, 2, combiner="sum", initializer=_ones)
    assert numbers(column).tolist() == [[2, 2], [1, 1], [0, 0], [2, 2]]


@pytest.mark.slow
def test_embeddings_are_normally_distributed_by_default() -> None:
    layer = fc.DenseFeatures(fc.embedding_column(fc.categorical_column_with_identity("id", 4000), 16))
    layer({"id": np.array([[1]])})
    table = np.asarray(layer.weights[0])
    # Cut at two deviations, a normal distribution has 0.88 of its deviation; 1/sqrt(16) is what is asked for.
    assert abs(table).max() <= 0.5 + 1e-6
    assert table.std() == pytest.approx(0.25 * 0.88, rel=0.02)


@pytest.mark.slow
def test_a_layer_names_its_variables_by_the_columns() -> None:
    layer = fc.DenseFeatures(
        [fc.embedding_column(_IDENTITY, 2), fc.embedding_column(_WORDS, 3, trainable=False)], name="in"
    )
    layer(FEATURES)
    assert [(v.path, v.shape) for v in layer.weights] == [
        ("in/id_embedding/embedding_weights", (3, 2)),
        ("in/a_embedding/embedding_weights", (2, 3)),
    ]
    assert [v.path for v in layer.trainable_variables] == ["in/id_embedding/embedding_weights"]


def test_a_layer_tells_what_each_column_gave() -> None:
    number = fc.numeric_column("v")
    outputs: dict[Any, Any] = {}
    fc.DenseFeatures([number, fc.indicator_column(_WORDS)])(FEATURES, cols_to_output_tensors=outputs)
    assert np.asarray(outputs[number]).ravel().tolist() == [1, 2, 3, 0]


@pytest.mark.slow
def test_a_layer_can_be_part_of_a_keras_model() -> None:
    inputs = {"v": keras.Input((1,), name="v"), "id": keras.Input((2,), dtype="int32", name="id")}
    columns = [fc.numeric_column("v"), fc.embedding_column(_IDENTITY, 4)]
    model = keras.Model(inputs, keras.layers.Dense(1)(fc.DenseFeatures(columns)(inputs)))
    data = {"v": FEATURES["v"], "id": FEATURES["id"]}
    model.compile("sgd", "mse")
    before = np.asarray(model.weights[0]).copy()
    model.fit(data, np.ones(4), verbose=0)
    assert not np.array_equal(before, model.weights[0])


@pytest.mark.slow
def test_columns_work_inside_of_jit() -> None:
    column = fc.indicator_column(fc.crossed_column(["n", fc.bucketized_column(fc.numeric_column("v"), [1.0])], 50))
    layer = fc.DenseFeatures([column, fc.indicator_column(fc.categorical_column_with_vocabulary_list("n", [1, 2]))])
    features = {"n": jnp.asarray(FEATURES["n"]), "v": jnp.asarray(FEATURES["v"])}
    layer(features)
    np.testing.assert_array_equal(jax.jit(layer)(features), layer(features))


def test_columns_of_categories_need_wrapping() -> None:
    with pytest.raises(
        ArgumentError, match=r"Received: a, which gives categories.*indicator_column or embedding_column"
    ):
        fc.DenseFeatures([_WORDS])


def test_batches_of_different_sizes() -> None:
    with pytest.raises(ArgumentError, match=r"as many examples.*'n': 2, 'v': 4"):
        numbers([fc.numeric_column("v"), fc.numeric_column("n")], {**FEATURES, "n": np.ones(2)})


@pytest.mark.parametrize("columns", [[], {"a": _WORDS}, 3, [3], [fc.numeric_column("v"), fc.numeric_column("v")]])
def test_columns_are_a_list_of_columns_of_different_names(columns: Any) -> None:
    with pytest.raises(ArgumentError):
        fc.DenseFeatures(columns)


def test_shared_embeddings_and_functions_need_a_model_fn() -> None:
    with pytest.raises(StartupOrderError, match="inside of a model_fn"):
        numbers(fc.shared_embeddings([_WORDS], 2))
    with pytest.raises(UnsupportedError, match="no collections"):
        fc.input_layer(FEATURES, [fc.numeric_column("v")], weight_collections=["mine"])  # pyright: ignore[reportArgumentType]


def test_text_may_be_str_or_bytes() -> None:
    features = {"a": text(b"yy", "x", "")}
    assert numbers(fc.indicator_column(_WORDS), features).tolist() == [[0, 1], [1, 0], [0, 0]]
