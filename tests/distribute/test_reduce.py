"""reduce and gather are what numpy makes of the replicas' values."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstep as ls
from lockstep.errors import ArgumentError
from tests.distribute.loops import context

distribute = ls.distribute
STRATEGY = distribute.MirroredStrategy(["/cpu:0", "/cpu:1", "/cpu:2"])
TYPES = ["float32", "int32", "uint8", "bfloat16", "complex64", "bool"]


def values(*arrays: Any) -> Any:
    return STRATEGY.experimental_distribute_values_from_function(lambda c: arrays[c.replica_id_in_sync_group])


def _arrays(sizes: list[int], rest: tuple[int, ...], axis: int, dtype: str) -> list[np.ndarray]:
    """Small whole numbers, so that sums are exact in any order."""
    rng = np.random.default_rng(sum(sizes))
    shapes = [(*rest[:axis], size, *rest[axis:]) for size in sizes]
    return [rng.integers(0, 3, shape).astype(jnp.dtype(dtype)) for shape in shapes]


SIZES = st.lists(st.integers(0, 3), min_size=3, max_size=3)
REST = st.sampled_from([(), (2,), (2, 1)])


@pytest.mark.slow
@given(SIZES, REST, st.data(), st.sampled_from(TYPES))
@settings(max_examples=15)
def test_gather(sizes: list[int], rest: tuple[int, ...], data: Any, dtype: str) -> None:
    axis = data.draw(st.integers(0, len(rest)))
    arrays = _arrays(sizes, rest, axis, dtype)
    counted = axis - len(rest) - 1 if data.draw(st.booleans()) else axis
    found = STRATEGY.gather({"a": [values(*arrays)]}, axis=counted)["a"][0]
    assert found.dtype == arrays[0].dtype
    np.testing.assert_array_equal(found, np.concatenate(arrays, axis))


@pytest.mark.slow
@given(SIZES, REST, st.data(), st.sampled_from(TYPES[:-1]), st.sampled_from(["SUM", "mean"]))
@settings(max_examples=15)
def test_reduce_along_an_axis(sizes: list[int], rest: tuple[int, ...], data: Any, dtype: str, how: str) -> None:
    axis = data.draw(st.integers(0, len(rest)))
    arrays = _arrays(sizes, rest, axis, dtype)
    if not sum(sizes):
        return
    found = STRATEGY.reduce(how, (values(*arrays),), axis=axis)[0]
    whole = np.concatenate([a.astype("complex64") for a in arrays], axis)
    expected = whole.sum(axis) if how == "SUM" else whole.mean(axis)
    np.testing.assert_allclose(
        np.asarray(found).astype("complex64"), expected, rtol=1e-2 if dtype == "bfloat16" else 1e-6
    )


@pytest.mark.parametrize("dtype", TYPES[:-1])
def test_reduce_element_by_element(dtype: str) -> None:
    arrays = _arrays([2, 2, 2], (3,), 0, dtype)
    summed, mean = (STRATEGY.reduce(op, values(*arrays), axis=None) for op in distribute.ReduceOp)
    assert summed.dtype == arrays[0].dtype and jnp.issubdtype(mean.dtype, jnp.inexact)
    exact = sum(a.astype("complex64") for a in arrays)
    np.testing.assert_array_equal(np.asarray(summed).astype("complex64"), exact)
    np.testing.assert_allclose(np.asarray(mean).astype("complex64"), exact / 3, rtol=1e-2)


def test_what_all_replicas_have_counts_for_each() -> None:
    """As if each had returned it, which it has."""
    one = STRATEGY.run(lambda: jnp.arange(3.0))
    assert STRATEGY.reduce("SUM", one, axis=None).tolist() == [0, 3, 6]
    assert STRATEGY.reduce("MEAN", one, axis=None).tolist() == [0, 1, 2]
    assert (float(STRATEGY.reduce("SUM", one, axis=0)), float(STRATEGY.reduce("MEAN", one, axis=0))) == (9, 1)
    assert STRATEGY.gather(one, axis=0).tolist() == [0, 1, 2] * 3
    # As in TensorFlow: of what is not known to be each replica's, there is one.
    assert float(STRATEGY.reduce("MEAN", 3.0, axis=None)) == 3
    assert float(STRATEGY.reduce("SUM", np.arange(3), axis=0)) == 3
    assert STRATEGY.gather(np.arange(2), axis=0).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: STRATEGY.reduce("SUM", 3.0, axis=None), "needs a value of each"),
        (lambda: STRATEGY.reduce("SUM", None, axis=None), "reduce numbers. Received: None"),
        (lambda: STRATEGY.reduce("MAX", values(1, 2, 3), axis=None), "must be SUM or MEAN. Received: 'MAX'"),
        (lambda: STRATEGY.reduce("SUM", values(True, False, True), axis=None), "Booleans have no sum.*Cast it"),
        (
            lambda: STRATEGY.reduce("SUM", values(*map(np.ones, (1, 2, 3))), axis=None),
            r"one shape\. Received: \[\(1,\)",
        ),
        (lambda: STRATEGY.reduce("SUM", values(1, 2, 3), axis=0), "value's 0 dimensions.*value\\[None\\]"),
        (lambda: STRATEGY.reduce("SUM", values(*map(np.ones, (1, 1, 1))), axis=1), "Received: axis=1"),
        (lambda: STRATEGY.reduce("SUM", values(*map(np.ones, (1, 1, 1))), axis=0.0), "must be an integer, or None"),
        (lambda: STRATEGY.gather(values(1, 2, 3), axis=0), "value's 0 dimensions"),
        (lambda: STRATEGY.gather(values(*[np.ones((1, i)) for i in (1, 2, 3)]), axis=0), "except along axis 0"),
        (
            lambda: STRATEGY.experimental_distribute_values_from_function(lambda c: [1] * c.replica_id_in_sync_group),
            "same structure",
        ),
    ],
    ids=lambda v: v[:20] if isinstance(v, str) else "",
)
def test_what_cannot_be_is_refused(call: Any, told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        call()


def test_results_go_into_the_next_call() -> None:
    total = STRATEGY.reduce("SUM", values(*map(np.float32, (1, 2, 3))), axis=None)
    assert float(STRATEGY.run(lambda t: context().all_reduce("mean", t), args=(total,))) == 6
