"""Tensors, variables and weights keep their values, whatever a program does to its arrays, and the other way round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
import lockstep.compat.tensorflow.keras as tf_keras
from tests.compat.keras import small


def aligned(size: int = 64) -> np.ndarray:
    """Returns zeros whose memory JAX would take as it is."""
    room = np.zeros(size * 4 + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size * 4].view(np.float32)


def weights_of_a_layer(array: np.ndarray) -> Any:
    model = tf_keras.Sequential([tf_keras.layers.Dense(8, input_shape=(8,), use_bias=False)])
    model.set_weights([array.reshape(8, 8)])
    return model.weights[0]


def assigned(array: np.ndarray) -> Any:
    variable = tf.Variable(tf.ones(64))
    variable.assign(array)
    return variable


@pytest.mark.parametrize("make", [tf.constant, tf.convert_to_tensor, tf.Variable, assigned, weights_of_a_layer])
def test_an_array_that_changes_later_changes_no_tensor(make: Callable[[np.ndarray], Any]) -> None:
    array = aligned()
    made = make(array)
    array += 1
    assert not np.any(made.numpy())


@pytest.mark.parametrize(
    "make", [tf.constant, tf.Variable, lambda a: tf.matmul(a, a), lambda a: tf.function(tf.exp)(a)]
)
def test_what_numpy_returns_can_be_written_to(make: Callable[[Any], Any]) -> None:
    made = make([[1.0, 2.0], [3.0, 4.0]])
    before = made.numpy()
    changed = made.numpy()
    changed[:] = 0
    np.testing.assert_array_equal(made.numpy(), before)


@pytest.mark.parametrize("batch_size", [8, 64])
def test_predictions_can_be_written_to(batch_size: int) -> None:
    x, _ = small.data()
    predictions = small.model().predict(x, batch_size=batch_size, verbose=0)
    predictions[predictions > 0.5] = 1


@pytest.mark.parametrize("made", [tf.constant([1.0, 2.0]), tf.constant(np.ones(2, np.float32))])
def test_arrays_of_tensors_are_read_only(made: Any) -> None:
    # As TensorFlow's: what a compiled function keeps of a tensor on the device is then what the tensor has.
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(made)[0] = 7


def test_a_function_reads_arrays_that_change_in_each_call() -> None:
    add = tf.function(lambda x: x + 1.0)
    array = aligned()
    viewed = tf.reshape(array, (8, 8))
    assert float(tf.reduce_sum(add(array))) == float(tf.reduce_sum(add(viewed))) == 64
    array += 1
    assert float(tf.reduce_sum(add(array))) == float(tf.reduce_sum(add(viewed))) == 128
