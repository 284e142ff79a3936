"""Small things that TensorFlow's own tests have found."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError

v1 = tf.compat.v1


@pytest.mark.parametrize("value", [[0], np.array([0]), np.array([0, 1]), (True,), np.empty(0, np.int64), None])
def test_lists_of_integers_take_arrays(value: Any) -> None:
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=value))
    expected = [] if value is None else [int(v) for v in value]
    assert list(feature.int64_list.value) == expected


def test_a_scope_gives_its_path() -> None:
    with tf.name_scope("outer") as outer, v1.name_scope(None, "inner") as inner:
        assert (outer, inner) == ("outer/", "outer/inner/")
        with v1.name_scope(outer) as again:
            assert again == "outer/"
    with v1.name_scope(None) as none:
        assert none == ""


def test_policies_of_saved_variables() -> None:
    policy = tf.saved_model.experimental.VariablePolicy
    options = tf.saved_model.SaveOptions(experimental_variable_policy="expand_distributed_variables")
    assert options.experimental_variable_policy is policy.EXPAND_DISTRIBUTED_VARIABLES
    assert tf.saved_model.LoadOptions().experimental_variable_policy is policy.NONE
    with pytest.raises(ArgumentError, match="VariablePolicy"):
        tf.saved_model.SaveOptions(experimental_variable_policy="all")


def test_a_dataset_is_read_ahead_by_default() -> None:
    assert list(tf.data.Dataset.range(3).prefetch(None).as_numpy_iterator()) == [0, 1, 2]


def test_an_input_context_names_its_pipeline() -> None:
    context = tf.distribute.InputContext(3, 1, 6)
    assert str(context) == "tf.distribute.InputContext(input pipeline id 1, total: 3)"
    assert pickle.loads(pickle.dumps(context)) == context


def test_iterators_of_strategies_know_their_elements() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    dataset = tf.data.Dataset.from_tensor_slices(np.zeros((4, 3), "f")).batch(4, drop_remainder=True)
    distributed = strategy.experimental_distribute_dataset(dataset)
    iterator = iter(distributed)
    assert iterator.element_spec == distributed.element_spec == tf.TensorSpec([4, 3])
    for has_value in (True, False):
        optional = iterator.get_next_as_optional()
        assert bool(optional.has_value()) is has_value
        assert optional.element_spec == tf.TensorSpec([4, 3])


def test_what_stays_on_the_host_is_a_tensor() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
    dataset = tf.data.Dataset.from_tensor_slices(np.arange(4)).batch(4)
    (batch,) = strategy.experimental_distribute_dataset(dataset, options)
    assert [v.numpy().tolist() for v in batch.values] == [[0, 1], [2, 3]]
    assert [float(v) for v in strategy.run(tf.reduce_sum, args=(batch,)).values] == [1.0, 5.0]


@pytest.mark.parametrize(("mode", "fetch"), [("PER_WORKER", None), ("PER_REPLICA", True)])
def test_elements_wait_on_devices_of_one_pipeline_each(mode: str, fetch: bool | None) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    options = tf.distribute.InputOptions(fetch, mode, True)
    with pytest.raises(ArgumentError, match="goes with PER_REPLICA"):
        strategy.distribute_datasets_from_function(lambda _: tf.data.Dataset.range(4), options)


def test_values_in_a_function_are_those_of_all_replicas() -> None:
    strategy = tf.distribute.get_strategy()

    @tf.function
    def run(x: Any) -> Any:
        return strategy.experimental_local_results(strategy.run(lambda y: y * 2, args=(x,)))

    assert [v.numpy() for v in run(tf.constant(3.0))] == [6.0]
