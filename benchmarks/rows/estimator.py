"""Row 1: the network of the tutorials in `tf.estimator.train_and_evaluate`, input and all. Row 7: with checkpoints."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.harness.case import KERAS, LOOP, OURS, SCAN, TENSORFLOW, TORCH, Bar, Case, Side

_BATCH = 64
_MODULE, _RATE = "benchmarks.rows.estimator", "steps/s"
_LOSS = "lost"
# Steps from one checkpoint to the next, for row 7.
_WINDOW = 100


class Clock(logging.Handler):
    """Notes when the Estimator logs its steps per second, every so many steps: nothing has to listen to each."""

    def __init__(self, every: int) -> None:
        super().__init__(logging.INFO)
        self.every = every
        self.times: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Looks at a message."""
        if record.getMessage().startswith("global_step/sec"):
            self.times.append(time.perf_counter())

    def rate(self) -> float:
        """Steps/s from the first such message to the last."""
        return self.every * (len(self.times) - 1) / (self.times[-1] - self.times[0])


def lockstep(options: Mapping[str, Any]) -> dict[str, float]:
    """The program with lockstep's import line."""
    import lockstep.compat.tensorflow as tf

    return _both(tf, options, logging.getLogger("lockstep"))


def tensorflow(options: Mapping[str, Any]) -> dict[str, float]:
    """The program with TensorFlow's."""
    import tensorflow as tf

    tf.compat.v1.disable_eager_execution()
    return _both(tf, options, tf.get_logger())


def _both(tf: Any, options: Mapping[str, Any], logger: logging.Logger) -> dict[str, float]:
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return checkpoints(tf, options, logger) if options.get("checkpoints") else whole(tf, options, logger)


def whole(tf: Any, options: Mapping[str, Any], logger: logging.Logger) -> dict[str, float]:
    """Trains an epoch and evaluates."""
    estimator, input_fn = tf.estimator, _input(tf, options)
    config = estimator.RunConfig(log_step_count_steps=options.get("logged", 100))
    clock = Clock(config.log_step_count_steps)
    logger.addHandler(clock)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        classifier = estimator.Estimator(_model_fn(tf), directory, config)
        specs = estimator.TrainSpec(input_fn), estimator.EvalSpec(input_fn, steps=10)
        estimator.train_and_evaluate(classifier, *specs)
        end = time.perf_counter()
    return {_RATE: clock.rate(), "s to step 100": clock.times[0] - start, "s in all": end - start}


def checkpoints(tf: Any, options: Mapping[str, Any], logger: logging.Logger) -> dict[str, float]:
    """Trains on and on, with a checkpoint in each second window of 100 steps.

    A window is compared with the two beside it, a third of a second away: from one epoch to the next, machines that are
    shared change their speed by more than checkpoints cost.
    """
    half = _WINDOW // 2
    clock = Clock(half)
    logger.addHandler(clock)
    with tempfile.TemporaryDirectory() as directory:
        config = tf.estimator.RunConfig(log_step_count_steps=half, save_checkpoints_steps=2 * _WINDOW)
        classifier = tf.estimator.Estimator(_model_fn(tf), directory, config)
        input_fn = _input(tf, options)
        classifier.train(lambda: input_fn().repeat(), max_steps=(2 * options["pairs"] + 2) * _WINDOW)
    # From half a window after a multiple of the steps of a window to half a window after the next one.
    windows = np.diff(clock.times[::2])
    without, saving = windows[::2], windows[1::2]
    beside = (without[:-1] + without[1:]) / 2
    return {
        _LOSS: float(np.median(1 - beside / saving)),
        "steps/s without": _WINDOW / float(np.median(without)),
        "steps/s with": _WINDOW / float(np.median(saving)),
    }


def _input(tf: Any, options: Mapping[str, Any]) -> Any:
    from benchmarks.harness.data import load_digits

    images, labels = (a[: options.get("count")] for a in load_digits(options["data"]))

    def scale(image: Any, label: Any) -> Any:
        return tf.cast(image, tf.float32) / 255, label

    def input_fn() -> Any:
        dataset = tf.data.Dataset.from_tensor_slices((images[..., None], labels.astype(np.int64)))
        return dataset.map(scale).cache().shuffle(10000).batch(_BATCH)

    return input_fn


def _model_fn(tf: Any) -> Any:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [
                layers.Conv2D(32, 3, activation="relu", input_shape=(28, 28, 1)),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
                layers.Dense(10),
            ]
        )
        logits = model(features, training=False)
        crossentropy = tf.keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction=tf.keras.losses.Reduction.NONE
        )
        loss = tf.reduce_sum(crossentropy(labels, logits)) * (1.0 / _BATCH)
        if mode == tf.estimator.ModeKeys.EVAL:
            return tf.estimator.EstimatorSpec(mode, loss=loss)
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(1e-4)
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_or_create_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def keras_on_jax(options: Mapping[str, Any]) -> dict[str, float]:
    """The same network in plain Keras' `fit`, which has no Estimator."""
    import keras

    from benchmarks.programs import keras_models
    from benchmarks.programs.fit import timed_fit

    x, y = _arrays(options)
    steps, seconds = -(-len(x) // _BATCH), options["seconds"]
    model = keras_models.estimator_cnn(keras)
    return {_RATE: timed_fit(keras, model, steps, seconds, least=1, x=x, y=y, batch_size=_BATCH)}


def pytorch(options: Mapping[str, Any]) -> dict[str, float]:
    """The same network in an eager loop, without shuffling."""
    from benchmarks.programs import torch_loop, torch_models

    device = options.get("device", "cpu")
    model = torch_models.estimator_cnn().to(device)
    data = torch_loop.as_tensors(*_arrays(options))
    return {_RATE: torch_loop.rate(model, torch_loop.sgd(model), data, _BATCH, options["seconds"], device)}


def jax_loop(options: Mapping[str, Any]) -> dict[str, float]:
    """The same step, jitted, without shuffling."""
    from benchmarks.programs import jax_loops

    state, step = jax_loops.cnn(np.random.default_rng(0))
    batches = jax_loops.endless(*_arrays(options), _BATCH)
    return {_RATE: jax_loops.loop(state, step, batches, options["seconds"])}


def jax_scan(options: Mapping[str, Any]) -> dict[str, float]:
    """The same step under `lax.scan`, over 100 batches that are there."""
    from benchmarks.programs import jax_loops

    x, y = _arrays(options)
    state, step = jax_loops.cnn(np.random.default_rng(0))
    batches = jax_loops.stacked(x[: 100 * _BATCH], y[: 100 * _BATCH], _BATCH)
    return {_RATE: jax_loops.scan(state, step, batches, options["seconds"])}


def _arrays(options: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    from benchmarks.harness.data import load_digits

    images, labels = (a[: options.get("count")] for a in load_digits(options["data"]))
    return images[..., None].astype(np.float32) / 255, labels.astype(np.int32)


_SAVING = {"checkpoints": True}
CASES = [
    Case(
        row=1,
        name="Estimator",
        title="Estimator tutorial's CNN, batch 64, `train_and_evaluate`: map, cache, shuffle, batch, SGD",
        module=_MODULE,
        metrics={
            _RATE: "of an epoch of 938, from the first to the last `global_step/sec`: steps 100 to 900, with input",
            "s to step 100": "from the call of `train_and_evaluate`: tracing, compiling, 100 steps",
            "s in all": "until it returns: 938 steps, checkpoints, an evaluation of 10 batches",
        },
        needs=["digits"],
        sides=[
            Side(OURS, "lockstep", "lockstep", "ours"),
            Side(TENSORFLOW, "tensorflow", "tensorflow"),
            Side(KERAS, "keras_on_jax", "jax", quick=False),
            Side(TORCH, "pytorch", "torch", quick=False),
            Side(LOOP, "jax_loop", "jax", "ceiling", quick=False),
            Side(SCAN, "jax_scan", "jax", "ceiling", quick=False),
        ],
        bars=[Bar("x TensorFlow 2.15", (OURS, _RATE), [(TENSORFLOW, _RATE)], 1.5, 2.0)],
        notes="Bare jax runs XLA's own lowerings, so it is no ceiling here; nor does it read, map or shuffle anything.",
    ),
    Case(
        row=7,
        name="Checkpoints",
        title="Row 1, windows of 100 steps with a checkpoint and without, in turn in one run",
        module=_MODULE,
        metrics={
            _LOSS: "part of the throughput that a checkpoint each 100 steps costs: median over windows of 100 steps",
            "steps/s without": "median of the windows without a checkpoint",
            "steps/s with": "median of those with one",
        },
        needs=["digits"],
        sides=[
            Side(OURS, "lockstep", "lockstep", "ours", _SAVING),
            Side(TENSORFLOW, "tensorflow", "tensorflow", options=_SAVING),
        ],
        bars=[Bar("part of throughput lost", (OURS, _LOSS), [], 0.05, 0.01, "value", at_most=True)],
    ),
]
