"""Losses that a user gives to a head."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._types import PyTree
from lockstep.errors import ArgumentError

_DEMANDED = {"labels", "logits"}
_OPTIONAL = {"features", "loss_reduction"}


def check_loss_fn(function: Any) -> Callable[..., Any] | None:
    """Checks a loss function; `None` stays.

    Raises:
        ArgumentError: If its arguments are not labels and logits, and maybe features and loss_reduction.
    """
    if function is None:
        return None
    names = set(inspect.signature(function).parameters) if callable(function) else set[str]()
    if not names >= _DEMANDED or names - _DEMANDED - _OPTIONAL:
        raise ArgumentError(
            "loss_fn must be a function of labels and logits, and maybe features and loss_reduction. Received: "
            f"{function!r} with the arguments {sorted(names)}."
        )
    return function


def call(
    function: Callable[..., Any], labels: jax.Array, logits: jax.Array, features: PyTree, reduction: str, dimension: int
) -> jax.Array:
    """Returns the losses that a function computes: (..., dimension).

    Raises:
        ArgumentError: If they have another shape.
    """
    names = set(inspect.signature(function).parameters)
    given = {"features": features, "loss_reduction": reduction}
    losses = jnp.asarray(function(labels=labels, logits=logits, **{k: v for k, v in given.items() if k in names}))
    expected = (*logits.shape[:-1], dimension)
    if losses.shape != expected:
        raise ArgumentError(
            f"loss_fn must return a loss for each example, of shape {expected}. Received: {losses.shape}. Do not "
            "reduce it: the head does."
        )
    return losses
