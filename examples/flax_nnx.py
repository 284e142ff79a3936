"""Trains a convolutional network of Flax NNX on MNIST, with batch normalisation and dropout.

lockstep run --workers 2 examples/flax_nnx.py    two workers on this machine
python examples/flax_nnx.py                      one process; elsewhere, TF_CONFIG says who takes part

Needs `pip install flax`.
"""

from __future__ import annotations

import argparse

import lockstep as ls

# isort: split
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


class Network(nnx.Module):
    """A convolution and two layers."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 8, (3, 3), strides=2, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.hidden = nnx.Linear(14 * 14 * 8, 32, rngs=rngs)
        self.out = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, images):
        x = jax.nn.gelu(self.norm(self.conv(images[..., None] / 255)))
        x = self.dropout(x.reshape(len(x), -1))
        return self.out(jax.nn.gelu(self.hidden(x)))


def train(strategy, args):
    """Returns the trained network, and the program that has trained it."""
    mnist = ls.datasets.load_mnist()
    digits = (mnist.train_images[: args.rows].astype("float32"), mnist.train_labels[: args.rows].astype("int32"))
    dataset = ls.data.Dataset.from_tensor_slices(digits).shuffle(len(digits[0]), seed=0).batch(args.batch)

    network = Network(nnx.Rngs(0))
    optimizer = nnx.Optimizer(network, optax.adam(1e-3), wrt=nnx.Param)
    graph, state = nnx.split((network, optimizer))

    def loss_fn(network, images, labels):
        return optax.softmax_cross_entropy_with_integer_labels(network(images), labels).mean()

    def step(state, batch):
        """Written for the whole batch: so are the moments of batch normalisation, and the mask of dropout."""
        network, optimizer = nnx.merge(graph, state)
        loss, gradients = nnx.value_and_grad(loss_fn)(network, *batch)
        optimizer.update(network, gradients)
        return nnx.state((network, optimizer)), {"loss": loss}

    program = ls.training.Program(step, strategy)
    state = program.fit(state, dataset, epochs=args.epochs, checkpoint_dir=args.checkpoint_dir)
    return nnx.merge(graph, state)[0], program


def main():
    parser = argparse.ArgumentParser(description="Trains a network of Flax NNX on MNIST.")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the training images (default: 3)")
    parser.add_argument("--batch", type=int, default=128, help="images of a step, over all workers (default: 128)")
    parser.add_argument("--rows", type=int, help="train on the first images only")
    parser.add_argument("--checkpoint-dir", help="where checkpoints are, from which training goes on (default: none)")
    args = parser.parse_args()

    strategy = ls.distribute.MultiWorkerMirroredStrategy()  # Joins the workers; reads TF_CONFIG.
    network, program = train(strategy, args)
    if program.is_chief:
        network.eval()
        mnist = ls.datasets.load_mnist()
        found = jnp.argmax(network(mnist.test_images.astype("float32")), -1)
        print(f"Test accuracy: {np.mean(np.asarray(found) == mnist.test_labels):.4f}")


if __name__ == "__main__":
    main()
