"""Optimizers of TensorFlow 1 that a program derives, with a `minimize` of its own, in canned Estimators."""

from __future__ import annotations

from typing import Any

import numpy as np

import lockstep.compat.tensorflow as tf

v1 = tf.compat.v1


class Own(v1.train.GradientDescentOptimizer):
    def __init__(self) -> None:
        super().__init__(0.1)
        self.losses = 0

    def minimize(self, loss: Any, global_step: Any = None) -> Any:
        self.losses += 1
        return super().minimize(loss, global_step=global_step)


def test_minimize_gets_the_loss_and_the_step(tmp_path: Any) -> None:
    optimizer = Own()
    estimator = tf.estimator.LinearRegressor(
        [tf.feature_column.numeric_column("x")], str(tmp_path), optimizer=optimizer
    )
    data = {"x": np.ones((4, 1), "f")}, np.ones((4, 1), "f")
    estimator.train(lambda: data, steps=3)
    assert optimizer.losses > 0
    assert estimator.get_variable_value("global_step") == 3


def test_values_of_sparse_tensors() -> None:
    value = v1.SparseTensorValue([[0, 1]], [5], [2, 3])
    (batch,) = tf.data.Dataset.from_tensors(value)
    assert tf.sparse.to_dense(batch).numpy().tolist() == [[0, 5, 0], [0, 0, 0]]
