"""How what replicas, or shares of a batch, have computed becomes one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._step.reduction import Reduction
from lockstep._step.tracing import is_traced

# Replicas must not draw the same dropout masks; odd, so that seeds of different replicas never meet.
_SEED_STRIDE = 0x9E3779B1
# What lockstep.losses and Keras call it.
_SUMS = ("weighted_sum", "sum")


@dataclass(frozen=True)
class Shares:
    """Parts of a global batch that are computed here, and how much each counts.

    Attributes:
        data: One after another on this replica.
        weights: Of each; over all replicas they add up to 1.
        axis: The mesh axis over which other replicas compute theirs, or `None` if all shares are here.
        count: How many replicas there are along the axis.
        reduction: How values are added up over the axis.
    """

    data: Sequence[Any]
    weights: Sequence[float]
    axis: str | None = None
    count: int = 1
    reduction: Reduction = field(default_factory=Reduction)

    def of_loss(self, reduction: str | None) -> Shares:
        """How the loss, and its gradients, are combined: losses that are sums are added up, all others averaged.

        Source: tf.distribute.get_loss_reduction, for Estimators.
        """
        return replace(self, weights=[1.0] * len(self.weights)) if reduction in _SUMS else self

    def mean(self, values: Sequence[Any]) -> Any:
        """Averages a structure of floats: one for each share here, and those of the other replicas."""
        if len(values) == 1 and self.axis is None:
            return values[0]
        leaves, treedef = zip(*(jax.tree.flatten(v) for v in values), strict=True)
        columns = list(zip(*leaves, strict=True))
        # What is not computed is the same everywhere.
        traced = [i for i, column in enumerate(columns) if is_traced(column[0])]
        means = [column[0] for column in columns]
        sums = [_weighted(columns[i], self.weights) for i in traced]
        if self.axis is not None:
            sums = self.reduction.sum(sums, self.axis, self.count)
        for i, value in zip(traced, sums, strict=True):
            means[i] = value
        return jax.tree.unflatten(treedef[0], means)

    def total(self, values: Sequence[Any]) -> Any:
        """Adds up arrays: one for each share here, and those of the other replicas."""
        found: Any = sum(values[1:], values[0])
        return found if self.axis is None else self.reduction.sum([found], self.axis, self.count)[0]

    def first(self, values: Sequence[Any]) -> Any:
        """Returns the array of the first share of all."""
        is_same = self.axis is None or not is_traced(values[0])
        return values[0] if is_same else lax.all_gather(values[0], self.axis)[0]

    def own_seed(self, number: int, seed: Any) -> Any:
        """Returns the state of a random generator for one of the shares here."""
        if self.axis is None and number == 0:
            return seed
        place = number if self.axis is None else lax.axis_index(self.axis)
        stride = jnp.asarray(_SEED_STRIDE, jnp.uint32).astype(seed.dtype)
        return seed.at[0].add(jnp.asarray(place).astype(seed.dtype) * stride)

    def combine(self, is_seed: bool, aggregation: str, before: Any, after: Sequence[Any]) -> Any:
        """Combines what the shares have made of a variable.

        Args:
            is_seed: Whether it is the state of a random generator.
            aggregation: As `keras.Variable.aggregation` says.
            before: Its value.
            after: What each share here has made of it.
        """
        if is_seed:
            return after[0].at[0].set(before[0])
        if aggregation == "sum":
            return before + self.total([a - before for a in after])
        if aggregation == "only_first_replica" or not jnp.issubdtype(before.dtype, jnp.inexact):
            return self.first(after)
        return self.mean(after)

    def shown(self, values: Sequence[Any]) -> Any:
        """What hooks see of an output: the mean of a float, else what the first share here has."""
        value = values[0]
        if jnp.ndim(value) == 0 and jnp.issubdtype(jnp.result_type(value), jnp.inexact):
            return self.mean(values)
        return value


def _weighted(values: Sequence[Any], weights: Sequence[float]) -> Any:
    parts = [v * jnp.asarray(w, jnp.result_type(v)) for v, w in zip(values, weights, strict=True)]
    return sum(parts[1:], parts[0])
