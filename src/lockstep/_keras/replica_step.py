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

from lockstep._keras.batch_moments import moments_over_replicas
from lockstep._keras.replaced import replaced
from lockstep._step.program import Step
from lockstep._step.reduction import Reduction
from lockstep._step.replicas import AXIS, Replicas

# Replicas must not draw the same dropout masks; odd, so that seeds of different replicas never meet.
_SEED_STRIDE = 0x9E3779B1


def replica_train_step(model: Any, replicas: Replicas) -> Step:
    """Returns `model.train_step` for use inside `shard_map` over `replicas.AXIS`."""

    def step(state: Any, data: Any) -> tuple[Any, Any]:
        with _averaged_gradients(replicas), _batch_statistics(replicas):
            logs, after = model.train_step(_with_own_seeds(model, state), data)
        after = _combined(model, state, after)
        return _combined_logs(model, logs, after), after

    return step


@contextlib.contextmanager
def _averaged_gradients(replicas: Replicas) -> Generator[None]:
    """While open, every optimizer's `stateless_apply` averages its gradients over the replicas first."""
    reduction = replicas.reduction or Reduction()
    with contextlib.ExitStack() as stack:
        for owner in (BaseOptimizer, LossScaleOptimizer):
            stack.enter_context(replaced(owner, "stateless_apply", lambda f: _averaging(f, reduction, replicas.count)))
        yield


def _averaging(apply: Callable[..., Any], reduction: Reduction, count: int) -> Callable[..., Any]:
    inside = False

    def averaged(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        nonlocal inside
        if inside:  # An optimizer that wraps another one hands down gradients that are averaged already.
            return apply(self, optimizer_variables, grads, trainable_variables)
        inside = True
        try:
            return apply(self, optimizer_variables, _average(grads, reduction, count), trainable_variables)
        finally:
            inside = False

    return averaged


def _average(grads: Any, reduction: Reduction, count: int) -> list[Any]:
    present = [i for i, g in enumerate(grads) if g is not None]
    sums = reduction.sum([grads[i] for i in present], AXIS, count)
    averaged = list(grads)
    for i, total in zip(present, sums, strict=True):
        averaged[i] = total / count
    return averaged


def _batch_statistics(replicas: Replicas) -> contextlib.AbstractContextManager[None]:
    if replicas.batch_statistics == "global":
        return moments_over_replicas(AXIS)
    return contextlib.nullcontext()


def _with_own_seeds(model: Any, state: Any) -> Any:
    """Gives each replica seeds of its own."""
    trainable, non_trainable, optimizer, metrics = state
    own = [
        _own_seed(value) if _is_seed(variable) else value
        for variable, value in zip(model.non_trainable_variables, non_trainable, strict=True)
    ]
    return trainable, own, optimizer, metrics


def _own_seed(value: jax.Array) -> jax.Array:
    replica = lax.axis_index(AXIS).astype(value.dtype)
    return value.at[0].add(replica * jnp.asarray(_SEED_STRIDE, jnp.uint32).astype(value.dtype))


def _is_seed(variable: Any) -> bool:
    return variable.path.endswith("seed_generator_state")


def _combined(model: Any, before: Any, after: Any) -> Any:
    trainable, non_trainable, optimizer, metrics = after
    return (
        trainable,
        _combine_group(model.non_trainable_variables, before[1], non_trainable),
        optimizer,
        _combine_group(model.metrics_variables, before[3], metrics),
    )


def _combine_group(variables: Any, before: Any, after: Any) -> list[jax.Array]:
    return [_combine(*triple) for triple in zip(variables, before, after, strict=True)]


def _combine(variable: Any, before: jax.Array, after: jax.Array) -> jax.Array:
    if _is_seed(variable):
        return after.at[0].set(before[0])
    if variable.aggregation == "sum":
        return before + lax.psum(after - before, AXIS)
    if variable.aggregation == "only_first_replica" or not jnp.issubdtype(after.dtype, jnp.inexact):
        return lax.all_gather(after, AXIS)[0]
    return lax.pmean(after, AXIS)


def _combined_logs(model: Any, logs: Any, state: Any) -> Any:
    """Metrics' results over all replicas; what else a step logs is averaged."""
    results = _metric_results(model, state)
    if isinstance(logs, dict) and set(logs) == set(results):
        return results
    return jax.tree.map(lambda v: lax.pmean(jnp.asarray(v), AXIS), logs)


def _metric_results(model: Any, state: Any) -> dict[str, Any]:
    with backend.StatelessScope(state_mapping=list(zip(model.metrics_variables, state[3], strict=True))):
        return model.get_metrics_result()
