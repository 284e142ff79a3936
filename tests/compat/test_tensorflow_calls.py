"""Calls of TensorFlow that programs make in passing."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep._migrate._imports import rewrite


def test_parts_of_variables_are_assigned() -> None:
    variable = tf.Variable(np.arange(6.0).reshape(2, 3))
    variable[0, 1].assign(9.0)
    variable[1].assign([1.0, 1.0, 1.0])
    assert variable.numpy().tolist() == [[0, 9, 2], [1, 1, 1]]
    slices = tf.IndexedSlices(values=[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], indices=[1, 0])
    variable.scatter_update(slices)
    assert variable.numpy().tolist() == [[4, 5, 6], [1, 2, 3]]
    variable.scatter_add(slices)
    variable.scatter_sub(slices)
    assert variable.numpy().tolist() == [[4, 5, 6], [1, 2, 3]]
    with pytest.raises(AttributeError, match="variables have"):
        (variable[0] + 1).assign([0.0, 0.0, 0.0])


def test_one_element_is_a_number() -> None:
    assert float(tf.Variable([[2.5]]) * 1) == 2.5
    assert int(tf.Variable([3]) * 1) == 3
    assert float(tf.constant([2.5])) == 2.5
    with pytest.raises(ValueError, match="size 1"):
        float(tf.constant([1.0, 2.0]))


def test_python_functions_by_decorators() -> None:
    @tf.py_function(Tout=tf.float32)
    def product(x: Any, y: Any) -> Any:
        return x * y

    @tf.numpy_function(Tout=[tf.float32, tf.int32])
    def both(x: Any) -> Any:
        return np.float32(x), np.int32(x)

    assert product(2.0, 3.0).numpy() == 6
    assert [v.numpy() for v in both(2.5)] == [2.5, 2]


def test_devices_that_are_not_there_are_the_cpu() -> None:
    for name in ("cpu", "/GPU:0", "gpu", "/device:GPU:0"):
        with tf.device(name):
            assert tf.zeros([2]).shape == (2,)


def test_nccl_without_gpus_is_as_is_best() -> None:
    experimental = tf.distribute.experimental
    nccl = experimental.CommunicationImplementation.NCCL
    options = experimental.CommunicationOptions(implementation=nccl)
    assert options.implementation is experimental.CommunicationImplementation.AUTO


def test_modules_of_the_second_edition_are_those_of_the_first() -> None:
    module = importlib.import_module("lockstep.compat.tensorflow.compat.v2.feature_column")
    assert module is tf.feature_column
    assert tf.compat.v2.keras is tf.keras
    assert module.__spec__ is not None
    assert module.__spec__.name == "lockstep.compat.tensorflow.feature_column"


def test_internal_modules_are_imported() -> None:
    line = "from tensorflow.python.ops import summary_ops_v2"
    exec(rewrite(line, line))
    with pytest.raises(ImportError, match="internal to TensorFlow"):
        exec("from lockstep.compat.tensorflow.python.ops.math_ops import some_internal")


def test_booleans_are_integers_of_examples() -> None:
    values = tf.train.Int64List(value=[True, 3])
    assert list(values.value) == [1, 3]
    assert isinstance(values, tf.train.Int64List)
    assert tf.train.Int64List.FromString(values.SerializeToString()) == values
