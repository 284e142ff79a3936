"""Preprocessing layers against what TensorFlow 2.15.1 gave, and how they are refused, saved and copied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError, InputError, UnsupportedError
from tests.compat.keras.preprocessing_cases import CASES, EXPECTED, plain

RESULTS = json.loads(EXPECTED.read_text())


def assert_close(found: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=2e-4, rel=1e-4)
    else:
        assert found == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted({name.partition("/")[0] for name in CASES}))
def test_results_are_those_of_tensorflow(kind: str) -> None:
    for name, case in CASES.items():
        if name.startswith(f"{kind}/"):
            assert_close(plain(case(tf)), RESULTS[name])


def test_a_vocabulary_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("one\ntwo\n")
    layer = tf.keras.layers.StringLookup(vocabulary=str(path))
    assert layer.get_vocabulary() == ["[UNK]", "one", "two"]
    with pytest.raises(InputError, match="is not there"):
        tf.keras.layers.StringLookup(vocabulary=str(tmp_path / "none.txt"))


def test_a_configuration_makes_the_same_layer() -> None:
    layer = tf.keras.layers.TextVectorization(output_mode="tf_idf")
    layer.adapt(["a b", "b c"])
    copy = tf.keras.layers.TextVectorization.from_config(layer.get_config())
    assert copy.get_vocabulary() == layer.get_vocabulary()
    np.testing.assert_allclose(copy(["a c z"]), layer(["a c z"]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tf.keras.layers.StringLookup(vocabulary=["a", "a"]), "is there once"),
        (lambda: tf.keras.layers.StringLookup(vocabulary=["a", "[UNK]"]), "at another place"),
        (lambda: tf.keras.layers.StringLookup(vocabulary=["a", "b"], max_tokens=2), "at most max_tokens"),
        (lambda: tf.keras.layers.StringLookup(output_mode="ints"), "is one of"),
        (lambda: tf.keras.layers.StringLookup(vocabulary=["a"], num_oov_indices=0)(["b"]), "num_oov_indices=0"),
        (lambda: tf.keras.layers.TextVectorization(split="words"), "split of TextVectorization"),
        (lambda: tf.keras.layers.TextVectorization()([["a", "b"]]), "of shape"),
        (lambda: tf.keras.layers.Hashing(0), "at least 1"),
        (lambda: tf.keras.layers.Hashing(3)(np.ones(2, "float32")), "texts and integers"),
    ],
)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_what_needs_other_tensors_is_refused() -> None:
    for make in (
        lambda: tf.keras.layers.TextVectorization(ragged=True),
        lambda: tf.keras.layers.StringLookup(sparse=True),
        lambda: tf.keras.layers.Hashing(3, sparse=True),
    ):
        with pytest.raises(UnsupportedError, match="was given"):
            make()
