from __future__ import annotations

import jax
import numpy as np
import optax

import lockstep as ls

strategy = ls.distribute.MultiWorkerMirroredStrategy()
digits = ls.datasets.load_mnist()
images = digits.train_images.reshape(-1, 784).astype("float32") / 255
dataset = ls.data.Dataset.from_tensor_slices((images, digits.train_labels)).shuffle(60000, seed=0).batch(128)
optimizer = optax.adam(1e-3)


def loss_fn(params, images, labels):
    logits = jax.nn.gelu(images @ params["hidden"]) @ params["out"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def step(state, batch):
    params, optimizer_state = state
    loss, gradients = jax.value_and_grad(loss_fn)(params, *batch)
    updates, optimizer_state = optimizer.update(gradients, optimizer_state)
    return (optax.apply_updates(params, updates), optimizer_state), {"loss": loss}


rng = np.random.default_rng(0)
params = {"hidden": rng.normal(0, 0.05, (784, 128)), "out": rng.normal(0, 0.1, (128, 10))}
state = (params, optimizer.init(params))
program = ls.training.Program(step, strategy)
state = program.fit(state, dataset, epochs=3, checkpoint_dir="runs/own", save_every=100)
