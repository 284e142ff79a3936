"""Functions of characters, n-grams and sets give what TensorFlow 2.15.1 gives, and refuse what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

import lockstep.compat.tensorflow as tf
from tests.compat.test_composite import compare
from tests.compat.text_cases import EXPECTED, cases, written

CASES = cases(tf)
FOUND: dict[str, Any] = json.loads(EXPECTED.read_text())


def test_every_case_has_an_expected_value() -> None:
    assert set(CASES) == set(FOUND)


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    compare(written(tf, CASES[name]()), FOUND[name])


def test_what_is_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be of its encoding"):
        tf.strings.unicode_decode(b"\xff", "UTF-8", errors="strict")
    with pytest.raises(tf.errors.InvalidArgumentError, match="one of UTF-8"):
        tf.strings.unicode_encode([72], "latin1")
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least two dimensions"):
        tf.sets.union([1], [2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="same sizes"):
        tf.sets.union([[1]], [[1], [2]])
    with pytest.raises(TypeError, match="integers or text"):
        tf.sets.union([[1.0]], [[2.0]])
    with pytest.raises(TypeError, match="takes a SparseTensor"):
        tf.sets.size([[1]])
