"""Keras variables that a replica's function reads and assigns: TensorFlow's rules."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstep as ls
import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError, UnsupportedError
from tests.distribute.loops import context

STRATEGY = ls.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
RUNS = [STRATEGY.run, STRATEGY.experimental_run_for_debugging]
BOTH = pytest.mark.parametrize("run", RUNS, ids=["run", "debugging"])


def variable(first: Any = 1.0, aggregation: str = "none", on_read: bool = False, dtype: str = "float32") -> Any:
    how = "on_read" if on_read else "auto"
    return keras.Variable(first, dtype=dtype, trainable=False, aggregation=aggregation, synchronization=how)


def tens() -> Any:
    """10 on the first replica, 20 on the second."""
    return (context().replica_id_in_sync_group + 1) * 10.0


def values(of: Any) -> list[float]:
    return [float(v) for v in STRATEGY.experimental_local_results(of)]


# What TensorFlow 2.15 makes of 1 on two replicas.
ADDED = {"sum": 31, "mean": 16, "only_first_replica": 11}
SET = {"sum": 30, "mean": 15, "only_first_replica": 10}


@BOTH
@pytest.mark.parametrize("aggregation", ADDED)
def test_what_replicas_assign_is_combined(run: Any, aggregation: str) -> None:
    added, taken, put = (variable(aggregation=aggregation) for _ in range(3))

    def function() -> None:
        added.assign_add(tens() - 1)
        added.assign_add(1)
        taken.assign_sub(-tens())
        put.assign(0)
        put.assign_add(tens())

    run(function)
    assert (float(added.value), float(taken.value)) == (ADDED[aggregation],) * 2
    assert float(put.value) == SET[aggregation]


@BOTH
def test_equal_values_need_no_aggregation(run: Any) -> None:
    v, total = variable(), variable(aggregation="sum")

    def function() -> Any:
        v.assign_add(context().all_reduce("sum", tens()))
        total.assign_add(1)
        return v + 0

    assert float(run(function)) == 31 and float(v.value) == 31 and float(total.value) == 3


@BOTH
@pytest.mark.parametrize(("aggregation", "dtype"), [("none", "float32"), ("mean", "int32")])
def test_different_values_need_one(run: Any, aggregation: str, dtype: str) -> None:
    v = variable(1, aggregation, dtype=dtype)
    with pytest.raises(ArgumentError, match=rf"same value from all.*{v.path}.*aggregation is '{aggregation}'"):
        run(lambda: v.assign_add(context().replica_id_in_sync_group))
    assert int(v.value) == 1


@BOTH
def test_merge_call_assigns_for_all(run: Any) -> None:
    v, total = variable(), variable(aggregation="sum")

    def merged(strategy: Any, x: Any) -> None:
        summed = strategy.reduce("SUM", x, axis=None)
        v.assign(getattr(summed, "value", summed))
        total.assign(getattr(summed, "value", summed))

    run(lambda: context().merge_call(merged, args=(jnp.asarray(tens()),)))
    assert (float(v.value), float(total.value)) == (30, 30)


# What cross-replica context reads of [10, 20]; and what replicas have after it has assigned 8.
READ = {"sum": (30, [4, 4]), "mean": (15, [8, 8]), "only_first_replica": (10, [8, 8])}


@BOTH
@pytest.mark.parametrize("aggregation", READ)
def test_each_replica_keeps_its_own(run: Any, aggregation: str) -> None:
    v = variable(0, aggregation, on_read=True)
    own = run(lambda: v.assign_add(tens()))
    read, divided = READ[aggregation]
    assert values(own) == values(v) == [10, 20] and float(v.value) == read
    assert [float(x) for x in STRATEGY.gather(STRATEGY.run(lambda: v[None]), axis=0)] == [10, 20]
    v.assign(8)
    assert values(v) == divided
    run(lambda: v.assign_add(tens()))
    assert values(v) == [divided[0] + 10, divided[1] + 20]


def test_whole_numbers_are_divided_without_loss() -> None:
    v = variable(0, "sum", on_read=True, dtype="int32")
    v.assign(7)
    STRATEGY.run(lambda: v.assign_add(1))
    assert sum(values(v)) == int(v.value) == 9


def test_without_aggregation_there_is_no_one_value() -> None:
    v = variable(0, on_read=True)
    STRATEGY.run(lambda: v.assign(tens()))
    assert values(v) == [10, 20]
    with pytest.raises(ArgumentError, match="needs one value"):
        np.asarray(v.value)


def test_changes_in_between_are_seen() -> None:
    v = variable(1.0, "mean")

    def function() -> Any:
        return v.assign_add(1.0)

    for first in (5.0, 7.0):
        v.assign(first)
        assert float(STRATEGY.run(function)) == first + 1 and float(v.value) == first + 1


@pytest.mark.slow
def test_optimizers_add_gradients_up_once() -> None:
    """Unless they are equal already; and what wraps an optimizer does not add them up again."""

    def trained(gradient: Any, wrapped: bool) -> float:
        v = keras.Variable(0.0)
        optimizer: Any = keras.optimizers.SGD(1.0)
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=1.0) if wrapped else optimizer
        STRATEGY.run(lambda: optimizer.apply([gradient()], [v]))
        STRATEGY.run(lambda: optimizer.apply([gradient()], [v]))
        return float(v.value)

    for wrapped in (False, True):
        assert trained(lambda: jnp.asarray(tens()), wrapped) == -60
        assert trained(lambda: context().average_gradients(jnp.asarray(tens())), wrapped) == -30
        assert trained(lambda: context().all_reduce("sum", jnp.asarray(tens())), wrapped) == -60


def test_replicas_draw_their_own_random_numbers() -> None:
    seeds = keras.random.SeedGenerator(1)
    alone = keras.random.uniform((1,), seed=keras.random.SeedGenerator(1))
    drawn = [STRATEGY.gather(STRATEGY.run(lambda: keras.random.uniform((1,), seed=seeds)), axis=0) for _ in range(2)]
    assert len({float(x) for d in drawn for x in d}) == 4 and float(drawn[0][0]) == float(alone[0])
    assert np.asarray(seeds.state.value).tolist() == [1, 2]


def test_moving_averages_of_batch_normalisation_are_averaged() -> None:
    layer = keras.layers.BatchNormalization(momentum=0.0)
    layer.build((None, 1))
    batch = STRATEGY.experimental_distribute_values_from_function(
        lambda c: jnp.full((2, 1), 1.0 + c.replica_id_in_sync_group)
    )
    STRATEGY.run(lambda x: layer(x, training=True), args=(batch,))
    assert float(layer.moving_mean.value[0]) == 1.5


def test_in_functions_that_are_traced() -> None:
    v, metric = variable(aggregation="sum"), keras.metrics.Mean()
    with pytest.raises(UnsupportedError, match=r"jax\.jit does not know of Keras variables"):
        jax.jit(lambda: STRATEGY.run(lambda: v.assign_add(1.0)))()
    assert float(v.value) == 1

    @jax.jit
    def outer(value: Any) -> Any:
        with keras.StatelessScope([(v, value)]) as scope:
            STRATEGY.run(lambda: v.assign_add(tens()))
            STRATEGY.run(lambda: v.assign_add(tens()))
        return scope.get_current_value(v)

    assert float(outer(5.0)) == 65 and float(v.value) == 1
    with pytest.raises(UnsupportedError, match="Call run outside of it"), keras.StatelessScope():
        STRATEGY.run(lambda: metric.update_state(1.0))


@pytest.mark.slow
@given(st.lists(st.sampled_from(["add", "set", "read"]), min_size=1, max_size=5), st.sampled_from(list(ADDED)))
@settings(max_examples=5)
def test_run_and_debugging_agree(plan: list[str], aggregation: str) -> None:
    def after(run: Any) -> tuple[float, list[float]]:
        shared, own = variable(1.0, aggregation), variable(0.0, aggregation, on_read=True)

        def function() -> Any:
            for step in plan:
                for v in (shared, own):
                    if step != "read":
                        (v.assign if step == "set" else v.assign_add)(tens() + own * 0.5)
            return shared + own

        run(function)
        return float(shared.value), [*values(own), float(STRATEGY.reduce("SUM", run(function), axis=None))]

    one, other = map(after, RUNS)
    assert one == other


@BOTH
def test_a_variable_that_is_returned_has_the_value_after_the_function(run: Any) -> None:
    optimizer, w = keras.optimizers.SGD(0.5), variable()
    optimizer.build([w])
    counted, own, untouched, total = tf.Variable(0.0), variable(0.0), variable(7.0), variable(0.0, "sum")

    def step() -> Any:
        optimizer.apply([context().all_reduce("mean", tens())], [w])
        at_that_place = own.assign_add(0.5)
        own.assign_add(0.5)
        total.assign_add(tens())
        return {"deep": [optimizer.iterations, (untouched,)]}, counted.assign_add(1.0), at_that_place, total

    for i in range(1, 4):
        deep, now, before, summed = run(step)
        assert (int(deep["deep"][0]), float(deep["deep"][1][0])) == (i, 7.0)
        assert (float(now), float(before), float(summed)) == (i, i - 0.5, 30 * i)
        untouched.assign(7.0)
    assert not any(isinstance(v, keras.Variable) for v in jax.tree.leaves((deep, now, summed)))
    untouched.assign(9.0)
    assert float(run(step)[0]["deep"][1][0]) == 9.0


@BOTH
def test_a_variable_of_each_replica_is_returned_as_one_value_for_each(run: Any) -> None:
    for aggregation in ("sum", "none"):
        v = variable(0.0, aggregation, on_read=True)

        def step(v: Any = v) -> Any:
            v.assign_add(tens())
            return v

        assert [values(run(step)) for _ in range(2)] == [[10, 20], [20, 40]]


def test_one_replica_returns_variables_by_their_values() -> None:
    v = tf.Variable(0.0)
    for run in (ls.distribute.get_strategy().run, tf.function(lambda f: STRATEGY.run(f)), STRATEGY.run):
        before = float(v)
        found = [run(lambda: v.assign_add(1.0)) for _ in range(3)]
        assert [float(f) for f in found] == [before + 1, before + 2, before + 3]


def test_functions_of_lockstep_read_variables_anew() -> None:
    v = keras.Variable(1.0)
    double = ls.function(lambda x: {"value": v * x, "itself": v})
    for value in (1.0, 2.0, 5.0):
        v.assign(value)
        found = double(np.float32(2))
        assert float(found["value"]) == 2 * value and float(found["itself"]) == value
    v.assign(0.0)
    assert float(found["itself"]) == 5.0
