"""Trains a generative adversarial network of Keras layers on MNIST: two models, two optimizers, one step.

lockstep run --workers 2 examples/gan.py    two workers on this machine
python examples/gan.py                      one process; elsewhere, TF_CONFIG says who takes part
"""

from __future__ import annotations

import argparse

import lockstep as ls  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
from keras import layers

NOISE = 32


def make_generator():
    stack = [layers.Dense(128, "gelu"), layers.Dense(784, "tanh"), layers.Reshape((28, 28))]
    return keras.Sequential([keras.Input((NOISE,)), *stack])


def make_critic():
    """Says of a picture, as a logit, how much it looks like one of the data."""
    stack = [layers.Flatten(), layers.Dense(128, "gelu"), layers.LayerNormalization(), layers.Dense(1)]
    return keras.Sequential([keras.Input((28, 28)), *stack])


def weights_of(model):
    return [variable.value for variable in model.trainable_variables]


def train(strategy, args):
    """Returns the trained generator and its weights, and the program that has trained them."""
    mnist = ls.datasets.load_mnist()
    pictures = mnist.train_images[: args.rows].astype("float32") / 127.5 - 1
    dataset = ls.data.Dataset.from_tensor_slices(pictures).shuffle(len(pictures), seed=0).batch(args.batch)

    keras.utils.set_random_seed(0)
    generator, critic = make_generator(), make_critic()
    optimizer = optax.adam(2e-4, b1=0.5)

    def made(weights, noise):
        return generator.stateless_call(weights, [], noise)[0]

    def judged(weights, pictures):
        return critic.stateless_call(weights, [], pictures)[0]

    def critic_loss(weights, real, fake):
        return jnp.mean(jax.nn.softplus(-judged(weights, real)) + jax.nn.softplus(judged(weights, fake)))

    def generator_loss(weights, critic_weights, noise):
        return jnp.mean(jax.nn.softplus(-judged(critic_weights, made(weights, noise))))

    def step(state, real):
        """First the critic, then the generator; the noise is drawn for the whole batch."""
        generator_weights, generator_state, critic_weights, critic_state, key = state
        key, own = jax.random.split(key)
        noise = jax.random.normal(own, (len(real), NOISE))

        loss_c, gradients = jax.value_and_grad(critic_loss)(critic_weights, real, made(generator_weights, noise))
        updates, critic_state = optimizer.update(gradients, critic_state)
        critic_weights = optax.apply_updates(critic_weights, updates)

        loss_g, gradients = jax.value_and_grad(generator_loss)(generator_weights, critic_weights, noise)
        updates, generator_state = optimizer.update(gradients, generator_state)
        generator_weights = optax.apply_updates(generator_weights, updates)

        state = (generator_weights, generator_state, critic_weights, critic_state, key)
        return state, {"critic": loss_c, "generator": loss_g}

    starts = [weights_of(generator), weights_of(critic)]
    state = (starts[0], optimizer.init(starts[0]), starts[1], optimizer.init(starts[1]), jax.random.key(1))
    program = ls.training.Program(step, strategy)
    weights, *_ = program.fit(state, dataset, epochs=args.epochs, checkpoint_dir=args.checkpoint_dir)
    return (generator, weights), program


def drawn(picture):
    """A picture as text."""
    return "\n".join("".join(" .:*#"[min(4, int(2.5 * (v + 1)))] for v in row) for row in picture[2:-2:2])


def main():
    parser = argparse.ArgumentParser(description="Trains a generative adversarial network on MNIST.")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the training images (default: 20)")
    parser.add_argument("--batch", type=int, default=128, help="images of a step, over all workers (default: 128)")
    parser.add_argument("--rows", type=int, help="train on the first images only")
    parser.add_argument("--checkpoint-dir", help="where checkpoints are, from which training goes on (default: none)")
    args = parser.parse_args()

    strategy = ls.distribute.MultiWorkerMirroredStrategy()  # Joins the workers; reads TF_CONFIG.
    (generator, weights), program = train(strategy, args)
    if program.is_chief:
        noise = jax.random.normal(jax.random.key(2), (1, NOISE))
        print("A digit that nobody has written:")
        print(drawn(np.asarray(generator.stateless_call(weights, [], noise)[0][0])))


if __name__ == "__main__":
    main()
