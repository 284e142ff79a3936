"""Trains, evaluates and exports a classifier of MNIST's digits with an Estimator.

lockstep run --workers 2 --evaluator examples/estimator.py    two workers, and a process that evaluates and exports
python examples/estimator.py                                  one process does all of it; elsewhere, TF_CONFIG says who
"""

from __future__ import annotations

import argparse
import os

import lockstep as ls  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import keras
import numpy as np

BATCH_PER_REPLICA = 64


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains an Estimator on MNIST.")
    parser.add_argument("--max-steps", type=int, default=300, help="steps of training (default: 300)")
    parser.add_argument("--model-dir", default="runs/estimator", help="default: runs/estimator")
    args = parser.parse_args()

    strategy = ls.distribute.MultiWorkerMirroredStrategy()  # Joins the workers; reads TF_CONFIG.
    mnist = ls.datasets.load_mnist()

    def train_input_fn(input_context=None):
        digits = ls.data.Dataset.from_tensor_slices(({"image": mnist.train_images}, mnist.train_labels))
        if input_context:
            digits = digits.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
        return digits.shuffle(len(mnist.train_images)).repeat().batch(BATCH_PER_REPLICA)

    def eval_input_fn():
        return ls.data.Dataset.from_tensor_slices(({"image": mnist.test_images}, mnist.test_labels)).batch(256)

    def model_fn(features, labels, mode):
        layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(128, activation="relu")]
        logits = keras.Sequential([*layers, keras.layers.Dense(10)])(features["image"])
        if mode == ls.estimator.ModeKeys.PREDICT:
            return ls.estimator.EstimatorSpec(mode, predictions={"digit": keras.ops.argmax(logits, -1)})
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, logits)
        accuracy = ls.estimator.metrics.accuracy(labels, keras.ops.argmax(logits, -1))
        if mode == ls.estimator.ModeKeys.EVAL:
            return ls.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
        ls.estimator.summary.scalar("accuracy", accuracy[1])  # For TensorBoard, beside the loss.
        return ls.estimator.EstimatorSpec(
            mode, loss=loss, train_op=ls.estimator.train.minimize(loss, keras.optimizers.Adam())
        )

    receiver = ls.estimator.export.build_raw_serving_input_receiver_fn({"image": np.zeros((1, 28, 28), np.uint8)})
    config = ls.estimator.RunConfig(train_distribute=strategy, save_checkpoints_steps=100)
    classifier = ls.estimator.Estimator(model_fn, args.model_dir, config)
    metrics, exports = ls.estimator.train_and_evaluate(
        classifier,
        ls.estimator.TrainSpec(train_input_fn, max_steps=args.max_steps),
        ls.estimator.EvalSpec(
            eval_input_fn, steps=None, throttle_secs=5, exporters=ls.estimator.FinalExporter("final", receiver)
        ),
    )
    if metrics is None:
        print(f"{args.model_dir} holds a model of {args.max_steps} steps already; remove it, or ask for more.")
        return
    print(f"Test accuracy: {metrics['accuracy']:.4f} after {metrics['global_step']} steps")
    print(f"Exported: {os.fsdecode(exports[0])}")
    served = ls.saved_model.load(exports[0])
    print(f"Served: {served(image=mnist.test_images[:10])['digit'].tolist()}, truly {mnist.test_labels[:10].tolist()}")


if __name__ == "__main__":
    main()
