"""Trains a network in plain JAX, with optax, on MNIST: a loop of one's own with checkpoints and exact restarts.

lockstep run --workers 2 examples/jax_optax.py    two workers on this machine
python examples/jax_optax.py                      one process; elsewhere, TF_CONFIG says who takes part
"""

from __future__ import annotations

import argparse
import itertools

import lockstep as ls

# isort: split
import jax
import jax.numpy as jnp
import numpy as np
import optax

SIZES = (784, 128, 10)


def first_params():
    """He's initialisation."""
    rng = np.random.default_rng(0)
    shapes = itertools.pairwise(SIZES)
    return [(np.sqrt(2 / n) * rng.normal(size=(n, m)).astype("float32"), np.zeros(m, "float32")) for n, m in shapes]


def predict(params, images):
    *hidden, (w, b) = params
    x = images.reshape(len(images), 784) / 255
    for weights, bias in hidden:
        x = jax.nn.gelu(x @ weights + bias)
    return x @ w + b


def train(strategy, args):
    """Returns the trained parameters, and the program that has trained them."""
    mnist = ls.datasets.load_mnist()
    digits = (mnist.train_images[: args.rows].astype("float32"), mnist.train_labels[: args.rows].astype("int32"))
    dataset = ls.data.Dataset.from_tensor_slices(digits).shuffle(len(digits[0]), seed=0).batch(args.batch)
    optimizer = optax.adam(1e-3)

    def loss_fn(params, images, labels):
        return optax.softmax_cross_entropy_with_integer_labels(predict(params, images), labels).mean()

    def step(state, batch):
        """Written for the whole batch, whoever computes it."""
        params, optimizer_state = state
        loss, gradients = jax.value_and_grad(loss_fn)(params, *batch)
        updates, optimizer_state = optimizer.update(gradients, optimizer_state)
        return (optax.apply_updates(params, updates), optimizer_state), {"loss": loss}

    program = ls.training.Program(step, strategy)
    params = first_params()
    params, _ = program.fit(
        (params, optimizer.init(params)), dataset, epochs=args.epochs, checkpoint_dir=args.checkpoint_dir
    )
    return params, program


def main():
    parser = argparse.ArgumentParser(description="Trains a network in plain JAX on MNIST.")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the training images (default: 3)")
    parser.add_argument("--batch", type=int, default=128, help="images of a step, over all workers (default: 128)")
    parser.add_argument("--rows", type=int, help="train on the first images only")
    parser.add_argument("--checkpoint-dir", help="where checkpoints are, from which training goes on (default: none)")
    args = parser.parse_args()

    strategy = ls.distribute.MultiWorkerMirroredStrategy()  # Joins the workers; reads TF_CONFIG.
    params, program = train(strategy, args)
    if program.is_chief:
        mnist = ls.datasets.load_mnist()
        found = jnp.argmax(predict(params, mnist.test_images.astype("float32")), -1)
        print(f"Test accuracy: {np.mean(np.asarray(found) == mnist.test_labels):.4f}")


if __name__ == "__main__":
    main()
