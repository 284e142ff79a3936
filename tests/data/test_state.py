"""States of data as text."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lockstep.data._plan import decode_state, encode_state

_INTEGERS = hnp.arrays(
    np.int64,
    st.integers(0, 40),
    elements=st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 300) | st.integers(0, 2**33),
)
_LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
_STATES = st.recursive(
    _LEAVES | _INTEGERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(_STATES)
def test_a_state_survives_json(state: object) -> None:
    found = decode_state(json.loads(json.dumps(encode_state(state))))
    np.testing.assert_equal(found, state)
    _same_types(found, state)


@pytest.mark.parametrize(("highest", "size"), [(255, 1), (60_000, 2), (2**31, 4), (2**40, 8)])
def test_integers_take_no_more_text_than_their_values_need(highest: int, size: int) -> None:
    text = json.dumps(encode_state(np.linspace(0, highest, 3000).astype(np.int64)))
    assert 3000 * size < len(text) < 3000 * size * 4 / 3 + 60


def test_a_state_that_an_earlier_version_saved_is_read() -> None:
    saved = {"int64, zlib, base64": "eAFjYIAARijNBKWZoTQLlGaF0gABSAAQ"}
    np.testing.assert_array_equal(decode_state({"places": [saved, 7]})["places"][0], [0, 1, 2, 3, 4, 5])


def _same_types(found: object, state: object) -> None:
    assert type(found) is type(state)
    if isinstance(state, np.ndarray):
        assert isinstance(found, np.ndarray) and found.dtype == state.dtype and found.flags.writeable
