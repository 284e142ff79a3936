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
from lockstep._step.shares import Shares


def replica_train_step(model: Any, replicas: Replicas) -> Step:
    """Returns `model.train_step` for use inside `shard_map` over `replicas.AXIS`."""
    count = replicas.count
    shares = Shares([None], [1.0 / count], AXIS, count, replicas.reduction or Reduction())

    def step(state: Any, data: Any) -> tuple[Any, Any]:
        with _averaged_gradients(shares), _batch_statistics(replicas):
            logs, after = model.train_step(_with_own_seeds(model, shares, state), data)
        after = _combined(model, shares, state, after)
        return _combined_logs(model, logs, after), after

    return step


@contextlib.contextmanager
def _averaged_gradients(shares: Shares) -> Generator[None]:
    """While open, every optimizer's `stateless_apply` averages its gradients over the replicas first."""
    with contextlib.ExitStack() as stack:
        for owner in (BaseOptimizer, LossScaleOptimizer):
            stack.enter_context(replaced(owner, "stateless_apply", lambda f: _averaging(f, shares)))
        yield


def _averaging(apply: Callable[..., Any], shares: Shares) -> Callable[..., Any]:
    inside = False

    def averaged(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        nonlocal inside
        if inside:  # An optimizer that wraps another one hands down gradients that are averaged already.
            return apply(self, optimizer_variables, grads, trainable_variables)
        inside = True
        try:
            return apply(self, optimizer_variables, shares.mean([list(grads)]), trainable_variables)
        finally:
            inside = False

    return averaged


def _batch_statistics(replicas: Replicas) -> contextlib.AbstractContextManager[None]:
    if replicas.batch_statistics == "global":
        return moments_over_replicas(AXIS)
    return contextlib.nullcontext()


def _with_own_seeds(model: Any, shares: Shares, state: Any) -> Any:
    """Gives each replica seeds of its own."""
    trainable, non_trainable, optimizer, metrics = state
    own = [
        shares.own_seed(0, value) if _is_seed(variable) else value
        for variable, value in zip(model.non_trainable_variables, non_trainable, strict=True)
    ]
    return trainable, own, optimizer, metrics


def _is_seed(variable: Any) -> bool:
    return variable.path.endswith("seed_generator_state")


def _combined(model: Any, shares: Shares, before: Any, after: Any) -> Any:
    trainable, non_trainable, optimizer, metrics = after
    return (
        trainable,
        _combine_group(shares, model.non_trainable_variables, before[1], non_trainable),
        optimizer,
        _combine_group(shares, model.metrics_variables, before[3], metrics),
    )


def _combine_group(shares: Shares, variables: Any, before: Any, after: Any) -> list[jax.Array]:
    return [
        shares.combine(_is_seed(variable), variable.aggregation, was, [now])
        for variable, was, now in zip(variables, before, after, strict=True)
    ]


def _combined_logs(model: Any, logs: Any, state: Any) -> Any:
    """Metrics' results over all replicas; what else a step logs is averaged."""
    results = _metric_results(model, state)
    if isinstance(logs, dict) and set(logs) == set(results):
        return results
    return jax.tree.map(lambda v: lax.pmean(jnp.asarray(v), AXIS), logs)


def _metric_results(model: Any, state: Any) -> dict[str, Any]:
    with backend.StatelessScope(state_mapping=list(zip(model.metrics_variables, state[3], strict=True))):
        return model.get_metrics_result()
