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
    iterator: Any = iter(distributed)
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


class Labelled:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


class MoreLabelled(Labelled):
    pass


def test_objects_of_a_program_become_tensors() -> None:
    def convert(value: Labelled, dtype: Any = None, name: str | None = None, as_ref: bool = False) -> Any:
        return value.tensor

    tf.register_tensor_conversion_function(Labelled, convert)
    assert tf.convert_to_tensor(Labelled([1, 2])).numpy().tolist() == [1, 2]
    tf.register_tensor_conversion_function((MoreLabelled,), lambda value, **_: value.tensor * 2)
    assert tf.constant(MoreLabelled(tf.constant([1, 2])), tf.float32).numpy().tolist() == [2.0, 4.0]
    with pytest.raises(ArgumentError, match="priority=100"):
        tf.register_tensor_conversion_function(Labelled, convert, 7)


def test_optimizers_of_a_program_need_no_rate() -> None:
    class Own(tf.keras.optimizers.Optimizer):
        def __init__(self) -> None:
            super().__init__(name="Own")

        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            variable.assign(variable - gradient)

    variable = tf.Variable(3.0)
    Own().apply_gradients([(tf.constant(1.0), variable)])
    assert float(variable) == 2.0


def test_a_tensor_says_how_many_classes_there_are() -> None:
    head = tf.estimator.MultiClassHead(tf.constant(3))
    assert head.logits_dimension == 3
    with pytest.raises(ArgumentError, match="integer from 3"):
        tf.estimator.MultiClassHead(tf.constant(3.0))


def test_a_model_fn_without_a_mode_returns_none_for_it(tmp_path: Any) -> None:
    def model_fn(features: Any) -> Any:
        step = v1.train.get_global_step()
        return tf.estimator.EstimatorSpec(None, {"y": features["x"]}, tf.constant(0.0), v1.assign_add(step, 1))

    estimator = tf.estimator.Estimator(
        model_fn, str(tmp_path), tf.estimator.RunConfig(keep_checkpoint_every_n_hours=None)
    )
    estimator.train(lambda: ({"x": np.ones((2, 1), "f")}, None), steps=2)
    assert estimator.evaluate(lambda: ({"x": np.ones((2, 1), "f")}, None))["global_step"] == 2
    found = list(estimator.predict(lambda: {"x": np.ones((2, 1), "f")}))
    assert [row["y"].tolist() for row in found] == [[1.0], [1.0]]


def test_receivers_of_text_need_no_shape(tmp_path: Any) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        step = v1.train.get_global_step()
        return tf.estimator.EstimatorSpec(mode, {"y": features["x"] * 2}, tf.constant(0.0), v1.assign_add(step, 1))

    estimator = tf.estimator.Estimator(model_fn, str(tmp_path / "model"))
    estimator.train(lambda: ({"x": np.ones((2, 1), "f")}, None), steps=1)

    def receiver() -> Any:
        serialized = v1.placeholder(tf.string)
        features = tf.io.parse_example(serialized, {"x": tf.io.FixedLenFeature([1], tf.float32)})
        return tf.estimator.export.ServingInputReceiver(features, serialized)

    (tmp_path / "note").write_text("hello")
    extra = {"note": str(tmp_path / "note").encode()}
    path = estimator.export_saved_model(str(tmp_path / "export"), receiver, assets_extra=extra)
    example = tf.train.Example(
        features=tf.train.Features(feature={"x": tf.train.Feature(float_list=tf.train.FloatList(value=[3.0]))})
    )
    loaded = tf.saved_model.load(path)
    (found,) = loaded.signatures["serving_default"](tf.constant([example.SerializeToString()])).values()
    assert found.numpy().tolist() == [[6.0]]
