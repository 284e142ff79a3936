"""The program of a job whose tasks are killed: the chief waits at one step until one was started again.

Or a worker is late: it still computes a share when the chief's program has ended.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import lockstep as ls  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import keras
import numpy as np

from lockstep import estimator
from lockstep._engine.servers.messages import Message
from lockstep._engine.servers.place import Channel
from lockstep.estimator import train
from lockstep.estimator._servers.closing import ClosingStep
from tests.engine.runtime.jobs import eventually

STEPS, HELD_AT = 40, 25
OPTIMIZER = sys.argv[-1]


def model_fn(features: Any, labels: Any, mode: str) -> Any:
    made = keras.layers.Dense(6)(features)
    if OPTIMIZER in ("table", "shares"):
        # By rows, of which each server has a range.
        ids = keras.ops.cast(keras.ops.abs(features) * 5000, "int32")
        made = made + keras.layers.Embedding(48_000, 6)(ids).sum(axis=1)
    hidden = keras.layers.Dropout(0.2)(made, training=mode == "train")
    loss = estimator.losses.mean_squared_error(labels, keras.layers.Dense(1)(hidden))
    # The one has counts of its own on the servers, and the other a rate that depends on the step.
    rate = train.exponential_decay(0.1, train.get_global_step(), 10, 0.5)
    optimizer = train.AdamOptimizer(0.02) if OPTIMIZER in ("adam", "table") else train.GradientDescentOptimizer(rate)
    if OPTIMIZER == "replicas":
        optimizer = train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=3)
    if OPTIMIZER == "shares":
        # By the norm of the mean of all shares' gradients.
        gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
        clipped, _ = train.clip_by_global_norm(list(gradients), 0.5)
        train_op = optimizer.apply_gradients(zip(clipped, variables, strict=True), train.get_global_step())
    else:
        train_op = optimizer.minimize(loss, train.get_global_step())
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op if mode == "train" else None)


def input_fn() -> ls.data.Dataset:
    random = np.random.default_rng(0)
    x = random.normal(size=(64, 4)).astype(np.float32)
    return ls.data.Dataset.from_tensor_slices((x, x[:, :1])).shuffle(64, seed=2).repeat().batch(8)


class Held(estimator.SessionRunHook):
    """Says where the chief is, and holds it at one step until another task was started again."""

    def __init__(self, folder: Path, waits: bool) -> None:
        self._folder, self._waits = folder, waits

    def after_run(self, run_context: Any, run_values: Any) -> None:
        step = int(run_context.session.run("global_step"))
        if step == HELD_AT and self._waits:
            (self._folder / "held").touch()
            end = time.monotonic() + 240
            while not (self._folder / "go on").exists() and time.monotonic() < end:
                time.sleep(0.02)


class Dying(estimator.SessionRunHook):
    """Kills this task once, while it computes a share of a step that the chief is held before."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def before_run(self, run_context: Any) -> None:
        if int(run_context.session.run("global_step")) >= HELD_AT:
            _die_once(self._mark)


class Late(estimator.SessionRunHook):
    """Holds this task, while it computes a share, until the chief's program has ended and has kept the servers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def before_run(self, run_context: Any) -> None:
        if int(run_context.session.run("global_step")) < HELD_AT:
            return
        (self._folder / "is late").touch()
        marks = [self._folder / f"ps {i} is kept" for i in range(2)]
        eventually(lambda: all(mark.exists() for mark in marks), lambda: "the chief keeps the servers", 240)


def mark_when_kept(mark: Path, channel: Channel) -> None:
    """Marks that this server has asked whether it may end when the chief's program had, and may not."""
    ask = channel.ask

    def asking(message: Message, seconds: float | None = None) -> Message:
        answer = ask(message, seconds)
        if message.kind == "state" and answer.facts["over"] and not answer.facts["ended"]:
            mark.touch()
        return answer

    channel.ask = asking


def _die_once(mark: Path) -> None:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def die_in_closing(mark: Path, held: Path) -> None:
    """Has this task be killed once, while it closes a round, after the chief was held."""
    close = ClosingStep.__call__

    def closing(self: ClosingStep, *arguments: Any) -> Any:
        if held.exists():
            _die_once(mark)
        return close(self, *arguments)

    ClosingStep.__call__ = closing


def main() -> None:
    folder, waits = Path(sys.argv[1]), sys.argv[2] != "goes on"
    task = ls.cluster_resolver.TFConfigClusterResolver()
    (folder / f"{task.task_type} {task.task_id}.pid").write_text(str(os.getpid()))
    strategy = ls.distribute.ParameterServerStrategy(mode="sync", replicas=3 if OPTIMIZER == "shares" else 1)
    config = estimator.RunConfig(
        str(folder / "model"), tf_random_seed=1, train_distribute=strategy, save_checkpoints_steps=10
    )
    made = estimator.Estimator(model_fn, config=config)
    hooks: list[estimator.SessionRunHook] = [Held(folder, waits)] if strategy.is_chief else []
    if sys.argv[2] == "dies" and task.task_type == "worker" and not strategy.is_chief:
        hooks = [Dying(folder / "has died")]
    if sys.argv[2] == "dies in closing" and task.task_type == "worker" and not strategy.is_chief:
        die_in_closing(folder / "has died", folder / "held")
    if sys.argv[2] == "is late" and task.task_type == "worker" and not strategy.is_chief:
        hooks = [Late(folder)]
    if sys.argv[2] == "is late" and task.task_type == "ps":
        mark_when_kept(folder / f"ps {task.task_id} is kept", strategy._servers.job._channel)
    spec = estimator.TrainSpec(input_fn, max_steps=STEPS, hooks=hooks)
    estimator.train_and_evaluate(made, spec, estimator.EvalSpec(input_fn, steps=1, throttle_secs=600))


if __name__ == "__main__":
    main()
