"""SyncReplicasOptimizer on one device: what an update is made of, what hooks see, what is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep import estimator
from lockstep.data import Dataset
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator import train

_X = np.array([1.0, 2.0, 3.0, 5.0, 8.0], np.float32)
Optimize = Callable[[Any], Any]


def _wrap(together: int = 2, **options: Any) -> train.SyncReplicasOptimizer:
    return train.SyncReplicasOptimizer(train.GradientDescentOptimizer(0.1), together, **options)


def _estimator(optimize: Optimize, model_dir: Path, **options: Any) -> estimator.Estimator:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        weight = keras.Variable(1.0, name="weight")
        loss = jnp.mean(weight * features)
        op, *hooks = optimize(loss)
        return estimator.EstimatorSpec(mode, loss=loss, train_op=op, training_hooks=hooks)

    return estimator.Estimator(model_fn, str(model_dir), estimator.RunConfig(**options))


def _input_fn() -> Dataset:
    # Five batches of one row: their gradients are their values.
    return Dataset.from_tensor_slices((_X, _X)).batch(1)


def _minimize(loss: Any) -> tuple[Any, ...]:
    return (_wrap().minimize(loss, train.get_global_step()),)


class _Steps(estimator.SessionRunHook):
    def __init__(self) -> None:
        self.seen: list[tuple[int, float]] = []

    def before_run(self, run_context: Any) -> Any:
        return estimator.SessionRunArgs(["global_step", "loss"])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        step, loss = run_values.results
        self.seen.append((int(step), float(loss)))


def test_an_update_has_the_mean_of_its_gradients_and_counts_one_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = _Steps()
    with caplog.at_level(logging.INFO, "lockstep"):
        made = _estimator(_minimize, tmp_path).train(_input_fn, [hook])
    # The last batch has no other to make an update with.
    expected = 1 - 0.1 * (1.5 + 4.0)
    np.testing.assert_allclose(made.get_variable_value("weight"), expected, rtol=1e-6)
    assert made.get_variable_value("global_step") == 2
    assert dict(hook.seen) == pytest.approx({0: 1.5, 1: 0.85 * 4.0})
    lines = [r.getMessage() for r in caplog.records]
    assert lines.count("SyncReplicasV2: replicas_to_aggregate=2; total_num_replicas=2") == 1
    assert "The data have ended within an update of 2 batches: the last 1 are not applied." in lines


def test_max_steps_counts_updates(tmp_path: Path) -> None:
    made = _estimator(_minimize, tmp_path).train(lambda: _input_fn().repeat(), max_steps=7)
    assert made.get_variable_value("global_step") == 7


def test_what_the_model_fn_makes_of_gradients_it_does_for_each_batch(tmp_path: Path) -> None:
    def optimize(loss: Any) -> Any:
        optimizer = _wrap(together=5)
        ((gradient, variable),) = optimizer.compute_gradients(loss)
        clipped = jnp.minimum(gradient, 2.5)
        return (optimizer.apply_gradients([(clipped, variable)], train.get_global_step()),)

    made = _estimator(optimize, tmp_path).train(_input_fn)
    np.testing.assert_allclose(made.get_variable_value("weight"), 1 - 0.1 * np.minimum(_X, 2.5).mean(), rtol=1e-6)


def test_slots_and_variables_are_those_of_the_wrapped_optimizer(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def optimize(loss: Any) -> Any:
        optimizer = train.SyncReplicasOptimizer(train.AdamOptimizer(0.1), 2)
        op = optimizer.minimize(loss, train.get_global_step())
        seen.update(names=optimizer.get_slot_names(), count=len(optimizer.variables()))
        seen["slot"] = tuple(optimizer.get_slot(op.variables[0], "m").shape)
        assert optimizer.get_init_tokens_op() == optimizer.chief_init_op == optimizer.local_step_init_op == ()
        assert optimizer.ready_for_local_init_op == ()
        assert optimizer.get_chief_queue_runner().create_threads(None) == []
        return op, optimizer.make_session_run_hook(is_chief=True), optimizer.make_session_run_hook(is_chief=False)

    made = _estimator(optimize, tmp_path).train(_input_fn)
    assert seen == {"names": ["m", "v"], "count": 4, "slot": ()}
    assert "weight/Adam" in made.get_variable_names()


def test_an_interrupted_training_goes_on_at_the_next_batch(tmp_path: Path) -> None:
    class Stop(estimator.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            if run_context.session.run("global_step") == 3:
                raise RuntimeError("killed")

    def data() -> Dataset:
        return Dataset.from_tensor_slices((_X, _X)).batch(1).shuffle(5, seed=1).repeat(4)

    whole = _estimator(_minimize, tmp_path / "whole").train(data)
    for hooks in ([Stop()], []):
        made = _estimator(_minimize, tmp_path / "parts", save_checkpoints_steps=2)
        try:
            made.train(data, hooks)
        except RuntimeError as error:
            assert str(error) == "killed"
    assert made.get_variable_value("global_step") == whole.get_variable_value("global_step") == 10
    np.testing.assert_array_equal(made.get_variable_value("weight"), whole.get_variable_value("weight"))


def _without_step(loss: Any) -> Any:
    return (_wrap().minimize(loss),)


def _without_pairs(loss: Any) -> Any:
    return (_wrap().apply_gradients([], train.get_global_step()),)


def _hook_of_another(loss: Any) -> Any:
    return _wrap().minimize(loss, train.get_global_step()), _wrap().make_session_run_hook(True)


def _few_tokens(loss: Any) -> Any:
    optimizer = _wrap(4, total_num_replicas=2)
    return optimizer.minimize(loss, train.get_global_step()), optimizer.make_session_run_hook(True, num_tokens=1)


def _two_numbers(loss: Any) -> Any:
    step = train.get_global_step()
    return (train.group(_wrap(2).minimize(loss, step), _wrap(3).minimize(loss, step)),)


@pytest.mark.parametrize(
    ("optimize", "message"),
    [
        (_without_step, "Global step is required to check staleness"),
        (_without_pairs, "Must supply at least one variable"),
        (_hook_of_another, "apply_gradient should be called before using the hook"),
        (_few_tokens, r"Too few tokens to finish the first step: 1 \(given\) vs 2 \(needed\)"),
        (_two_numbers, r"average over \[2, 3\] batches"),
        (lambda loss: (_wrap().get_chief_queue_runner(),), r"should be called after apply_gradients\(\)"),
    ],
)
def test_what_tensorflow_refuses_is_refused(optimize: Optimize, message: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=message):
        _estimator(optimize, tmp_path).train(_input_fn)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="Averages of variables"):
        _wrap(variable_averages=object())
    with pytest.raises(ArgumentError, match="replicas_to_aggregate must be a whole number"):
        _wrap(0)
    with pytest.raises(ArgumentError, match="SyncReplicasOptimizer wraps an optimizer of"):
        train.SyncReplicasOptimizer(keras.optimizers.SGD(0.1), 2)  # pyright: ignore[reportArgumentType]
    made = _estimator(_minimize, tmp_path, train_distribute=ls.distribute.MirroredStrategy())
    with pytest.raises(UnsupportedError, match="averages the gradients of its replicas by itself"):
        made.train(_input_fn)
