"""`strategy.extended.update` of variables of which each replica has its own value, and first values of sums."""

from __future__ import annotations

from typing import Any

import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError

SYNC, HOW = tf.VariableSynchronization, tf.VariableAggregation


@pytest.fixture(name="strategy", scope="module")
def _strategy() -> Any:
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def _variable(strategy: Any, synchronization: str, aggregation: str, value: Any = 3.0) -> Any:
    with strategy.scope():
        return tf.Variable(value, synchronization=synchronization, aggregation=aggregation)


def _values(strategy: Any, variable: Any) -> list[float]:
    return [float(v) for v in strategy.experimental_local_results(variable)]


def _own(strategy: Any) -> Any:
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant([1.0, 2.0])[context.replica_id_in_sync_group]
    )


@pytest.mark.parametrize(
    ("synchronization", "aggregation", "read"),
    [
        (SYNC.ON_READ, HOW.SUM, 25.0),
        (SYNC.ON_READ, HOW.MEAN, 12.5),
        (SYNC.ON_READ, HOW.ONLY_FIRST_REPLICA, 12.0),
        (SYNC.ON_READ, HOW.NONE, None),
        (SYNC.AUTO, HOW.NONE, 12.0),
    ],
)
def test_each_replica_gets_its_own_value(strategy: Any, synchronization: str, aggregation: str, read: Any) -> None:
    variable, own = _variable(strategy, synchronization, aggregation), _own(strategy)
    strategy.extended.update(variable, lambda v, x: v.assign(x), args=(own,))
    assert _values(strategy, variable) == [1.0, 2.0]
    assert [float(v) for v in variable.values] == [1.0, 2.0]
    strategy.extended.update(variable, lambda v, x: v.assign_add(x), args=(own,))
    strategy.extended.update(variable, lambda v, x: v.assign_add(x), args=(10.0,))
    assert _values(strategy, variable) == [12.0, 14.0]
    found = strategy.extended.update(variable, lambda v, x: v.assign_sub(x), args=(own,), group=False)
    assert [float(v) for v in found] == [11.0, 12.0]
    for _ in range(2):  # A new function each time, which meets the values that replicas keep.
        strategy.run(lambda: variable.assign_add(0.5))
    assert _values(strategy, variable) == [12.0, 13.0]
    if read is not None:
        assert float(variable.read_value()) == read


def test_one_value_for_all_is_refused_two(strategy: Any) -> None:
    with pytest.raises(ArgumentError, match="same value of all"):
        strategy.extended.update(
            _variable(strategy, SYNC.AUTO, HOW.MEAN), lambda v, x: v.assign(x), args=(_own(strategy),)
        )


@pytest.mark.parametrize(("value", "read"), [(3.0, 6.0), (5, 10)])
def test_a_sum_begins_with_the_value_on_each_replica(strategy: Any, value: Any, read: Any) -> None:
    variable = _variable(strategy, SYNC.ON_READ, HOW.SUM, value)
    assert variable.read_value().numpy() == read
    assert _values(strategy, variable) == [value, value]
    strategy.run(lambda: variable.assign_add(1))
    assert variable.read_value().numpy() == read + 2
    variable.assign(4 * value)
    assert _values(strategy, variable) == [2 * value, 2 * value]


def test_without_a_strategy_there_is_one_value() -> None:
    variable = tf.Variable(3.0, synchronization=SYNC.ON_READ, aggregation=HOW.SUM)
    assert float(variable.read_value()) == 3.0
    assert not hasattr(variable, "values")


def test_a_variable_of_each_replica_may_be_trained(strategy: Any) -> None:
    with strategy.scope():
        variable = tf.Variable(1.0, synchronization=SYNC.ON_READ, aggregation=HOW.MEAN, trainable=True)
    assert variable.trainable

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = variable * x
        return tape.gradient(loss, variable)

    found = strategy.run(step, args=(_own(strategy),))
    assert [float(v) for v in strategy.experimental_local_results(found)] == [1.0, 2.0]


def _rows() -> Any:
    context: Any = tf.distribute.get_replica_context()
    number = context.replica_id_in_sync_group
    return tf.IndexedSlices(tf.reshape(tf.cast(number + 2, tf.float32), [1]), tf.reshape(number, [1]))


@pytest.mark.parametrize(
    ("method", "aggregation", "expected"),
    [
        ("scatter_mul", HOW.MEAN, [2.0, 9.0, 1.0]),
        ("scatter_mul", HOW.SUM, [4.0, 18.0, 1.0]),
        ("scatter_div", HOW.SUM, [1.0, 2.0, 1.0]),
        ("scatter_add", HOW.SUM, [4.0, 9.0, 1.0]),
        ("scatter_sub", HOW.MEAN, [1.0, 4.5, 1.0]),
        ("scatter_mul", HOW.ONLY_FIRST_REPLICA, [4.0, 6.0, 1.0]),
        ("scatter_max", HOW.ONLY_FIRST_REPLICA, [2.0, 6.0, 1.0]),
    ],
)
def test_rows_of_all_replicas_change_a_variable_once(
    strategy: Any, method: str, aggregation: str, expected: list[float]
) -> None:
    with strategy.scope():
        variable = tf.Variable([2.0, 6.0, 1.0], aggregation=aggregation)
    strategy.run(lambda: getattr(variable, method)(_rows()))
    assert variable.numpy().tolist() == expected


def test_rows_of_several_replicas_are_not_set(strategy: Any) -> None:
    with strategy.scope():
        variable = tf.Variable([2.0, 6.0, 1.0], aggregation=HOW.SUM)
    with pytest.raises(NotImplementedError, match="only_first_replica"):
        strategy.run(lambda: variable.scatter_update(_rows()))
