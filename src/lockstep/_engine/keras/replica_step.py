"""A Keras model's `train_step` written for one replica: its share of the batch, explicit reductions.

The optimizer averages the gradients over the replicas before it applies them; then every replica has the same
weights. The rest of the state is combined by what Keras says of each variable (`variable.aggregation`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from keras.src import backend
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from lockstep._engine.keras.batch_moments import moments_over_replicas
from lockstep._engine.keras.replaced import replaced
from lockstep._engine.step.aggregation import Shards, VariableUpdate
from lockstep._engine.step.protocol import Step
from lockstep._engine.step.reduction import Reduction
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._nest import opened


def replica_train_step(model: Any, replicas: Replicas) -> Step:
    """Returns `model.train_step` for use inside `shard_map` over `replicas.AXIS`."""
    count = replicas.count
    shares = Shards([None], [1.0 / count], AXIS, count, replicas.reduction or Reduction())

    def step(state: Any, data: Any) -> tuple[Any, Any]:
        with _averaged_gradients(shares), _batch_statistics(replicas):
            logs, after = model.train_step(with_own_seeds(model, shares, state), opened(data))
        after = _combined(model, shares, state, after)
        return _combined_logs(model, logs, after), after

    return step


@contextlib.contextmanager
def _averaged_gradients(shares: Shards) -> Generator[None]:
    """While open, every optimizer's `stateless_apply` averages its gradients over the replicas first."""
    once = _Once(shares)
    with contextlib.ExitStack() as stack:
        for owner in (BaseOptimizer, LossScaleOptimizer):
            stack.enter_context(replaced(owner, "stateless_apply", once.averaging))
        yield


class _Once:
    """Averages gradients once: an optimizer that wraps another one hands down those that are averaged already."""

    def __init__(self, shares: Shards) -> None:
        self._shares = shares
        self._inside = False

    def averaging(self, apply: Callable[..., Any]) -> Callable[..., Any]:
        """Returns `stateless_apply` of means."""

        def averaged(optimizer: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
            if self._inside:
                return apply(optimizer, optimizer_variables, grads, trainable_variables)
            self._inside = True
            try:
                means = _averaged(self._shares, _scale(optimizer, optimizer_variables), list(grads))
                return apply(optimizer, optimizer_variables, means, trainable_variables)
            finally:
                self._inside = False

        return averaged


def _averaged(shares: Shards, scale: Any, gradients: list[Any]) -> list[Any]:
    """Averages gradients over the replicas; `None` for a gradient that there is not stays."""
    if scale is None or not shares.reduction.compresses:
        return shares.mean_of_gradients([gradients])
    # What is not sent waits for the next step, which may have another scale. Powers of two change no digit.
    means = shares.mean_of_gradients([jax.tree.map(lambda g: g / scale.astype(g.dtype), gradients)])
    return jax.tree.map(lambda g: g * scale.astype(g.dtype), means)


def _scale(optimizer: Any, values: Any) -> Any:
    """By what gradients are multiplied, if that changes as training goes on."""
    if not isinstance(optimizer, LossScaleOptimizer):
        return None
    scale = optimizer.dynamic_scale
    return next(value for variable, value in zip(optimizer.variables, values, strict=True) if variable is scale)


def _batch_statistics(replicas: Replicas) -> contextlib.AbstractContextManager[None]:
    if replicas.batch_statistics == "global":
        return moments_over_replicas(AXIS)
    return contextlib.nullcontext()


def with_own_seeds(model: Any, shares: Shards, state: Any) -> Any:
    """Gives each replica seeds of its own."""
    trainable, non_trainable, optimizer, metrics = state
    own = [
        shares.own_seed(0, value) if is_seed(variable) else value
        for variable, value in zip(model.non_trainable_variables, non_trainable, strict=True)
    ]
    return trainable, own, optimizer, metrics


def combined_seeds(model: Any, shares: Shards, before: Any, after: Any) -> Any:
    """The state after a step, with seeds that are the same on all replicas."""
    trainable, non_trainable, optimizer, metrics = after
    values = zip(model.non_trainable_variables, before[1], non_trainable, strict=True)
    common = [shares.common_seed(was, now) if is_seed(v) else now for v, was, now in values]
    return trainable, common, optimizer, metrics


def is_seed(variable: Any) -> bool:
    """Whether a variable is the state of a random generator."""
    return variable.path.endswith("seed_generator_state")


def _combined(model: Any, shares: Shards, before: Any, after: Any) -> Any:
    trainable, non_trainable, optimizer, metrics = after
    variables = [*model.non_trainable_variables, *model.metrics_variables]
    values = zip(variables, [*before[1], *before[3]], [*non_trainable, *metrics], strict=True)
    combined = shares.combine([VariableUpdate(is_seed(v), v.aggregation, was, [now]) for v, was, now in values])
    count = len(non_trainable)
    return trainable, combined[:count], optimizer, combined[count:]


def _combined_logs(model: Any, logs: Any, state: Any) -> Any:
    """Metrics' results over all replicas; what else a step logs is averaged."""
    results = metric_results(model, state)
    if isinstance(logs, dict) and set(logs) == set(results):
        return results
    return jax.tree.map(lambda v: lax.pmean(jnp.asarray(v), AXIS), logs)


def metric_results(model: Any, state: Any) -> dict[str, Any]:
    """The results of a model's metrics, in a state."""
    with backend.StatelessScope(state_mapping=list(zip(model.metrics_variables, state[3], strict=True))):
        return model.get_metrics_result()
