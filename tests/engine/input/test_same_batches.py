"""Every source of data on several workers: one worker's global batches, or an error that names what differs."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.engine.input.same_cases import EPOCHS
from tests.support.cluster import Cluster, shared

_READ = "tests.engine.input.same_cases:read"
_PHRASE = "each worker passes all data; lockstep divides it"

alone = shared(1)
pair = shared(2)
three = shared(3)

KINDS = [
    *("arrays", "arrays of jax", "dataset", "mapped dataset", "cached dataset", "generated dataset"),
    *("PyDataset", "PyDataset with threads", "grain", "generator", "iterable"),
]
# Where nobody knows the number of rows beforehand, the data end early for all, with a warning.
_KNOW_THEIR_ROWS = ("arrays", "arrays of jax", "dataset", "mapped dataset", "cached dataset")
ODD = ["none", "none", "values", "one batch", "labels", "dtype", "shape", "sample_weight", "batch size", "rows"]


def _global_batches(results: list[dict[str, Any]]) -> list[list[int]]:
    """The examples of each global batch, from what each worker has of it."""
    found = [json.loads(str(r["seen"])) for r in results]
    assert len({len(f) for f in found}) == 1, "the same number of steps on all workers"
    return [_batch(step) for step in zip(*found, strict=True)]


def _batch(step: Any) -> list[int]:
    if any(is_share for is_share, _ in step):
        return list(chain.from_iterable(numbers for _, numbers in step))
    assert all(numbers == step[0][1] for _, numbers in step), "workers train shares of different batches"
    return step[0][1]


def _check(alone: Cluster, workers: Cluster, odd: str, **case: Any) -> None:
    found = workers.run(_READ, odd=odd, **case)
    errors = {str(r["error"]) for r in found}
    if errors != {""}:
        (error,) = errors
        assert error.startswith("MismatchError") and "worker" in error and _PHRASE in error, error
        assert odd != "none" or case["order"] == "own", error
        return
    (expected,) = alone.run(_READ, odd="none", **case)
    assert str(expected["error"]) == ""
    assert _global_batches(found) == _global_batches([expected])
    assert odd == "none", "a difference that nobody noticed"


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(KINDS),
    order=st.sampled_from(["none", "global", "own"]),
    workers=st.sampled_from([2, 3]),
    rows=st.integers(1, 40),
    size=st.integers(1, 9),
    odd=st.sampled_from(ODD),
    looks=st.booleans(),
)
def test_the_batches_of_one_worker_or_an_error(
    alone: Cluster,
    pair: Cluster,
    three: Cluster,
    kind: str,
    order: str,
    workers: int,
    rows: int,
    size: int,
    odd: str,
    looks: bool,
) -> None:
    # Two batch sizes, or orders, may be one for few rows.
    assume(odd != "batch size" or rows > size + 1)
    assume(odd != "labels" or rows > 1)
    assume(odd != "rows" or (kind in _KNOW_THEIR_ROWS and rows > 1))
    case = {"kind": kind, "order": order, "rows": rows, "size": size, "looks": looks}
    _check(alone, pair if workers == 2 else three, odd, **case)


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_all_is_the_chiefs(alone: Cluster, pair: Cluster, kind: str, looks: bool) -> None:
    """More batches than a PyDataset's queue has room for."""
    case = {"kind": kind, "order": "global", "rows": 120, "size": 4, "looks": looks}
    (expected,) = alone.run(_READ, odd="none", **case)
    found = pair.run(_READ, odd="none", **case)
    assert {str(r["error"]) for r in found} == {""}
    batches = _global_batches(found)
    assert batches == _global_batches([expected])
    assert len(batches) == EPOCHS * 30
    assert (batches[:30] != batches[30:]) == (kind != "grain")  # Its seed was given, for all epochs.
