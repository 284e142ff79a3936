"""Trainings of an Estimator that are interrupted and go on, run on any layout."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

from lockstep import estimator
from lockstep.checkpoint import _archive
from lockstep.data import Dataset
from lockstep.errors import LockstepError, Preempted
from lockstep.estimator import train

GLOBAL_BATCH = 12


class Interrupted(Exception):
    """Stands for what ends a program."""


class Interrupts(estimator.SessionRunHook):
    """Ends the training after a step, and sees the losses."""

    def __init__(self, at: int | None, how: str) -> None:
        self.at = at
        self.how = how
        self.seen: list[tuple[int, float]] = []

    def before_run(self, run_context: Any) -> Any:
        return estimator.SessionRunArgs({"step": "global_step", "loss": "loss"})

    def after_run(self, run_context: Any, run_values: Any) -> None:
        step = int(run_values.results["step"]) + 1
        self.seen.append((step, float(run_values.results["loss"])))
        if step == self.at:
            raise Preempted("asked to end") if self.how == "preempted" else Interrupted


def model_fn(features: Any, labels: Any, mode: str) -> estimator.EstimatorSpec:
    hidden = keras.layers.Dense(5, activation="tanh")(features)
    hidden = keras.layers.Dropout(0.2)(hidden, training=mode == "train")
    loss = jnp.mean((keras.layers.Dense(1)(hidden) - labels) ** 2)
    optimizer = train.AdamOptimizer(0.02)
    return estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, train.get_global_step()))


def data(rows: int = 96) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(rows, 4)).astype("float32")
    return features, np.sin(features.sum(1, keepdims=True)).astype("float32")


def input_fn(strategy: Any, kind: str = "shuffled") -> Callable[..., Any]:
    """Data by kind; "sharded" are the same global batches on any layout."""

    def make(input_context: Any = None) -> Any:
        replicas = 1 if strategy is None else strategy.num_replicas_in_sync
        dataset = Dataset.from_tensor_slices(data())
        if input_context:
            dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
        if kind == "shuffled":
            dataset = dataset.shuffle(31)
        if kind == "filtered":
            dataset = dataset.filter(lambda x, y: x[0] > -1)
        if kind == "other":
            dataset = dataset.take(90)
        return dataset.repeat(3).batch(GLOBAL_BATCH // replicas)

    return make


def run(
    strategy: Any,
    directory: str,
    kind: str = "shuffled",
    at: int | None = None,
    how: str = "error",
    every: int | None = 4,
    **arguments: Any,
) -> dict[str, np.ndarray]:
    """Trains, to the end or until interrupted; returns the variables and the losses."""
    jax.config.update("jax_disable_most_optimizations", True)
    config = estimator.RunConfig(train_distribute=strategy, save_checkpoints_steps=every, tf_random_seed=5)
    trained = estimator.Estimator(model_fn, directory, config)
    hook = Interrupts(at, how)
    found: dict[str, Any] = {}
    try:
        trained.train(input_fn(strategy, kind), hooks=[hook], **arguments)
        found = {name: trained.get_variable_value(name) for name in trained.get_variable_names()}
    except (Interrupted, Preempted) as error:
        found["interrupted"] = np.asarray(type(error).__name__)
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
    return {**found, "seen": np.asarray(hook.seen).reshape(-1, 2)}


def chief_saves(strategy: Any, directory: str) -> dict[str, np.ndarray]:
    """The hook that saves runs on the chief only."""

    def with_hook(features: Any, labels: Any, mode: str) -> estimator.EstimatorSpec:
        saver = estimator.CheckpointSaverHook(directory, save_steps=10)
        return model_fn(features, labels, mode)._replace(training_chief_hooks=[saver])

    config = estimator.RunConfig(train_distribute=strategy, tf_random_seed=5)
    trained = estimator.Estimator(with_hook, directory, config)
    trained.train(input_fn(strategy))
    return {"global_step": trained.get_variable_value("global_step")}


def full_disk(strategy: Any, directory: str) -> dict[str, np.ndarray]:
    """From the second checkpoint on, nothing can be written."""
    write = _archive.write

    def failing(file: str, step: int, *rest: Any) -> None:
        if step > 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(file, step, *rest)

    config = estimator.RunConfig(train_distribute=strategy, tf_random_seed=5, save_checkpoints_steps=4)
    trained, hook = estimator.Estimator(model_fn, directory, config), Interrupts(None, "")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(LockstepError) as caught:
        patch.setattr(_archive, "write", failing)
        trained.train(lambda: input_fn(strategy, "plain")().repeat(), hooks=[hook], steps=1000)
    steps = np.asarray(len(hook.seen))
    return {"type": np.asarray(caught.typename), "text": np.asarray(str(caught.value)), "steps": steps}
