"""What a replica's function can ask and do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lockstep as ls
from lockstep.errors import ArgumentError
from tests.distribute.loops import context

distribute = ls.distribute


@pytest.fixture(scope="module")
def strategy() -> Any:
    return distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def values(strategy: Any, *arrays: Any) -> Any:
    return strategy.experimental_distribute_values_from_function(lambda c: arrays[c.replica_id_in_sync_group])


def seen(value: Any) -> list[Any]:
    return [np.asarray(v).tolist() for v in value.values]


def test_contexts(strategy: Any) -> None:
    """As TensorFlow says: a scope is cross-replica, a replica's function is not, and outside is the default one."""
    default = distribute.get_replica_context()
    assert default is not None and default.strategy is distribute.get_strategy()
    assert (default.num_replicas_in_sync, default.replica_id_in_sync_group) == (1, 0)
    assert not distribute.in_cross_replica_context() and not distribute.has_strategy()
    with strategy.scope():
        assert distribute.get_replica_context() is None and distribute.in_cross_replica_context()
    told: list[Any] = []

    def function() -> Any:
        told.append((distribute.get_strategy(), context().strategy, context().num_replicas_in_sync))
        told.append((distribute.in_cross_replica_context(), distribute.has_strategy()))
        return context().replica_id_in_sync_group

    for _ in range(2):
        with strategy.scope():
            assert seen(strategy.run(function)) == [0, 1]
    assert told == [(strategy, strategy, 2), (False, True)]
    assert distribute.get_replica_context() is not None


def test_the_default_replica_is_alone() -> None:
    default = context()
    assert float(default.all_reduce("MEAN", np.int32(3))) == 3
    assert default.all_gather(np.arange(2), axis=-1).tolist() == [0, 1]
    seen = default.merge_call(lambda s, x: (s, x, distribute.in_cross_replica_context()), args=(1,))
    assert seen == (distribute.get_strategy(), 1, True)
    assert default.average_gradients({"a": jnp.ones(2)})["a"].tolist() == [1, 1]


def test_reductions_of_structures(strategy: Any) -> None:
    def function(x: Any) -> Any:
        both = {"x": x, "rest": [x.astype("int32"), 2.0]}
        return context().all_reduce(distribute.ReduceOp.SUM, both), context().all_reduce("mean", both)

    summed, mean = strategy.run(function, args=(values(strategy, np.float32([1, 2]), np.float32([4, 5])),))
    assert jax.tree.map(lambda v: np.asarray(v).tolist(), summed) == {"x": [5, 7], "rest": [[5, 7], 4]}
    assert jax.tree.map(lambda v: np.asarray(v).tolist(), mean) == {"x": [2.5, 3.5], "rest": [[2.5, 3.5], 2]}
    assert summed["rest"][0].dtype == "int32" and mean["rest"][0].dtype == "float32"


# Of l_r = sum_i (r + 1) y_i with y = all_reduce(x^2), x_0 = [1, 2], x_1 = [4, 5]: TensorFlow 2.15 gives these.
GRADIENTS = {"SUM": [[6, 12], [24, 30]], "MEAN": [[3, 6], [12, 15]]}


@pytest.mark.slow
@pytest.mark.parametrize("op", GRADIENTS)
@pytest.mark.parametrize(
    "options",
    [None, distribute.CommunicationOptions(bytes_per_pack=4), distribute.CommunicationOptions(implementation="RING")],
    ids=["default", "packs", "ring"],
)
def test_gradients_through_all_reduce(strategy: Any, op: str, options: Any) -> None:
    def function(x: Any) -> Any:
        weight = context().replica_id_in_sync_group + 1.0
        return jax.grad(lambda v: (context().all_reduce(op, v**2, options) * weight).sum())(x)

    own = values(strategy, np.float32([1, 2]), np.float32([4, 5]))
    for run in (strategy.run, strategy.experimental_run_for_debugging):
        assert seen(run(function, args=(own,))) == GRADIENTS[op]


@pytest.mark.slow
def test_gradients_through_all_gather(strategy: Any) -> None:
    """TensorFlow 2.15's: [[3, 6], [9, 12]]."""

    def function(x: Any) -> Any:
        weights = jnp.arange(1.0, 5.0) * (context().replica_id_in_sync_group + 1)
        return jax.grad(lambda v: (context().all_gather(v, axis=0) * weights).sum())(x)

    own = values(strategy, np.float32([1, 2]), np.float32([4, 5]))
    for run in (strategy.run, strategy.experimental_run_for_debugging):
        assert seen(run(function, args=(own,))) == [[3, 6], [9, 12]]


@pytest.mark.slow
def test_gradients_are_those_of_the_whole(strategy: Any) -> None:
    """A loss of sums over replicas, against differences of the same loss of one device."""

    def loss(x: Any, reduce: Any) -> Any:
        return jnp.sin(reduce((x**3).sum())) + reduce(jnp.cos(x).sum()) ** 2

    x = np.linspace(0.1, 0.8, 4, dtype="float32")
    own = values(strategy, x[:2], x[2:])
    # Each replica has the loss, so its gradient by its part comes from each of them.
    found = strategy.run(
        lambda v: jax.grad(lambda v: loss(v, lambda t: context().all_reduce("sum", t)))(v) / 2, args=(own,)
    )
    exact = jax.grad(lambda v: loss(v, lambda t: t))(x)
    differences = [
        (loss(x + d, lambda t: t) - loss(x - d, lambda t: t)) / 0.02 for d in np.eye(4, dtype="float32") * 0.01
    ]
    np.testing.assert_allclose(np.concatenate(found.values), exact, rtol=1e-5)
    np.testing.assert_allclose(np.concatenate(found.values), differences, rtol=1e-2)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gathered_along_any_axis(strategy: Any, axis: int) -> None:
    parts = [np.arange(4.0).reshape(2, 2), 10 + np.arange(4.0).reshape(2, 2)]
    found = strategy.run(lambda x: context().all_gather({"x": x}, axis)["x"], args=(values(strategy, *parts),))
    np.testing.assert_array_equal(found, np.concatenate(parts, axis))


def test_merge_call(strategy: Any) -> None:
    """It sees all replicas, in cross-replica context, and all get what it returns."""

    def merged(one: Any, x: Any, rows: Any, *, scale: float) -> Any:
        assert one is strategy and distribute.get_replica_context() is None
        assert distribute.in_cross_replica_context()
        total = one.reduce("SUM", x, axis=None)
        return {"total": total, "mean": one.reduce("MEAN", rows, axis=0), "all": one.gather(rows, axis=0), "own": x}

    def function(x: Any) -> Any:
        return context().merge_call(merged, args=(x, x[None]), kwargs={"scale": 2.0})

    own = values(strategy, np.float32(1), np.float32(4))
    for run in (strategy.run, strategy.experimental_run_for_debugging):
        found = run(function, args=(own,))
        assert (float(found["total"]), float(found["mean"])) == (5, 2.5)
        assert found["all"].tolist() == [1, 4] and seen(found["own"]) == [1, 4]


def test_average_gradients_counts_examples(strategy: Any) -> None:
    """The mean over 5 examples, of which one replica has 3 and the other 2; and over 1, of which one has none."""
    for rows in (5, 1):
        (batch,) = strategy.experimental_distribute_dataset(ls.data.Dataset.range(rows).batch(8))
        for run in (strategy.run, strategy.experimental_run_for_debugging):
            found = run(lambda x: context().average_gradients({"a": x.astype("float32").mean()}), args=(batch,))
            np.testing.assert_allclose(found["a"], (rows - 1) / 2, rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda x: context().all_reduce("MAX", x), "must be SUM or MEAN"),
        (lambda x: context().all_reduce("SUM", x > 0), "Booleans have no sum"),
        (lambda x: context().all_reduce("SUM", "text"), "reduce numbers. Received: 'text'"),
        (lambda x: context().all_gather(x, axis=1), "Received: axis=1"),
        (lambda x: context().all_reduce("SUM", x, "RING"), "must be a CommunicationOptions"),
        (
            lambda x: context().all_reduce("SUM", x, distribute.CommunicationOptions(gradient_dtype="bfloat16")),
            "call average_gradients",
        ),
        (lambda x: context().average_gradients(x.astype("int32")), "Gradients are floats"),
        (lambda x: context().merge_call(lambda s, v: v.values, args=(x,)), "Use strategy.reduce or strategy.gather"),
    ],
    ids=lambda v: v[:20] if isinstance(v, str) else "",
)
def test_what_cannot_be_is_refused(strategy: Any, function: Any, told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        strategy.run(function, args=(np.ones(2, "float32"),))
