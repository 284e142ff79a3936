"""Rounds of a model_fn that asks for gradients: outputs wait for the sum of all shares, which push the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep import estimator
from lockstep.estimator import train
from lockstep.estimator._servers.results import Rest, rest_of
from lockstep.estimator._servers.training import make_input
from lockstep.estimator._training import TrainRequest

pytestmark = pytest.mark.slow
_FIRST, _SECOND = ("dense/kernel", "dense/bias"), ("dense_1/kernel", "dense_1/bias")


def _rest(optimize: Callable[[Any, Any, Any], Any], model_dir: Path) -> Rest:
    """Returns what waits, of a model of two layers whose losses and variables `optimize` gets."""

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        layers = keras.layers.Dense(3), keras.layers.Dense(1)
        made = layers[0](features)
        judged = layers[1](made)
        losses = estimator.losses.mean_squared_error(labels, judged), keras.ops.mean(made**2)
        return estimator.EstimatorSpec(mode, loss=losses[0], train_op=optimize(layers, *losses))

    def input_fn() -> ls.data.Dataset:
        return ls.data.Dataset.from_tensor_slices((np.ones((8, 2), np.float32), np.ones((8, 1), np.float32))).batch(4)

    core = estimator.Estimator(model_fn, str(model_dir))._core
    replicas = core.first_device_replicas()
    source = make_input(core, TrainRequest(input_fn), replicas)
    return rest_of(core.compile("train", replicas, source), source.source.peek())


def _gradients(loss: Any, layer: Any) -> list[tuple[Any, Any]]:
    return train.GradientDescentOptimizer(0.1).compute_gradients(loss, layer.trainable_variables)


def _apply(pairs: list[tuple[Any, Any]]) -> Any:
    return train.GradientDescentOptimizer(0.1).apply_gradients(pairs, train.get_global_step())


def test_shares_push_gradients_of_losses_that_are_made_of_no_gradients(tmp_path: Path) -> None:
    def optimize(layers: Any, loss: Any, other: Any) -> Any:
        return _apply([*_gradients(other, layers[0]), *_gradients(loss, layers[1])])

    assert _rest(optimize, tmp_path) == Rest({0: _FIRST, 1: _SECOND}, frozenset(), frozenset())


def test_gradients_of_gradients_wait(tmp_path: Path) -> None:
    def optimize(layers: Any, loss: Any, other: Any) -> Any:
        first = _gradients(other, layers[0])
        return _apply([*first, *_gradients(loss * train.global_norm([g for g, _ in first]), layers[1])])

    assert _rest(optimize, tmp_path).sites == {0: _FIRST}


def test_a_variable_has_one_gradient(tmp_path: Path) -> None:
    def optimize(layers: Any, loss: Any, other: Any) -> Any:
        _gradients(loss, layers[1])
        minimized = train.GradientDescentOptimizer(0.1).minimize(loss, var_list=layers[1].trainable_variables)
        return train.group(minimized, _apply([*_gradients(loss, layers[0]), *_gradients(other, layers[0])][:2]))

    assert _rest(optimize, tmp_path).sites == {1: _FIRST}


def test_values_and_variables_that_are_made_of_gradients_wait(tmp_path: Path) -> None:
    def optimize(layers: Any, loss: Any, other: Any) -> Any:
        pairs = _gradients(loss, layers[1])
        norm = train.global_norm([gradient for gradient, _ in pairs])
        train.record("norm", norm)
        train.record("other", other)
        for name, value in (("seen", norm), ("mean", other)):
            variable = keras.Variable(0.0, trainable=False, name=name)
            variable.assign(value)
        return _apply(pairs)

    rest = _rest(optimize, tmp_path)
    assert (rest.sites, rest.changes, len(rest.outputs)) == ({0: _SECOND}, {"seen"}, 1)
