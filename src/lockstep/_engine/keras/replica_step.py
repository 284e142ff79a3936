"""A Keras model's `train_step` for one replica: its shard of the batch, and explicit reductions.

Two kinds. In the replica view the optimizer averages gradients over the replicas before it applies them, so that every
replica comes to the same weights; the rest of the state is combined by `variable.aggregation`. In local SGD each
replica has its own weights, optimizer and metrics in a round; the model shows what all came to at the end of the last.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from keras import layers, ops
from keras.src import backend
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from lockstep._engine.step.aggregation import Shards, VariableUpdate
from lockstep._engine.step.local_sgd import COMMON, OWN, PARAMETER, LocalTraining, Role, metric_role, role_of
from lockstep._engine.step.protocol import Step
from lockstep._engine.step.reduction import Reduction
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._nest import unpack
from lockstep._types import Array, ArrayLike, Batch, Model, Optimizer, PyTree, State, Variable


@contextlib.contextmanager
def replace_method(owner: type, name: str, wrap: Callable[[Any], Any]) -> Generator[None]:
    """Replaces the method `name` of a class by `wrap` of it, while a step is traced."""
    before = getattr(owner, name)
    setattr(owner, name, wrap(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


# ---- The replica view ----


def replica_train_step(model: Model, replicas: Replicas) -> Step:
    """Returns `model.train_step` for use inside `shard_map` over `replicas.AXIS`."""
    count = replicas.count
    shares = Shards([None], [1.0 / count], AXIS, count, replicas.reduction or Reduction())
    is_global = replicas.batch_statistics == "global"

    def step(state: State, data: Batch) -> tuple[Any, Any]:
        with _averaged_gradients(shares), moments_over_replicas(AXIS) if is_global else contextlib.nullcontext():
            logs, after = model.train_step(_split_seeds(model, shares, state), unpack(data))
        trainable, non_trainable, optimizer, metrics = after
        variables = [*model.non_trainable_variables, *model.metrics_variables]
        values = zip(variables, [*state[1], *state[3]], [*non_trainable, *metrics], strict=True)
        combined = shares.combine([VariableUpdate(is_seed(v), v.aggregation, was, [now]) for v, was, now in values])
        n = len(non_trainable)
        after = trainable, combined[:n], optimizer, combined[n:]
        results = _metric_results(model, after)
        if isinstance(logs, dict) and set(logs) == set(results):
            return results, after
        # What else a step of the user's own logs is averaged.
        return jax.tree.map(lambda v: lax.pmean(jnp.asarray(v), AXIS), logs), after

    return step


@contextlib.contextmanager
def _averaged_gradients(shares: Shards) -> Generator[None]:
    """Has every optimizer's `stateless_apply` average its gradients over the replicas first."""
    # An optimizer that wraps another one hands down gradients that are averaged already.
    is_inside = False

    def apply_averaged(gradients: PyTree, scale: Callable[[], Any], apply: Callable[[Any], Any]) -> Any:
        nonlocal is_inside
        if is_inside:
            return apply(gradients)
        is_inside = True
        try:
            return apply(_average(shares, scale(), list(gradients)))
        finally:
            is_inside = False

    def average(apply: Callable[..., Any]) -> Callable[..., Any]:
        def averaged(
            optimizer: Optimizer, optimizer_variables: PyTree, grads: PyTree, trainable_variables: PyTree
        ) -> Any:
            return apply_averaged(
                grads,
                lambda: _loss_scale(optimizer, optimizer_variables),
                lambda means: apply(optimizer, optimizer_variables, means, trainable_variables),
            )

        return averaged

    def average_direct(apply: Callable[..., Any]) -> Callable[..., Any]:
        # A step that assigns to the variables, instead of returning a state, calls this one.
        def averaged(optimizer: Optimizer, grads: PyTree, trainable_variables: PyTree = None) -> Any:
            return apply_averaged(
                grads,
                lambda: optimizer.dynamic_scale.value if isinstance(optimizer, LossScaleOptimizer) else None,
                lambda means: apply(optimizer, means, trainable_variables),
            )

        return averaged

    with (
        replace_method(BaseOptimizer, "stateless_apply", average),
        replace_method(LossScaleOptimizer, "stateless_apply", average),
        replace_method(BaseOptimizer, "apply", average_direct),
        replace_method(LossScaleOptimizer, "apply", average_direct),
    ):
        yield


def _average(shares: Shards, scale: ArrayLike, gradients: list[Any]) -> list[Any]:
    """Averages gradients over the replicas; a gradient that is `None` stays so."""
    if scale is None or not shares.reduction.compresses:
        return shares.mean_of_gradients([gradients])
    # Error feedback carries what was not sent into the next step, which may have another scale. Powers of two change
    # no digit.
    means = shares.mean_of_gradients([jax.tree.map(lambda g: g / scale.astype(g.dtype), gradients)])
    return jax.tree.map(lambda g: g * scale.astype(g.dtype), means)


def _loss_scale(optimizer: Optimizer, values: Any) -> Any:
    """Returns the dynamic loss scale by which gradients are multiplied, or `None`."""
    if not isinstance(optimizer, LossScaleOptimizer):
        return None
    scale = optimizer.dynamic_scale
    return next(value for variable, value in zip(optimizer.variables, values, strict=True) if variable is scale)


@contextlib.contextmanager
def moments_over_replicas(axis: str) -> Generator[None]:
    """Has `BatchNormalization` take its moments over all replicas along `axis`.

    Keras' own `synchronized=True` is not implemented for JAX. The global view needs nothing: there the batch is global.
    """

    def moments(self: Any, inputs: Array, mask: Array) -> tuple[Any, Any]:
        weights = ops.ones_like(inputs)
        if mask is not None:
            weights = ops.broadcast_to(ops.expand_dims(ops.cast(mask, inputs.dtype), -1), inputs.shape)
        axes = self._reduction_axes
        total = lax.psum(ops.sum(weights, axes), axis)
        # Keras' own epsilon: a batch may be masked completely.
        count = total if mask is None else total + 1e-7
        mean = lax.psum(ops.sum(inputs * weights, axes), axis) / count
        shape = [1 if i in axes else n for i, n in enumerate(inputs.shape)]
        deviation = (inputs - ops.reshape(mean, shape)) * weights
        return mean, lax.psum(ops.sum(deviation * deviation, axes), axis) / count

    with replace_method(layers.BatchNormalization, "_moments", lambda theirs: moments):
        yield


# ---- LocalTraining SGD ----


def local_train_step(model: Model, replicas: Replicas) -> LocalTraining | None:
    """Returns how `model` trains in rounds of local steps; `None` if the strategy has none."""
    if replicas.local_sgd is None:
        return None
    shares = Shards([None], [1.0], AXIS, replicas.count)

    def step(state: State, data: Batch) -> tuple[Any, Any]:
        logs, after = model.train_step(_split_seeds(model, shares, state), unpack(data))
        trainable, non_trainable, optimizer, metrics = after
        values = zip(model.non_trainable_variables, state[1], non_trainable, strict=True)
        common = [shares.common_seed(was, now) if is_seed(v) else now for v, was, now in values]
        return logs, (trainable, common, optimizer, metrics)

    def show(logs: Any, state: State) -> Any:
        # At the end of a round metrics hold the examples of all replicas, and the step has logged those of one.
        results = _metric_results(model, state)
        return results if isinstance(logs, dict) and set(logs) == set(results) else logs

    def roles(state: State) -> tuple[list[Role], ...]:
        del state
        averages = {id(v) for v in _weight_averages(model.optimizer)}
        return (
            [PARAMETER for _ in model.trainable_variables],
            [role_of(is_seed(v), v.aggregation) for v in model.non_trainable_variables],
            [_optimizer_role(model.optimizer, v, id(v) in averages) for v in model.optimizer.variables],
            [metric_role(v.aggregation) for v in model.metrics_variables],
        )

    return LocalTraining(replicas.local_sgd, step, roles, show)


def _optimizer_role(optimizer: Optimizer, variable: Variable, is_average: bool) -> Role:
    if is_average:
        return role_of(False, "mean")
    # Counts of steps and learning rates are the same everywhere, unless gradients that overflow are left out.
    counts = backend.is_int_dtype(variable.dtype)
    if variable.aggregation != "only_first_replica" or (counts and isinstance(optimizer, LossScaleOptimizer)):
        return OWN
    return COMMON


def _weight_averages(optimizer: Optimizer) -> list[Any]:
    """Returns moving averages of the weights (`use_ema`), which become the weights in the end."""
    wrapped = [getattr(optimizer, "inner_optimizer", None), *getattr(optimizer, "_inner_optimizers", ())]
    averages = list(getattr(optimizer, "_model_variables_moving_average", ()))
    return averages + [v for one in wrapped if one is not None for v in _weight_averages(one)]


# ---- Seeds and metrics ----


def is_seed(variable: Variable) -> bool:
    """Returns whether a variable is the state of a random generator."""
    return variable.path.endswith("seed_generator_state")


def _split_seeds(model: Model, shares: Shards, state: State) -> Any:
    """Gives each replica seeds of its own."""
    trainable, non_trainable, optimizer, metrics = state
    own = [
        shares.own_seed(0, value) if is_seed(variable) else value
        for variable, value in zip(model.non_trainable_variables, non_trainable, strict=True)
    ]
    return trainable, own, optimizer, metrics


def _metric_results(model: Model, state: State) -> dict[str, Any]:
    """Returns the results of a model's metrics in a state."""
    with backend.StatelessScope(state_mapping=list(zip(model.metrics_variables, state[3], strict=True))):
        return model.get_metrics_result()
