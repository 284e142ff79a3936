"""A Keras model's `train_step` for replicas that train by themselves in between.

Each replica has its own weights, optimizer and metrics in a round. What the model shows is what all had come to at the
end of the last one. What a task logs also counts the steps that its first replica has made since.
"""

from __future__ import annotations

from typing import Any

from keras.src import backend
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from lockstep._engine.keras.replica_step import combined_seeds, is_seed, metric_results, with_own_seeds
from lockstep._engine.step.aggregation import Shards
from lockstep._engine.step.local_sgd import COMMON, OWN, PARAMETER, LocalTraining, Role, metric_role, role_of
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._nest import opened


def local_train_step(model: Any, replicas: Replicas) -> LocalTraining | None:
    """Returns how `model` trains in rounds, if its replicas are to."""
    if replicas.local_sgd is None:
        return None
    shares = Shards([None], [1.0], AXIS, replicas.count)

    def step(state: Any, data: Any) -> tuple[Any, Any]:
        logs, after = model.train_step(with_own_seeds(model, shares, state), opened(data))
        return logs, combined_seeds(model, shares, state, after)

    def shown(logs: Any, state: Any) -> Any:
        """At the end of a round metrics hold what all replicas did, and the step has logged what one of them did."""
        results = metric_results(model, state)
        return results if isinstance(logs, dict) and set(logs) == set(results) else logs

    return LocalTraining(replicas.local_sgd, step, lambda state: _roles(model), shown)


def _roles(model: Any) -> tuple[list[Role], ...]:
    return (
        [PARAMETER for _ in model.trainable_variables],
        [role_of(is_seed(v), v.aggregation) for v in model.non_trainable_variables],
        _optimizer_roles(model.optimizer),
        [metric_role(v.aggregation) for v in model.metrics_variables],
    )


def _optimizer_roles(optimizer: Any) -> list[Role]:
    averages = {id(v) for v in _averages(optimizer)}
    return [role_of(False, "mean") if id(v) in averages else _optimizer_role(optimizer, v) for v in optimizer.variables]


def _optimizer_role(optimizer: Any, variable: Any) -> Role:
    """Counts of steps and learning rates are the same everywhere, unless gradients that overflow are left out."""
    counts = backend.is_int_dtype(variable.dtype)
    if variable.aggregation != "only_first_replica" or (counts and isinstance(optimizer, LossScaleOptimizer)):
        return OWN
    return COMMON


def _averages(optimizer: Any) -> list[Any]:
    """Moving averages of the weights, which become the weights in the end."""
    wrapped = [getattr(optimizer, "inner_optimizer", None), *getattr(optimizer, "_inner_optimizers", ())]
    found = list(getattr(optimizer, "_model_variables_moving_average", ()))
    return found + [v for one in wrapped if one is not None for v in _averages(one)]
