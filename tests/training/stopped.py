"""A training in rounds of local steps that the chief alone asks to end, at the last step of an epoch."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import lockstep as ls
from lockstep.training import Every, Program
from tests.engine.keras.local_cases import local

EPOCH, BATCH = 3, 4


def _step(state: Any, batch: Any) -> Any:
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((batch @ w - 1) ** 2))(state["w"])
    return {"w": state["w"] - 0.1 * gradient}, {"loss": loss}


def stopped(strategy: Any) -> dict[str, np.ndarray]:
    """A round has 4 steps, so that one is under way where an epoch ends."""
    rows = np.random.default_rng(0).normal(size=(EPOCH * BATCH, 3)).astype("float32")

    def stop(training: Any, logs: Any) -> None:
        training.stop_training = training.stop_training or training.step == 2 * EPOCH

    program = Program(_step, local(strategy, every=4), parameters=lambda state: state["w"])
    data = ls.data.Dataset.from_tensor_slices(rows).batch(BATCH)
    after = program.fit({"w": jnp.zeros(3)}, data, epochs=4, verbose=0, callbacks=[Every(EPOCH, stop)])
    return {"w": np.asarray(after["w"]), "losses": np.asarray(program.history["loss"])}
