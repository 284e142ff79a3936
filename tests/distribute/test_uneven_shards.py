"""Shards of different sizes: what depends on a shard's shape alone is each replica's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstep as ls
import lockstep.compat.tensorflow as tf
from lockstep.distribute import PerReplica
from lockstep.errors import ArgumentError
from tests.distribute.loops import context

STRATEGIES = {n: ls.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(n)]) for n in (2, 3)}
TWO = STRATEGIES[2]


def batches(strategy: Any, values: np.ndarray, size: int) -> list[Any]:
    dataset = ls.data.Dataset.from_tensor_slices(values).batch(size)
    return list(strategy.experimental_distribute_dataset(dataset))


def total(function: Callable[[Any], Any], reduce_op: str = "sum") -> float:
    """Of 5 examples, in batches of 3 on 2 replicas: shards of 2 and 1, then of 1 and 1."""
    found = [TWO.run(function, args=(b,)) for b in batches(TWO, np.arange(5, dtype="float32"), 3)]
    return sum(float(TWO.reduce(reduce_op, value, axis=None)) for value in found)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.float32(x.shape[0]),
        lambda x: tf.shape(x)[0],
        lambda x: tf.size(x),
        lambda x: tf.reduce_sum(tf.ones_like(x)),
        lambda x: jnp.zeros(x.shape).at[:].set(1).sum(),
        lambda x: context().all_reduce("mean", tf.shape(x)[0]),
        lambda x: context().all_gather(tf.zeros_like(x), axis=0).shape[0] / jnp.float32(2),
    ],
    ids=["rows", "tf.shape", "tf.size", "tf.ones_like", "zeros", "all_reduce", "all_gather"],
)
def test_examples_are_counted_once(function: Callable[[Any], Any]) -> None:
    assert total(function) == 5


def test_what_is_gathered_has_a_row_for_each_example() -> None:
    first, second = batches(TWO, np.arange(5, dtype="float32"), 3)
    assert [len(TWO.gather(TWO.run(tf.zeros_like, args=(b,)), axis=0)) for b in (first, second)] == [3, 2]


@pytest.mark.parametrize(("aggregation", "expected"), [("mean", 1.5), ("sum", 3), ("only_first_replica", 2)])
def test_variables_combine_what_depends_on_the_size(aggregation: str, expected: float) -> None:
    v = keras.Variable(0.0, aggregation=aggregation)
    TWO.run(lambda x: v.assign(float(x.shape[0])), args=(batches(TWO, np.ones(3), 3)[0],))
    assert float(v.value) == expected


def test_a_variable_without_aggregation_refuses_it() -> None:
    v = keras.Variable(0.0)
    with pytest.raises(ArgumentError, match="same value from all"):
        TWO.run(lambda x: v.assign(float(x.shape[0])), args=(batches(TWO, np.ones(3), 3)[0],))


def test_numbers_and_text_of_python_are_each_replicas_where_they_differ() -> None:
    uneven, even = batches(TWO, np.ones(5), 3)
    for run in (TWO.run, TWO.experimental_run_for_debugging):
        found = run(lambda x: {"rows": x.shape[0], "text": str(x.shape), "same": 7}, args=(uneven,))
        assert isinstance(found["rows"], PerReplica) and int(TWO.reduce("sum", found["rows"], axis=None)) == 3
        assert found["text"].values == ("(2,)", "(1,)") and found["same"] == 7
        assert run(lambda x: x.shape[0], args=(even,)) == 1


def test_gradients_of_the_size_are_added_up_where_it_differs() -> None:
    """Those of equal shards are equal on all replicas; this does not decide for uneven ones."""
    w, optimizer = keras.Variable(0.0), keras.optimizers.SGD(1.0)
    optimizer.build([w])
    even, uneven = batches(TWO, np.ones(4), 4)[0], batches(TWO, np.ones(3), 3)[0]

    def step(x: Any) -> None:
        optimizer.apply([jnp.float32(x.shape[0])], [w])

    for batch, expected in ((even, -2), (uneven, -5), (even, -7)):
        TWO.run(step, args=(batch,))
        assert float(w.value) == expected


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, a, b: a.assign_add(1.0) if len(x) > 1 else b.assign_add(1.0), "assign the same.*replica 1"),
        (lambda x, a, b: {"a": x.sum()} if len(x) > 1 else {"b": x.sum()}, "same structure"),
        (lambda x, a, b: x.sum() if len(x) > 1 else 3, "return the same"),
        (lambda x, a, b: a if len(x) > 1 else b, "return the same"),
    ],
    ids=["assigned", "structure", "kind", "variable"],
)
def test_replicas_that_do_different_things_are_refused(function: Any, message: str) -> None:
    a, b = keras.Variable(0.0, name="a"), keras.Variable(0.0, name="b")
    with pytest.raises(ArgumentError, match=message):
        TWO.run(lambda x: function(x, a, b), args=(batches(TWO, np.ones(3), 3)[0],))
    assert (float(a.value), float(b.value)) == (0, 0)


# Expressions of a shard: of its shape, its values, numbers, and what all replicas have together.
LEAVES = st.sampled_from(["rows", "size", "ones", "sum", "two"])
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["add", "times"]), inner, inner),
        st.tuples(st.sampled_from(["all sum", "all mean"]), inner),
    ),
    max_leaves=4,
)


def on_replica(expression: Any, x: Any) -> Any:
    """The expression, as the function of a replica computes it."""
    if isinstance(expression, str):
        return {
            "rows": lambda: jnp.asarray(x.shape[0], "float32"),
            "size": lambda: tf.cast(tf.size(x), tf.float32),
            "ones": lambda: tf.reduce_sum(tf.ones_like(x)),
            "sum": lambda: x.sum(),
            "two": lambda: jnp.float32(2),
        }[expression]()
    how, *parts = expression
    found = [on_replica(part, x) for part in parts]
    if how in ("add", "times"):
        return found[0] + found[1] if how == "add" else found[0] * found[1]
    return context().all_reduce(how.split()[-1], found[0])


def on_all(expression: Any, shards: list[np.ndarray]) -> np.ndarray:
    """The expression's value on each replica, one replica after the other."""
    if isinstance(expression, str):
        one = {"rows": len, "size": np.size, "ones": np.size, "sum": np.sum, "two": lambda x: 2}[expression]
        return np.array([one(x) for x in shards], "float64")
    how, *parts = expression
    found = [on_all(part, shards) for part in parts]
    if how in ("add", "times"):
        return found[0] + found[1] if how == "add" else found[0] * found[1]
    return np.full(len(shards), found[0].sum() if how == "all sum" else found[0].mean())


@pytest.mark.slow
@given(st.sampled_from(sorted(STRATEGIES)), st.integers(1, 7), EXPRESSIONS, st.sampled_from(["sum", "mean"]))
@settings(max_examples=40)
def test_any_function_is_each_replicas_own(count: int, rows: int, expression: Any, reduce_op: str) -> None:
    strategy, x = STRATEGIES[count], np.arange(1.0, rows + 1, dtype="float32")
    each = -(-rows // count)
    expected = on_all(expression, [x[i * each : (i + 1) * each] for i in range(count)])
    v = keras.Variable(0.0, aggregation="mean")

    def function(shard: Any) -> Any:
        found = on_replica(expression, shard)
        v.assign(found)
        return found, tf.zeros_like(shard) + found, v

    own, like, returned = strategy.run(function, args=(batches(strategy, x, rows)[0],))
    reduced = expected.sum() if reduce_op == "sum" else expected.mean()
    np.testing.assert_allclose(float(strategy.reduce(reduce_op, own, axis=None)), reduced, rtol=1e-5)
    sizes = [len(x[i * each : (i + 1) * each]) for i in range(count)]
    np.testing.assert_allclose(strategy.gather(like, axis=0), np.repeat(expected, sizes), rtol=1e-5)
    np.testing.assert_allclose([float(v.value), float(returned)], expected.mean(), rtol=1e-5)
