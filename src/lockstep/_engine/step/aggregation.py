"""Aggregation: combines what replicas, or shards of a batch, have computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._engine.step import error_feedback
from lockstep._engine.step.jaxprs import is_traced
from lockstep._engine.step.reduction import Reduction
from lockstep._types import Array, PyTree

# Replicas must not draw the same dropout masks; odd, so that seeds of different replicas never meet.
_SEED_STRIDE = 0x9E3779B1
# What lockstep.estimator.losses and Keras call it.
_SUMS = ("weighted_sum", "sum")


@dataclass(frozen=True)
class VariableUpdate:
    """The values that the shards here have given a variable.

    Attributes:
        is_seed: Whether it is the state of a random generator.
        aggregation: As `keras.Variable.aggregation` says.
        before: Its value before the step.
        after: Its value after the step of each shard here.
    """

    is_seed: bool
    aggregation: str
    before: Array
    after: Sequence[Array]


@dataclass(frozen=True)
class Shards:
    """Shards of a global batch that are computed here, and how much each counts.

    Attributes:
        data: One after another on this replica.
        weights: Of each; over all replicas they add up to 1.
        axis: The mesh axis over which other replicas compute theirs, or `None` if all shards are here.
        count: How many replicas there are along the axis.
        reduction: How values are added up over the axis.
    """

    data: Sequence[Any]
    weights: Sequence[float]
    axis: str | None = None
    count: int = 1
    reduction: Reduction = field(default_factory=Reduction)

    def of_loss(self, reduction: str | None) -> Shards:
        """Returns the shards for a loss and its gradients: losses that are sums are added up, all others averaged.

        Source: tf.distribute.get_loss_reduction, for Estimators.
        """
        return replace(self, weights=[1.0] * len(self.weights)) if reduction in _SUMS else self

    def mean(self, values: Sequence[PyTree]) -> Any:
        """Averages a structure of floats: one for each shard here, and those of the other replicas."""
        return self._mean(values, self.reduction.sum)

    def mean_of_gradients(self, values: Sequence[PyTree]) -> Any:
        """Averages gradients, which may be asked for in fewer bytes."""
        if self.axis is None or not self.reduction.compresses:
            return self.mean(values)
        return self._mean(values, partial(error_feedback.current().sum, self.reduction))

    def _mean(self, values: Sequence[PyTree], summed: Callable[[list[Any], str, int], list[Any]]) -> Any:
        if len(values) == 1 and self.axis is None and self.weights[0] == 1:
            return values[0]
        leaves, treedef = zip(*(jax.tree.flatten(v) for v in values), strict=True)
        columns = list(zip(*leaves, strict=True))
        # What is not computed is the same everywhere.
        traced = [i for i, column in enumerate(columns) if is_traced(column[0])]
        means = [column[0] for column in columns]
        sums = [_sum_weighted(columns[i], self.weights) for i in traced]
        if self.axis is not None:
            sums = summed(sums, self.axis, self.count)
        for i, value in zip(traced, sums, strict=True):
            means[i] = value
        return jax.tree.unflatten(treedef[0], means)

    def first(self, values: Sequence[PyTree]) -> Any:
        """Returns the array of the first shard of all."""
        # From all, for one: XLA has no broadcast between processes.
        is_same = self.axis is None or not is_traced(values[0])
        return values[0] if is_same else lax.all_gather(values[0], self.axis)[0]

    def own_seed(self, number: int, seed: Array) -> Any:
        """Returns the state of a random generator for one of the shards here."""
        # One shard draws what one device would.
        if self.axis is None and number == 0:
            return seed
        return _shift_seed(seed, number if self.axis is None else lax.axis_index(self.axis))

    @staticmethod
    def common_seed(before: Array, after: Array) -> Any:
        """Returns the state of a random generator for the next step, of one that a shard had as its own."""
        # The second word counts draws; the first tells replicas apart, and goes back to what all share.
        return after.at[0].set(before[0])

    def combine(self, variables: Sequence[VariableUpdate]) -> list[Any]:
        """Combines what the shards have made of variables, with one sum for all of them."""
        combined: list[Any] = [None] * len(variables)
        summands: dict[int, Any] = {}
        for i, made in enumerate(variables):
            if made.is_seed:
                combined[i] = self.common_seed(made.before, made.after[0])
            # The old value must count once, not once for each replica.
            elif made.aggregation == "sum":
                deltas = [a - made.before for a in made.after]
                summands[i] = sum(deltas[1:], deltas[0])
            elif made.aggregation == "only_first_replica" or not jnp.issubdtype(made.before.dtype, jnp.inexact):
                combined[i] = self.first(made.after)
            elif self.axis is None or not is_traced(made.after[0]):
                combined[i] = self.mean(made.after)
            else:
                summands[i] = _sum_weighted(made.after, self.weights)
        # One all-reduce for all of them: small ones cost their latency, whatever their size.
        totals = list(summands.values())
        if self.axis is not None:
            totals = self.reduction.sum(totals, self.axis, self.count)
        for i, total in zip(summands, totals, strict=True):
            combined[i] = variables[i].before + total if variables[i].aggregation == "sum" else total
        return combined

    def shown(self, values: Sequence[PyTree]) -> Any:
        """Returns an output for hooks: the mean of a float, else the value of the first shard here."""
        value = values[0]
        if jnp.ndim(value) == 0 and jnp.issubdtype(jnp.result_type(value), jnp.inexact):
            return self.mean(values)
        return value


@dataclass(frozen=True)
class LocalShards(Shards):
    """Shards of a replica that trains by itself: combined with nothing of the others, but for its own seeds.

    Attributes:
        place: Where it draws its seeds among all replicas.
        part: Which part of the global batch all shards here are together.
    """

    place: Any = 0
    part: float = 1.0

    def of_loss(self, reduction: str | None) -> Shards:
        """Returns the shards for a loss: one that is a sum is taken for the sum that the global batch would have."""
        return replace(self, weights=[1 / self.part] * len(self.weights)) if reduction in _SUMS else self

    def own_seed(self, number: int, seed: Array) -> Any:
        """Returns the state of a random generator for one of the shards here."""
        return _shift_seed(seed, self.place * len(self.data) + number)


def _shift_seed(seed: Array, place: Any) -> Any:
    stride = jnp.asarray(_SEED_STRIDE, jnp.uint32).astype(seed.dtype)
    return seed.at[0].add(jnp.asarray(place).astype(seed.dtype) * stride)


def _sum_weighted(values: Sequence[PyTree], weights: Sequence[float]) -> Any:
    parts = [v * jnp.asarray(w, jnp.result_type(v)) for v, w in zip(values, weights, strict=True)]
    return sum(parts[1:], parts[0])
