"""What canned estimators tell TensorBoard of their layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from keras.src.backend.common.name_scope import current_path

from lockstep._model_fn.records import SummaryOp
from lockstep._model_fn.scope import current
from lockstep.estimator._heads._head import add_scalar


def add_layer(values: Any, name: str) -> None:
    """Adds how a layer's values are distributed, and how many are zero; under the open name scope."""
    tag = "/".join(part for part in (current_path(), name) if part)
    add_scalar(f"{tag}/fraction_of_zero_values", jnp.mean(values == 0))
    add_histogram(f"{tag}/activation", values)


def add_weights(bias: Any, weights: Sequence[Any]) -> None:
    """Adds the bias of a linear model, and how many of its weights are zero."""
    if bias.shape[0] > 1:
        add_histogram("bias", bias.value)
    else:
        add_scalar("bias", bias.value[0])
    zeros = sum(jnp.sum(variable.value == 0) for variable in weights)
    add_scalar("fraction_of_zero_weights", zeros / sum(variable.value.size for variable in weights))


def add_histogram(tag: str, values: Any) -> None:
    """Adds the distribution of values for TensorBoard, if a model_fn is running."""
    scope = current()
    if scope is not None:
        scope.add_summary(SummaryOp("histogram", tag, values))
