"""The CNN of the tf.distribute tutorials in train_and_evaluate, beside TensorFlow 2.15's Estimator.

    .venv/bin/python benchmarks/estimator.py [--rounds N] [--peer PYTHON]     or: make bench-estimator

`--peer` names the Python of an environment with tensorflow-cpu 2.15.1. Both sides run this very program, in processes
of their own and in turn, so that drift of the machine meets both; medians are compared. A run is one epoch of MNIST in
batches of 64 (938 steps; input and all), from the first step after 50 of warm-up to the last.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

BATCH, WARM_UP = 64, 50


def program(tf: Any, images: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Trains and evaluates; returns steps/s and the seconds until the first step."""
    estimator, v1 = tf.estimator, tf.compat.v1
    started = time.perf_counter()
    times: list[float] = []

    class Clock(estimator.SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            times.append(time.perf_counter())

    def input_fn() -> Any:
        def scale(image: Any, label: Any) -> Any:
            return tf.cast(image, tf.float32) / 255, label

        dataset = tf.data.Dataset.from_tensor_slices((images[..., None], labels.astype(np.int64)))
        return dataset.map(scale).cache().shuffle(10000).batch(BATCH)

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
        loss = tf.reduce_sum(crossentropy(labels, logits)) * (1.0 / BATCH)
        if mode == estimator.ModeKeys.EVAL:
            return estimator.EstimatorSpec(mode, loss=loss)
        train_op = v1.train.GradientDescentOptimizer(1e-4).minimize(loss, v1.train.get_or_create_global_step())
        return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    with tempfile.TemporaryDirectory() as directory:
        made = estimator.Estimator(model_fn, directory)
        train_spec = estimator.TrainSpec(input_fn, hooks=[Clock()])
        estimator.train_and_evaluate(made, train_spec, estimator.EvalSpec(input_fn, steps=10))
    rate = (len(times) - 1 - WARM_UP) / (times[-1] - times[WARM_UP])
    return {"steps/s": rate, "seconds to the first step": times[0] - started}


def side(name: str, arrays: Path) -> dict[str, float]:
    """Runs the program on one side, in this process."""
    found = np.load(arrays)
    if name == "lockstep":
        import lockstep.compat.tensorflow as tf
    else:
        import tensorflow as tf  # pyright: ignore[reportMissingImports]

        tf.compat.v1.disable_eager_execution()
    return program(tf, found["images"], found["labels"])


def prepare(directory: Path) -> Path:
    """Writes MNIST, or the sample of it that comes with lockstep, over and over."""
    import lockstep

    digits = lockstep.datasets.load_mnist()
    images, labels = (np.resize(a, (60000, *a.shape[1:])) for a in (digits.train_images, digits.train_labels))
    print(f"{digits.source}: {len(digits.train_labels)} images")
    path = directory / "mnist.npz"
    np.savez(path, images=images, labels=labels)
    return path


def measured(name: str, python: str, arrays: Path) -> dict[str, float]:
    """Runs one side in a process of its own."""
    command = [python, __file__, "--side", name, "--arrays", str(arrays)]
    environment = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(rounds: int, peer: str) -> None:
    """Lets the sides take turns, and prints medians."""
    sides = {"lockstep": sys.executable, "TensorFlow": peer}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as directory:
        arrays = prepare(Path(directory))
        for number in range(rounds):
            for name, python in sides.items():
                found[name].append(measured(name, python, arrays))
                print(f"round {number + 1}, {name}: {found[name][-1]['steps/s']:.1f} steps/s", flush=True)
    ours, theirs = ({k: statistics.median(r[k] for r in found[n]) for k in found[n][0]} for n in sides)
    print(f"\n{'':28}{'lockstep':>12}{'TensorFlow':>12}{'ratio':>8}")
    for row, value in ours.items():
        print(f"{row:28}{value:12.2f}{theirs[row]:12.2f}{value / theirs[row]:8.2f}")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", default=".venv/tensorflow/bin/python")
    parser.add_argument("--side")
    parser.add_argument("--arrays", type=Path)
    given = parser.parse_args()
    if given.side:
        print(json.dumps(side(given.side, given.arrays)))
    elif not Path(given.peer).exists():
        sys.exit(f"There is no {given.peer}. Run `make bench-estimator`, or name a Python with tensorflow-cpu 2.15.1.")
    else:
        compare(given.rounds, given.peer)


if __name__ == "__main__":
    main()
