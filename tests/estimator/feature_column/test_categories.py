"""Categories, as TensorFlow numbers them. The numbers of buckets were computed by TensorFlow 2.15."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep.estimator.feature_column as fc
from lockstep.errors import ArgumentError
from tests.estimator.feature_column.examples import FEATURES, categories, text

_BUCKETS = fc.bucketized_column(fc.numeric_column("v"), [1.0, 2.5])
_IDENTITY = fc.categorical_column_with_identity("id", 3, default_value=2)
_WORDS = fc.categorical_column_with_vocabulary_list("a", ["x", "q"], num_oov_buckets=5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (fc.categorical_column_with_hash_bucket("a", 100), [[70], [97], [], []]),
        (fc.categorical_column_with_hash_bucket("n", 100, dtype=np.int64), [[49], [59], [], [62]]),
        (_WORDS, [[0], [4], [], []]),
        (_IDENTITY, [[0, 1], [1], [], [2, 2]]),
        (_BUCKETS, [[1], [1], [2], [0]]),
        (fc.crossed_column(["a", "n"], 97), [[96], [17], [71], [72]]),
        (fc.crossed_column(["a", _BUCKETS], 97), [[89], [87], [75], [66]]),
        (fc.crossed_column([_BUCKETS, "a"], 97), [[89], [87], [75], [66]]),
        (fc.crossed_column([_IDENTITY, _BUCKETS, "n"], 97), [[1, 16], [79], [], [78, 78]]),
        (fc.crossed_column([_IDENTITY, _BUCKETS], 97, hash_key=12345), [[77, 17], [77], [], [68, 68]]),
        (fc.crossed_column([_WORDS, "n"], 97), [[53], [15], [], []]),
        (fc.crossed_column([fc.crossed_column(["a", _BUCKETS], 7), "n"], 97), [[47], [42], [48], [17]]),
    ],
)
def test_categories_are_those_of_tensorflow(column: Any, expected: list[list[int]]) -> None:
    assert [sorted(row) for row in categories(column)] == [sorted(row) for row in expected]


def test_unknown_words_take_part_in_crossed_columns() -> None:
    known = fc.categorical_column_with_vocabulary_list("a", ["x", "q"])
    assert categories(fc.crossed_column([known, "n"], 97)) == [[53], [40], [], []]


def test_integers_of_a_vocabulary() -> None:
    column = fc.categorical_column_with_vocabulary_list("n", [2, -7, 1], default_value=0)
    assert categories(column) == [[2], [0], [], [1]]
    other = fc.categorical_column_with_vocabulary_list("n", [2, 5])
    assert categories(other) == [[], [0], [], []]


def test_integers_of_a_vocabulary_that_no_feature_can_hold() -> None:
    column = fc.categorical_column_with_vocabulary_list("n", [2**40, 1])
    assert categories(column) == [[1], [], [], []]


def test_unknown_integers_are_put_into_buckets_behind_the_vocabulary() -> None:
    column = fc.categorical_column_with_vocabulary_list("n", [2], num_oov_buckets=100)
    hashed = categories(fc.categorical_column_with_hash_bucket("n", 100, dtype=np.int64))
    assert categories(column) == [[hashed[0][0] + 1], [0], [], [hashed[3][0] + 1]]
    assert column.num_buckets == 101


def test_unsigned_integers_have_no_missing_value() -> None:
    column = fc.categorical_column_with_hash_bucket("u", 10, dtype=np.uint8)
    assert [len(row) for row in categories(column, {"u": np.array([0, 255], np.uint8)})] == [1, 1]


def test_features_of_one_dimension_have_one_value() -> None:
    flat = {key: value[:, 0] for key, value in FEATURES.items()}
    assert categories(_WORDS, flat) == categories(_WORDS)
    assert categories(fc.crossed_column(["a", "n"], 97), flat) == [[96], [17], [71], [72]]


def test_buckets_of_several_numbers_are_told_apart() -> None:
    column = fc.bucketized_column(fc.numeric_column("v", shape=2), [0.0])
    assert categories(column, {"v": np.array([[-1.0, 0.0], [2.0, -3.0]])}) == [[0, 3], [1, 2]]
    assert column.num_buckets == 4


def test_a_file_of_words(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_bytes(b"q\r\nx\nyy\nmore\n")
    whole = fc.categorical_column_with_vocabulary_file("a", path)
    assert whole.num_buckets == 4
    assert categories(whole) == [[1], [2], [], []]
    first = fc.categorical_column_with_vocabulary_file("a", path, vocabulary_size=2, default_value=0)
    assert categories(first) == [[1], [0], [], []]
    others = fc.categorical_column_with_vocabulary_file("a", path, vocabulary_size=1, num_oov_buckets=4)
    assert all(1 <= row[0] <= 4 for row in categories(others)[:2])


def test_a_file_without_a_last_newline_has_a_last_word(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("q\nx")
    assert fc.categorical_column_with_vocabulary_file("a", str(path)).num_buckets == 2


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("x\n")
    column = fc.categorical_column_with_vocabulary_file("a", path)
    assert categories(column)[0] == [0]
    path.write_text("other\nx\n")
    assert categories(fc.categorical_column_with_vocabulary_file("a", path))[0] == [1]


def test_a_file_of_integers(tmp_path: Path) -> None:
    path = tmp_path / "integers.txt"
    path.write_text("2\n1\n")
    assert categories(fc.categorical_column_with_vocabulary_file("n", path, dtype=np.int64)) == [[1], [0], [], []]
    path.write_text("2\none\n")
    with pytest.raises(ArgumentError, match="one in each line"):
        categories(fc.categorical_column_with_vocabulary_file("n", path, dtype=np.int64))


def test_a_compressed_file_of_records(tmp_path: Path) -> None:
    from lockstep.data import TFRecordOptions, TFRecordWriter

    path = tmp_path / "words.tfrecord.gz"
    with TFRecordWriter(str(path), TFRecordOptions(compression_type="GZIP")) as writer:
        for word in (b"q", b"yy", b"x"):
            writer.write(word)
    column = fc.categorical_column_with_vocabulary_file("a", path)
    assert column.file_format == "tfrecord_gzip"
    assert categories(column) == [[2], [1], [], []]


def test_a_file_with_too_few_or_repeated_words(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("q\nx\nq\n")
    with pytest.raises(ArgumentError, match=r"must not exceed the number of words.*4, and 3 words"):
        categories(fc.categorical_column_with_vocabulary_file("a", path, vocabulary_size=4))
    with pytest.raises(ArgumentError, match=r"b'q' in lines 1 and 3"):
        categories(fc.categorical_column_with_vocabulary_file("a", path))
    with pytest.raises(ArgumentError, match="must exist"):
        fc.categorical_column_with_vocabulary_file("a", tmp_path / "none")


def test_weights_belong_to_categories() -> None:
    column = fc.weighted_categorical_column(_IDENTITY, "w")
    features = {**FEATURES, "w": np.array([[1, 2], [3, 0], [0, 0], [4, 5]], np.float64)}
    from lockstep.estimator.feature_column._features import Features

    found = column.ids(Features(features))
    assert found.weights is not None and found.weights.dtype == np.float32
    assert categories(column, features) == categories(_IDENTITY)
    with pytest.raises(ArgumentError, match=r"one weight for each category.*\(4, 1\).*\(4, 2\)"):
        categories(column, {**FEATURES, "w": np.ones(4)})


def test_a_feature_must_be_what_its_column_says() -> None:
    with pytest.raises(ArgumentError, match="dtype text, and numbers as the feature"):
        categories(fc.categorical_column_with_hash_bucket("n", 5))
    with pytest.raises(ArgumentError, match="dtype int64, and text as the feature"):
        categories(fc.categorical_column_with_vocabulary_list("a", [1]))
    with pytest.raises(ArgumentError, match=r"takes integers.*'v': float32"):
        categories(fc.categorical_column_with_identity("v", 3))


def test_a_missing_feature_is_named_with_those_that_there_are() -> None:
    with pytest.raises(ArgumentError, match="no 'z'; there are: a, id, n, v"):
        categories(fc.categorical_column_with_hash_bucket("z", 5))
    with pytest.raises(ArgumentError, match="a scalar"):
        categories(fc.categorical_column_with_hash_bucket("a", 5), {"a": text("x")[0]})
    with pytest.raises(ArgumentError, match="features as a dict"):
        categories(_WORDS, [1, 2])  # pyright: ignore[reportArgumentType]


def test_sparse_features_are_refused_with_what_to_do() -> None:
    from lockstep.data._example.features import to_sparse

    values = to_sparse(np.array([1, 2]), np.array([1, 1]))
    with pytest.raises(ArgumentError, match=r"to_dense\(-1\)"):
        categories(fc.categorical_column_with_identity("n", 5), {"n": values})
