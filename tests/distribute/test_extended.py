"""`strategy.extended`, and what else programs for tf.distribute ask of a strategy. Numbers are TensorFlow 2.15's."""

from __future__ import annotations

import numpy as np
import pytest

import lockstep as ls
import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError, StartupOrderError

TWO = ls.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
ONE = ls.distribute.OneDeviceStrategy("cpu:0")


def _number() -> object:
    return tf.distribute.get_replica_context().replica_id_in_sync_group


def test_devices_have_their_full_names() -> None:
    names = ("/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:1")
    assert TWO.extended.worker_devices == TWO.extended.parameter_devices == names
    assert TWO.extended.non_slot_devices([]) == names
    assert TWO.extended.should_checkpoint and TWO.extended.should_save_summary


def test_values_are_reduced_to_any_destination() -> None:
    own, v = TWO.extended.call_for_each_replica(_number), tf.Variable(0.0)
    assert int(TWO.extended.reduce_to("SUM", own, v)) == 1
    assert float(TWO.extended.reduce_to(tf.distribute.ReduceOp.MEAN, own, "/cpu:0")) == 0.5
    assert list(map(int, TWO.extended.batch_reduce_to("SUM", [(own, v), (own, v)]))) == [1, 1]
    with pytest.raises(ArgumentError, match="value of each"):
        TWO.extended.reduce_to("SUM", 1.0, "/cpu:0")


def test_variables_are_updated_for_all_replicas() -> None:
    v, extended = tf.Variable(1.0), TWO.extended
    extended.update(v, lambda x, by: x.assign_add(by), args=(2.0,))
    assert float(v) == 3
    assert len(extended.update(v, lambda x: x.assign(5.0), group=False)) == 2
    assert [float(x) for x in extended.update_non_slot((), lambda: tf.constant(3.0), group=False)] == [3, 3]
    with pytest.raises(ArgumentError, match="needs the same value of all"):
        one = tf.Variable(1.0, aggregation=tf.VariableAggregation.MEAN)
        extended.update(one, lambda x, by: x.assign(by), args=(TWO.run(_number),))
    with pytest.raises(ArgumentError, match="Call it in merge_call"):
        TWO.run(lambda: extended.update(v, lambda x: x.assign(1.0)))
    with extended.colocate_vars_with(v):
        assert extended.variable_created_in_scope(tf.Variable(1.0))


def test_variables_are_updated_in_merge_call() -> None:
    v = tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN)

    def merged(strategy: ls.distribute.Strategy, value: object) -> object:
        total = strategy.extended.reduce_to("SUM", value, v)
        strategy.extended.update(v, lambda x, by: x.assign(by), args=(total,))
        return total

    def step() -> object:
        return tf.distribute.get_replica_context().merge_call(merged, args=(tf.constant(2.0),))

    assert float(TWO.run(step)) == 4 and float(v) == 4


def test_a_strategy_is_set_for_what_follows() -> None:
    tf.distribute.experimental_set_strategy(TWO)
    try:
        assert tf.distribute.get_strategy() is TWO and tf.distribute.has_strategy()
    finally:
        tf.distribute.experimental_set_strategy(None)
    assert not tf.distribute.has_strategy()
    with TWO.scope(), pytest.raises(StartupOrderError, match="opens a scope itself"):
        tf.distribute.experimental_set_strategy(TWO)


def test_local_results_of_plain_values() -> None:
    assert TWO.experimental_local_results(5) == (5,)
    assert TWO.experimental_local_results([1, 2]) == ([1, 2], [1, 2])
    assert TWO.experimental_local_results(None) == (None,)


def test_the_value_of_one_local_replica_is_a_tensor() -> None:
    value = ls.distribute.PerReplica([np.float32(2.5)])
    assert value.numpy() == 2.5 and float(value) == 2.5 and f"{value:.1f}" == "2.5" and value.shape == ()
    with pytest.raises(ArgumentError, match="has one for each replica"):
        ls.distribute.PerReplica([1, 2]).numpy()
    assert not hasattr(ls.distribute.PerReplica([1, 2]), "shape")


def test_values_of_replicas_are_computed_with_together() -> None:
    own = TWO.run(lambda: tf.cast(tf.fill([2], _number()), tf.float32))
    for values in (own.values, TWO.experimental_local_results(own)):
        assert tf.concat(values, axis=0).tolist() == [0, 0, 1, 1]
        assert (values[0] + values[1]).tolist() == [1, 1] and float(tf.reduce_mean(values)) == 0.5
    # They go back to where they were.
    again = TWO.run(lambda v: v + 1, args=(ls.distribute.PerReplica(own.values),))
    assert [v.tolist() for v in again.values] == [[1, 1], [2, 2]]
    mean = tf.keras.metrics.Mean()
    for value in own.values:
        mean.update_state(value)
    assert float(mean.result()) == 0.5


def test_variables_without_aggregation_keep_each_replicas_value() -> None:
    v = tf.Variable(1.0)

    def step() -> object:
        v.assign(v + 10 + tf.cast(_number(), tf.float32))
        return v.read_value()

    for expected in ([11, 12], [21, 23]):
        assert [float(x) for x in TWO.run(step).values] == expected
        # Cross-replica context reads the first replica's.
        assert float(v) == expected[0] and [float(x) for x in TWO.experimental_local_results(v)] == expected
    v.assign(0.0)
    assert [float(x) for x in TWO.run(step).values] == [10, 11]


def test_variables_of_which_each_replica_has_one_are_trained_if_they_ask_for_it() -> None:
    assert not tf.Variable(1.0, synchronization=tf.VariableSynchronization.ON_READ).trainable
    assert tf.Variable(1.0, synchronization=tf.VariableSynchronization.ON_READ, trainable=True).trainable


def test_variables_are_made_in_the_first_run() -> None:
    made: list[tf.Variable] = []

    def step() -> object:
        if not made:
            made.append(tf.Variable(1.0))
        made[0].assign_add(1.0)
        return made[0].read_value()

    assert [float(TWO.run(step)) for _ in range(2)] == [2, 3] and float(made[0]) == 3
    with pytest.raises(ArgumentError, match="Make variables once"):
        TWO.run(lambda: tf.Variable(2.0) * 3.0)


def test_one_device_that_is_not_there_is_the_cpu(caplog: pytest.LogCaptureFixture) -> None:
    strategy = tf.distribute.OneDeviceStrategy("/gpu:7")
    assert strategy.extended.worker_devices == ("/job:localhost/replica:0/task:0/device:CPU:0",)
    assert "There is no /gpu:7 on this machine; the CPU is used" in caplog.text


def test_central_storage_is_several_devices() -> None:
    strategy = tf.distribute.experimental.CentralStorageStrategy(["cpu:0", "cpu:1"])
    assert strategy.num_replicas_in_sync == 2
    assert tf.distribute.experimental.CollectiveHints(bytes_per_pack=1).bytes_per_pack == 1
    with pytest.raises(AttributeError, match="MirroredStrategy"):
        _ = tf.distribute.experimental.TPUStrategy
