"""What columns are before they see any feature: names, equality, arguments, how to parse their features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lockstep.estimator.feature_column as fc
from lockstep.data._example.features import FixedLenFeature, VarLenFeature
from lockstep.errors import ArgumentError, UnsupportedError

_AGE = fc.numeric_column("age")
_WORDS = fc.categorical_column_with_vocabulary_list("w", ["a", "b"])
_MAKERS: list[Callable[[], Any]] = [
    lambda: fc.numeric_column("age", shape=[2], default_value=[1, 2]),
    lambda: fc.bucketized_column(fc.numeric_column("age"), [1, 2]),
    lambda: fc.categorical_column_with_hash_bucket("w", 5),
    lambda: fc.categorical_column_with_identity("w", 5),
    lambda: fc.categorical_column_with_vocabulary_list("w", ["a"]),
    lambda: fc.weighted_categorical_column(fc.categorical_column_with_identity("w", 5), "x"),
    lambda: fc.crossed_column(["a", "b"], 7, hash_key=3),
    lambda: fc.embedding_column(fc.categorical_column_with_identity("w", 5), 3),
    lambda: fc.indicator_column(fc.categorical_column_with_identity("w", 5)),
    lambda: fc.shared_embeddings([fc.categorical_column_with_identity("w", 5)], 3)[0],
]


@pytest.mark.parametrize("make", _MAKERS)
def test_columns_that_say_the_same_are_equal_and_cannot_be_changed(make: Callable[[], Any]) -> None:
    assert make() == make()
    assert hash(make()) == hash(make())
    assert make() != _AGE
    with pytest.raises(AttributeError):
        make().key = "other"


@pytest.mark.parametrize(
    ("column", "name"),
    [
        (_AGE, "age"),
        (fc.bucketized_column(_AGE, [1]), "age_bucketized"),
        (_WORDS, "w"),
        (fc.weighted_categorical_column(_WORDS, "x"), "w_weighted_by_x"),
        (fc.crossed_column(["w", fc.bucketized_column(_AGE, [1]), "a"], 5), "a_X_age_bucketized_X_w"),
        (fc.crossed_column([fc.crossed_column(["w", "b"], 5), "a"], 5), "a_X_b_X_w"),
        (fc.embedding_column(_WORDS, 2), "w_embedding"),
        (fc.indicator_column(_WORDS), "w_indicator"),
        (fc.shared_embeddings([_WORDS], 2)[0], "w_shared_embedding"),
    ],
)
def test_names_are_those_of_tensorflow(column: Any, name: str) -> None:
    assert column.name == name


def test_how_to_parse_what_columns_need() -> None:
    columns = [
        fc.numeric_column("age", shape=(2,), default_value=3),
        fc.bucketized_column(fc.numeric_column("size", dtype=np.int64), [1]),
        fc.crossed_column(["w", "v"], 5),
        fc.embedding_column(_WORDS, 2),
        fc.indicator_column(fc.weighted_categorical_column(fc.categorical_column_with_identity("id", 3), "x")),
    ]
    assert fc.make_parse_example_spec(columns) == {
        "age": FixedLenFeature((2,), np.float32, (3.0, 3.0)),
        "size": FixedLenFeature((1,), np.int64),
        "w": VarLenFeature("string"),
        "v": VarLenFeature("string"),
        "id": VarLenFeature(np.int64),
        "x": VarLenFeature(np.float32),
    }


def test_one_feature_is_parsed_in_one_way() -> None:
    with pytest.raises(ArgumentError, match=r"in one way.*'age'"):
        fc.make_parse_example_spec([_AGE, fc.numeric_column("age", shape=2)])
    with pytest.raises(ArgumentError, match="columns of lockstep"):
        fc.make_parse_example_spec(["age"])
    with pytest.raises(ArgumentError, match="a feature of their own"):
        fc.make_parse_example_spec([fc.weighted_categorical_column(_WORDS, "w")])


def test_shared_embeddings_are_named_by_all_of_their_columns() -> None:
    other = fc.categorical_column_with_vocabulary_list("v", ["a", "c"])
    columns = fc.shared_embeddings([_WORDS, other], 2)
    assert [column.shared.name for column in columns] == ["v_w_shared_embedding"] * 2
    assert [column.name for column in columns] == ["w_shared_embedding", "v_shared_embedding"]
    assert fc.shared_embeddings([_WORDS], 2, shared_embedding_collection_name="mine")[0].shared.name == "mine"


@pytest.mark.parametrize(
    "make",
    [
        lambda: fc.numeric_column(3),  # pyright: ignore[reportArgumentType]
        lambda: fc.numeric_column("a", shape=0),
        lambda: fc.numeric_column("a", shape=(2.5,)),  # pyright: ignore[reportArgumentType]
        lambda: fc.numeric_column("a", dtype="string"),
        lambda: fc.numeric_column("a", dtype="no type"),
        lambda: fc.numeric_column("a", default_value=[1, 2]),
        lambda: fc.numeric_column("a", default_value="x"),
        lambda: fc.numeric_column("a", dtype=np.int64, default_value=1.5),
        lambda: fc.numeric_column("a", normalizer_fn=3),  # pyright: ignore[reportArgumentType]
        lambda: fc.bucketized_column("age", [1]),
        lambda: fc.bucketized_column(fc.numeric_column("a", shape=(2, 2)), [1]),
        lambda: fc.bucketized_column(_AGE, []),
        lambda: fc.bucketized_column(_AGE, [2, 1]),
        lambda: fc.categorical_column_with_hash_bucket("a", 0),
        lambda: fc.categorical_column_with_hash_bucket("a", 2**31),
        lambda: fc.categorical_column_with_hash_bucket("a", 3, dtype=np.float32),
        lambda: fc.categorical_column_with_identity("a", 3, default_value=3),
        lambda: fc.categorical_column_with_vocabulary_list("a", []),
        lambda: fc.categorical_column_with_vocabulary_list("a", ["x", b"x"]),
        lambda: fc.categorical_column_with_vocabulary_list("a", [1.5]),
        lambda: fc.categorical_column_with_vocabulary_list("a", ["x"], dtype=np.int64),
        lambda: fc.categorical_column_with_vocabulary_list("a", ["x"], default_value=0, num_oov_buckets=1),
        lambda: fc.categorical_column_with_vocabulary_list("a", ["x"], num_oov_buckets=-1),
        lambda: fc.categorical_column_with_vocabulary_file("a", ""),
        lambda: fc.weighted_categorical_column(_AGE, "x"),  # pyright: ignore[reportArgumentType]
        lambda: fc.weighted_categorical_column(_WORDS, "x", dtype="string"),
        lambda: fc.weighted_categorical_column(fc.weighted_categorical_column(_WORDS, "x"), "y"),
        lambda: fc.crossed_column(["a"], 5),
        lambda: fc.crossed_column("ab", 5),
        lambda: fc.crossed_column(["a", "b"], 0),
        lambda: fc.crossed_column(["a", _AGE], 5),  # pyright: ignore[reportArgumentType]
        lambda: fc.crossed_column(["a", fc.categorical_column_with_hash_bucket("b", 5)], 5),
        lambda: fc.crossed_column(["a", fc.weighted_categorical_column(_WORDS, "x")], 5),
        lambda: fc.crossed_column(["a", "b"], 5, hash_key=1.5),  # pyright: ignore[reportArgumentType]
        lambda: fc.embedding_column(_AGE, 2),  # pyright: ignore[reportArgumentType]
        lambda: fc.embedding_column(_WORDS, 0),
        lambda: fc.embedding_column(_WORDS, 2, combiner="max"),
        lambda: fc.embedding_column(_WORDS, 2, initializer="zeros"),  # pyright: ignore[reportArgumentType]
        lambda: fc.embedding_column(_WORDS, 2, ckpt_to_load_from="somewhere"),
        lambda: fc.embedding_column(_WORDS, 2, max_norm=0),
        lambda: fc.indicator_column(_AGE),  # pyright: ignore[reportArgumentType]
        lambda: fc.shared_embeddings([], 2),
        lambda: fc.shared_embeddings([_WORDS, fc.categorical_column_with_identity("i", 2)], 2),
        lambda: fc.shared_embeddings([_WORDS, fc.categorical_column_with_vocabulary_list("v", ["a"])], 2),
    ],
)
def test_wrong_arguments_are_refused_with_what_was_received(make: Callable[[], Any]) -> None:
    with pytest.raises(ArgumentError, match="Received"):
        make()


@pytest.mark.parametrize("name", [name for name in fc.__all__ if name.startswith("sequence")])
def test_columns_of_sequences_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"a call of {name}"):
        getattr(fc, name)("key")
    assert name in (getattr(fc, name).__doc__ or "")
