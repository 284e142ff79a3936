"""What the tasks say of themselves is compared, and the odd one out is named."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep._engine.runtime.fingerprint import first_difference
from tests.engine.runtime.properties import steady

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def names(count: int) -> list[str]:
    return [f"worker {i}" for i in range(count)]


@steady
@given(JSON, st.integers(1, 5))
def test_equal_values_have_no_difference(value: Any, count: int) -> None:
    assert first_difference([copy.deepcopy(value) for _ in range(count)], names(count)) is None


@steady
@given(st.lists(JSON, min_size=1, max_size=4))
def test_a_difference_is_found_exactly_where_there_is_one(values: list[Any]) -> None:
    found = first_difference(values, names(len(values)))
    assert (found is None) == (len({json.dumps(v, sort_keys=True) for v in values}) == 1)


@steady
@given(JSON, JSON, st.integers(3, 6), st.data())
def test_the_odd_task_is_named(usual: Any, other: Any, count: int, data: st.DataObject) -> None:
    odd = data.draw(st.integers(0, count - 1))
    values = [other if i == odd else usual for i in range(count)]
    found = first_difference(values, names(count))
    if json.dumps(usual, sort_keys=True) == json.dumps(other, sort_keys=True):
        assert found is None
    else:
        assert found is not None
        assert found.startswith(f"worker {odd}: ")
        assert found.endswith(f" on worker {1 if odd == 0 else 0}")


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (1, 2, "worker 1: value is 2, but 1 on worker 0"),
        (1, 1.0, "worker 1: value is 1.0, but 1 on worker 0"),
        (1, True, "worker 1: value is true, but 1 on worker 0"),
        (None, [], "worker 1: value is [], but None on worker 0"),
        ({"a": None}, {}, "worker 1: a is absent, but None on worker 0"),
        ({}, {"a": None}, "worker 1: a is None, but absent on worker 0"),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "worker 1: a['b'][1] is 3, but 2 on worker 0"),
        ({"a": [1]}, {"a": [1, 2]}, "worker 1: a is [1, 2], but [1] on worker 0"),
        ({"a": {"b": 1}}, {"a": 1}, 'worker 1: a is 1, but {"b": 1} on worker 0'),
    ],
)
def test_the_message_has_path_and_both_values(first: Any, second: Any, told: str) -> None:
    assert first_difference([first, second], names(2)) == told


def test_the_majority_is_right() -> None:
    assert first_difference([1, 2, 2, 3], names(4)) == "worker 0, worker 3: value is 1, but 2 on worker 1"


def test_a_value_that_came_as_json_equals_the_one_that_did_not() -> None:
    own = {"worker": {0: "a:1", 2: "b:1"}, "shape": (1, 2)}
    assert first_difference([own, json.loads(json.dumps(own))], names(2)) is None
    told = json.loads(json.dumps({**own, "shape": (1, 3)}))
    assert first_difference([own, told], names(2)) == "worker 1: shape[1] is 3, but 2 on worker 0"


def test_long_values_are_cut() -> None:
    found = first_difference(["x" * 1000, "y"], names(2))
    assert found is not None
    assert len(found) < 300
    assert "xxx... on worker 0" in found
