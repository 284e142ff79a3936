"""TensorBoard summaries of canned models."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from keras.src.backend.common.name_scope import current_path

from lockstep._types import Array, Variable
from lockstep.estimator._heads._head import add_scalar
from lockstep.estimator._model_fn.records import SummaryOp
from lockstep.estimator._model_fn.scope import current


def add_layer(values: Array, name: str) -> None:
    """Adds a layer's histogram of activations and fraction of zeros, under the current name scope."""
    tag = "/".join(part for part in (current_path(), name) if part)
    add_scalar(f"{tag}/fraction_of_zero_values", jnp.mean(values == 0))
    add_histogram(f"{tag}/activation", values)


def add_weights(bias: Variable, weights: Sequence[Variable]) -> None:
    """Adds a linear model's bias and fraction of zero weights."""
    if bias.shape[0] > 1:
        add_histogram("bias", bias.value)
    else:
        add_scalar("bias", bias.value[0])
    zeros = sum(jnp.sum(variable.value == 0) for variable in weights)
    add_scalar("fraction_of_zero_weights", zeros / sum(variable.value.size for variable in weights))


def add_histogram(tag: str, values: Array) -> None:
    """Adds a histogram; outside of a model_fn, does nothing."""
    scope = current()
    if scope is not None:
        scope.add_summary(SummaryOp("histogram", tag, values))
