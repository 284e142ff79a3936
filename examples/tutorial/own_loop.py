"""A step of your own, in JAX and optax; the loop, the checkpoints and the restarts are lockstep's."""

import lockstep as ls
import jax
import jax.numpy as jnp
import numpy as np
import optax

strategy = ls.distribute.MultiWorkerMirroredStrategy()
optimizer = optax.adam(1e-2)

rng = np.random.default_rng(0)
x = rng.normal(size=(1000, 8)).astype("float32")
y = np.tanh(x.sum(axis=1))
dataset = ls.data.Dataset.from_tensor_slices((x, y)).shuffle(1000, seed=0).batch(50)


def step(state, batch):
    """Makes one step on a global batch: returns the new state, and what is logged."""
    inputs, targets = batch

    def loss_fn(params):
        outputs = jnp.tanh(inputs @ params["hidden"]) @ params["out"]
        return jnp.mean((outputs - targets) ** 2)

    loss, gradients = jax.value_and_grad(loss_fn)(state["params"])
    updates, optimizer_state = optimizer.update(gradients, state["optimizer"])
    return {"params": optax.apply_updates(state["params"], updates), "optimizer": optimizer_state}, {"loss": loss}


params = {
    "hidden": rng.normal(0, 0.3, (8, 32)).astype("float32"),
    "out": rng.normal(0, 0.2, 32).astype("float32"),
}
program = ls.training.Program(step, strategy)
state = program.fit({"params": params, "optimizer": optimizer.init(params)}, dataset, epochs=3, verbose=0)
if program.is_chief:
    print(f"loss {program.history['loss'][-1]:.4f}")
