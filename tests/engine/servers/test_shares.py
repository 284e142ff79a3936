"""Sums of a ticket's shares."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep._engine.servers.requests import Push
from lockstep._engine.servers.shares import sum_of


def push(share: int, weight: float, difference: np.ndarray) -> Push:
    return Push(0, 0, share, weight, delta={"v": difference})


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "float64"])
@pytest.mark.parametrize("replicas", [2, 3, 7])
def test_what_all_shares_have_alike_is_their_sum(dtype: str, replicas: int) -> None:
    difference = np.array([1, 0, 250], dtype)
    total = sum_of([push(i, 1 / replicas, difference) for i in range(replicas)]).delta["v"]
    assert total.dtype == difference.dtype
    np.testing.assert_allclose(total, difference, rtol=1e-6)
