"""The job: an Estimator on all workers, evaluated beside them, which notes what it trains on."""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np

import lockstep as ls

strategy = ls.distribute.MultiWorkerMirroredStrategy()

import keras  # noqa: E402  The strategy comes first.

from lockstep import estimator  # noqa: E402
from lockstep.data import Dataset  # noqa: E402
from lockstep.estimator import train  # noqa: E402
from tests.chaos import inside  # noqa: E402
from tests.chaos.schedule import STEPS  # noqa: E402

EVERY, ROWS, BATCH = 10, 96, 4

logging.getLogger("lockstep").addHandler(logging.StreamHandler())
logging.getLogger("lockstep").setLevel(logging.INFO)


def rows(number: int) -> dict[str, np.ndarray]:
    """The examples: their numbers, and what they are made of."""
    return {"id": np.arange(number, dtype=np.int32), "x": np.random.default_rng(7).random((number, 8), np.float32)}


def input_fn(input_context: Any) -> Dataset:
    """Examples in another order in each pass."""
    data = Dataset.from_tensor_slices(rows(ROWS))
    data = data.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    data = data.shuffle(ROWS, seed=3).repeat().batch(BATCH, drop_remainder=True)
    # The number of a batch is that of its step, also where a restart continues.
    return data.enumerate().map(lambda number, batch: inside.batch_of(int(number) + 1, batch))


def eval_input_fn() -> Dataset:
    """Other examples."""
    return Dataset.from_tensor_slices(rows(32)).batch(8)


def model_fn(features: Any, labels: Any, mode: str) -> estimator.EstimatorSpec:
    """A network with dropout, and an optimizer with slots."""
    training = mode == estimator.ModeKeys.TRAIN
    hidden = keras.layers.Dense(32, "relu")(features["x"])
    hidden = keras.layers.Dropout(0.2)(hidden, training=training)
    predicted = keras.layers.Dense(1)(hidden)
    loss = keras.ops.mean((predicted[:, 0] - keras.ops.sum(features["x"], 1)) ** 2)
    train.record("ids", features["id"])
    train_op = train.AdamOptimizer(0.01).minimize(loss, train.get_global_step()) if training else None
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


class Notes(estimator.SessionRunHook):
    """Notes the examples of each step, and disturbs."""

    def __init__(self) -> None:
        self._wanted = {"step": "global_step", "ids": "ids", "loss": "loss"}

    def before_run(self, run_context: Any) -> Any:
        """Asks for them."""
        return estimator.SessionRunArgs(self._wanted)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Notes them."""
        found = run_values.results
        step = int(found["step"]) + 1
        ids = " ".join(map(str, np.ravel(found["ids"])))
        inside.note(f"seen {inside.task_name()}", f"{step} {float(found['loss'])!r} {ids}")
        inside.disturb_writing(step)
        inside.await_disturbance(step)


def main(directory: str) -> None:
    """Trains, or evaluates, as TF_CONFIG says."""
    inside.arrive()
    config = estimator.RunConfig(train_distribute=strategy, save_checkpoints_steps=EVERY, tf_random_seed=1)
    made = estimator.Estimator(model_fn, directory, config)
    training = estimator.TrainSpec(input_fn, max_steps=STEPS, hooks=[Notes()])
    evaluation = estimator.EvalSpec(eval_input_fn, steps=None, start_delay_secs=0, throttle_secs=0)
    estimator.train_and_evaluate(made, training, evaluation)


if __name__ == "__main__":
    main(sys.argv[1])
