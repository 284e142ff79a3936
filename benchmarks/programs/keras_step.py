"""A bare jitted step around a Keras 3 model, as Keras' guide to custom loops in JAX writes it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def bare(model: Any) -> tuple[Any, Any]:
    """Returns `(state, step)` of a compiled model, for the loops of `jax_loops`."""
    model.optimizer.build(model.trainable_variables)
    loss_function = model.loss

    def loss_of(trainable: Any, others: Any, x: Any, y: Any) -> Any:
        logits, others = model.stateless_call(trainable, others, x, training=True)
        return loss_function(y, logits), (logits, others)

    def step(state: Any, batch: Any) -> Any:
        (trainable, others), slots, totals = state
        x, y = batch
        (loss, (logits, others)), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable, others, x, y)
        trainable, slots = model.optimizer.stateless_apply(slots, gradients, trainable)
        hits = (logits.argmax(-1) == y).mean()
        return (trainable, others), slots, totals + jnp.stack([loss, hits.astype(jnp.float32), jnp.float32(1)])

    values = [[v.value for v in group] for group in (model.trainable_variables, model.non_trainable_variables)]
    return (tuple(values), [v.value for v in model.optimizer.variables], jnp.zeros(3)), step
