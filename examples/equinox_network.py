"""Trains an Equinox model on MNIST: the model itself, functions and settings included, is a part of the state.

lockstep run --workers 2 examples/equinox_network.py    two workers on this machine
python examples/equinox_network.py                      one process; elsewhere, TF_CONFIG says who takes part

Needs `pip install equinox`.
"""

from __future__ import annotations

import argparse

import lockstep as ls

# isort: split
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


class Network(eqx.Module):
    """Reads the rows of a picture one after the other."""

    cell: eqx.nn.GRUCell
    dropout: eqx.nn.Dropout
    out: eqx.nn.MLP

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(28, 32, key=first)
        self.dropout = eqx.nn.Dropout(0.2)
        self.out = eqx.nn.MLP(32, 10, 32, 1, activation=jax.nn.gelu, key=second)

    def __call__(self, image, key=None):
        hidden, _ = jax.lax.scan(lambda h, row: (self.cell(row, h), None), jnp.zeros(32), image / 255)
        return self.out(self.dropout(hidden, key=key))


def train(strategy, args):
    """Returns the trained model, and the program that has trained it."""
    mnist = ls.datasets.load_mnist()
    digits = (mnist.train_images[: args.rows].astype("float32"), mnist.train_labels[: args.rows].astype("int32"))
    dataset = ls.data.Dataset.from_tensor_slices(digits).shuffle(len(digits[0]), seed=0).batch(args.batch)
    optimizer = optax.adam(1e-3)

    def loss_fn(network, images, labels, key):
        logits = jax.vmap(network)(images, jax.random.split(key, len(images)))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def step(state, batch):
        """Written for the whole batch, whoever computes it."""
        network, optimizer_state, key = state
        key, own = jax.random.split(key)
        loss, gradients = eqx.filter_value_and_grad(loss_fn)(network, *batch, own)
        updates, optimizer_state = optimizer.update(gradients, optimizer_state)
        return (eqx.apply_updates(network, updates), optimizer_state, key), {"loss": loss}

    network = Network(jax.random.key(0))
    state = (network, optimizer.init(eqx.filter(network, eqx.is_array)), jax.random.key(1))
    program = ls.training.Program(step, strategy)
    network, *_ = program.fit(state, dataset, epochs=args.epochs, checkpoint_dir=args.checkpoint_dir)
    return network, program


def main():
    parser = argparse.ArgumentParser(description="Trains an Equinox model on MNIST.")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the training images (default: 3)")
    parser.add_argument("--batch", type=int, default=128, help="images of a step, over all workers (default: 128)")
    parser.add_argument("--rows", type=int, help="train on the first images only")
    parser.add_argument("--checkpoint-dir", help="where checkpoints are, from which training goes on (default: none)")
    args = parser.parse_args()

    strategy = ls.distribute.MultiWorkerMirroredStrategy()  # Joins the workers; reads TF_CONFIG.
    network, program = train(strategy, args)
    if program.is_chief:
        mnist = ls.datasets.load_mnist()
        logits = jax.vmap(eqx.nn.inference_mode(network))(mnist.test_images.astype("float32"))
        print(f"Test accuracy: {np.mean(np.argmax(logits, -1) == mnist.test_labels):.4f}")


if __name__ == "__main__":
    main()
