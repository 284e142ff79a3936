"""Sums of a ticket's shares."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep._engine.servers.layout import Variable
from lockstep._engine.servers.requests import Push
from lockstep._engine.servers.shares import Sum, rows_of_sum, sum_of


def push(share: int, weight: float, difference: np.ndarray) -> Push:
    return Push(0, 0, share, weight, delta={"v": difference})


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "float64"])
@pytest.mark.parametrize("replicas", [2, 3, 7])
def test_what_all_shares_have_alike_is_their_sum(dtype: str, replicas: int) -> None:
    difference = np.array([1, 0, 250], dtype)
    total = sum_of([push(i, 1 / replicas, difference) for i in range(replicas)]).delta["v"]
    assert total.dtype == difference.dtype
    np.testing.assert_allclose(total, difference, rtol=1e-6)


@pytest.mark.parametrize("known", [[], [3], [7, 2, 5]])
def test_rows_of_a_sum_are_zero_where_nothing_was_pushed(known: list[int]) -> None:
    table = Variable("t", (9, 2), "float32", "rows")
    ids = np.array(known, np.int64)
    total = Sum({"t": (ids, np.repeat(ids, 2).reshape(-1, 2).astype(np.float32))}, {}, {})
    asked = np.array([5, 8, 3, 0])
    expected = [[i if i in known else 0] * 2 for i in asked]
    np.testing.assert_array_equal(rows_of_sum(total, table, asked), expected)
    np.testing.assert_array_equal(rows_of_sum(Sum({}, {}, {}), table, asked), np.zeros((4, 2)))
