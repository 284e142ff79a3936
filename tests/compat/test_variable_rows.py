"""Updates of variables by rows; their other attributes of TensorFlow's."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf


# What TensorFlow 2.15 makes of [1, 2, 3, 4] with rows [10, 2.5] at [1, 3], and at [1, 1].
@pytest.mark.parametrize(
    ("name", "apart", "twice"),
    [
        ("update", [1, 10, 3, 2.5], [1, 2.5, 3, 4]),
        ("add", [1, 12, 3, 6.5], [1, 14.5, 3, 4]),
        ("sub", [1, -8, 3, 1.5], [1, -10.5, 3, 4]),
        ("mul", [1, 20, 3, 10], [1, 50, 3, 4]),
        ("div", [1, 0.2, 3, 1.6], [1, 0.08, 3, 4]),
        ("min", [1, 2, 3, 2.5], [1, 2, 3, 4]),
        ("max", [1, 10, 3, 4], [1, 10, 3, 4]),
    ],
)
def test_rows_are_changed_as_by_tensorflow(name: str, apart: list[float], twice: list[float]) -> None:
    for indices, expected in (([1, 3], apart), ([1, 1], twice)):
        variable = tf.Variable([1.0, 2.0, 3.0, 4.0])
        getattr(variable, f"scatter_{name}")(tf.IndexedSlices(tf.constant([10.0, 2.5]), tf.constant(indices)))
        np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-6)


def test_elements_are_changed_and_read() -> None:
    variable = tf.Variable([[1.0, 2.0], [3.0, 4.0]])
    assert variable.scatter_nd_min([[0, 0], [1, 1]], [0.5, 9.0]).numpy().tolist() == [[0.5, 2], [3, 4]]
    assert variable.scatter_nd_max([[0, 0], [1, 1]], [0.25, 9.0]).numpy().tolist() == [[0.5, 2], [3, 9]]
    assert variable.gather_nd([[0, 1]]).numpy().tolist() == [2]
    assert variable.sparse_read([1]).numpy().tolist() == [[3, 9]]


def test_anything_but_rows_is_refused() -> None:
    with pytest.raises(TypeError, match=r"must be a `tf\.IndexedSlices`"):
        tf.Variable([1.0]).scatter_add(3)


def test_replicas_add_rows_with_the_variables_aggregation() -> None:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0], aggregation=tf.VariableAggregation.SUM)

    def add() -> None:
        variable.scatter_add(tf.IndexedSlices(tf.constant([5.0]), tf.constant([1])))

    strategy.run(add)
    assert variable.numpy().tolist() == [1, 7]
    assert variable.distribute_strategy is strategy
    assert copy.deepcopy(variable).distribute_strategy is strategy


def test_a_name_has_scopes_and_a_device() -> None:
    variable = tf.Variable([1.0], name="dense/kernel")
    assert (variable.name, variable.path) == ("kernel", "dense/kernel")
    assert variable.device.endswith("/device:CPU:0") and tf.abs(variable).backing_device == variable.device
    with pytest.raises(AttributeError, match="outside of a strategy's scope"):
        _ = variable.distribute_strategy
    variable.load([3.0])
    variable.set_shape([None])
    assert variable.numpy() == 3 and variable.is_initialized().numpy()


def test_variables_of_tensorflow_1_are_made_anew_outside_of_a_model_fn() -> None:
    first, second = (tf.compat.v1.get_variable("a", initializer=3.0) for _ in range(2))
    assert first is not second and first.numpy() == 3
    with tf.compat.v1.variable_scope("x"):
        assert tf.compat.v1.get_variable("i", [2], dtype=tf.int32).numpy().tolist() == [0, 0]
    assert tf.compat.v1.get_variable("v/a", [2]).path == "v/a"
    with pytest.raises(RuntimeError, match="each call of get_variable makes a variable"):
        tf.compat.v1.get_variable("a", [1], collections=["mine"])
