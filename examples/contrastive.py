"""Trains an encoder of MNIST's digits without labels: two noisy views of a digit should be near each other (InfoNCE).

lockstep run --workers 2 examples/contrastive.py    two workers on this machine
python examples/contrastive.py                      one process; elsewhere, TF_CONFIG says who takes part

Each picture is compared with those of the whole batch. The step is written for one replica: it encodes its own share,
and gathers the embeddings of all replicas. Gradients flow back through the gathering.
"""

from __future__ import annotations

import argparse

import lockstep as ls

# isort: split
import jax
import jax.numpy as jnp
import numpy as np
import optax

TEMPERATURE = 0.2


def first_params():
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype("float32") / np.sqrt(shape[0]) for shape in ((784, 128), (128, 32))]


def encode(params, images):
    """Points on the unit sphere, (n, 32)."""
    hidden, out = params
    x = jax.nn.gelu(images.reshape(len(images), 784) @ hidden) @ out
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


def train(strategy, args):
    """Returns the trained parameters, and the program that has trained them."""
    mnist = ls.datasets.load_mnist()
    pictures = mnist.train_images[: args.rows].astype("float32") / 255
    dataset = ls.data.Dataset.from_tensor_slices(pictures).shuffle(len(pictures), seed=0).batch(args.batch)
    optimizer = optax.adam(1e-3)

    def loss_fn(params, images, key):
        """How hard it is to tell, for each own picture, which of all pictures is another view of it."""
        replica = ls.distribute.get_replica_context()
        views = [images + 0.3 * ls.random.for_batch(jax.random.normal, k, images.shape) for k in jax.random.split(key)]
        own, other = (encode(params, view) for view in views)
        everyone = replica.all_gather(other, axis=0)
        logits = own @ everyone.T / TEMPERATURE
        return optax.softmax_cross_entropy_with_integer_labels(logits, ls.random.rows_of_batch(len(images))).mean()

    def step(state, images):
        """Written for one replica's share."""
        params, optimizer_state, key = state
        key, own = jax.random.split(key)
        loss, gradients = jax.value_and_grad(loss_fn)(params, images, own)
        gradients = ls.distribute.get_replica_context().average_gradients(gradients)
        updates, optimizer_state = optimizer.update(gradients, optimizer_state)
        return (optax.apply_updates(params, updates), optimizer_state, key), {"loss": loss}

    params = first_params()
    program = ls.training.Program(step, strategy, view="replica")
    state = (params, optimizer.init(params), jax.random.key(0))
    params, *_ = program.fit(state, dataset, epochs=args.epochs, checkpoint_dir=args.checkpoint_dir)
    return params, program


def nearest(params, known, labels, images):
    """The label of the nearest picture that is known."""
    return labels[np.argmax(encode(params, images) @ encode(params, known).T, -1)]


def main():
    parser = argparse.ArgumentParser(description="Trains an encoder of MNIST's digits without labels.")
    parser.add_argument("--epochs", type=int, default=5, help="passes over the training images (default: 5)")
    parser.add_argument("--batch", type=int, default=256, help="images of a step, over all workers (default: 256)")
    parser.add_argument("--rows", type=int, help="train on the first images only")
    parser.add_argument("--checkpoint-dir", help="where checkpoints are, from which training goes on (default: none)")
    args = parser.parse_args()

    strategy = ls.distribute.MultiWorkerMirroredStrategy()  # Joins the workers; reads TF_CONFIG.
    params, program = train(strategy, args)
    if program.is_chief:
        mnist = ls.datasets.load_mnist()
        known, images = (a[:5000].astype("float32") / 255 for a in (mnist.train_images, mnist.test_images))
        found = nearest(params, known, mnist.train_labels[:5000], images)
        print(
            f"Test accuracy of the nearest of {len(known)} pictures: {np.mean(found == mnist.test_labels[:5000]):.4f}"
        )


if __name__ == "__main__":
    main()
