"""What columns compute of text goes through JSON, as an export has it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.estimator.feature_column._columns import missing
from lockstep.estimator.feature_column._host import FingerprintHalf, TextBuckets, VocabularyLookup, from_document
from tests.estimator.feature_column.examples import text

_NOTHING = missing(np.int32)


@pytest.mark.parametrize(
    "function",
    [
        TextBuckets(7),
        FingerprintHalf(True),
        FingerprintHalf(False),
        VocabularyLookup([b"a", b"\xff\x00"], 3, 0),
        VocabularyLookup([b"a"], -1, 5),
    ],
)
@given(st.lists(st.binary(max_size=3), min_size=1))
def test_it_is_the_same_after_json(function: Any, texts: list[bytes]) -> None:
    given_texts = text(b"a", b"\xff\x00", b"", *texts)
    again = from_document(json.loads(json.dumps(function.to_json())))
    assert again.to_json() == function.to_json()
    np.testing.assert_array_equal(again(given_texts), function(given_texts))


def test_words_have_their_numbers() -> None:
    assert VocabularyLookup([b"a", b"b"], 9, 0)(text(b"b", b"", b"a", b"c")).tolist() == [1, _NOTHING, 0, 9]
    found = VocabularyLookup([b"a"], -1, 3)(text(*(str(n).encode() for n in range(50)), b"a"))
    assert set(found[:-1].tolist()) == {1, 2, 3}
    assert found[-1] == 0
