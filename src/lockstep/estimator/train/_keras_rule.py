"""Update rules of Keras' optimizers in a model_fn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import keras
from jax.core import Tracer

from lockstep._types import Array, Optimizer, PyTree, Tensor, Variable
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.scope import ModelScope

# The collection of (original, copy) pairs of optimizers from outside of the model_fn.
_COPIES = "lockstep.estimator.train/keras"


class ComputedRate(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that returns a learning rate computed in a model_fn; Keras takes numbers and schedules only."""

    def __init__(self, value: Array) -> None:
        super().__init__()
        self.value = value

    def __call__(self, step: Tensor) -> Any:
        """Returns the learning rate at any step."""
        return self.value

    def get_config(self) -> dict[str, PyTree]:
        """Returns the config: the learning rate."""
        return {"value": self.value}


class KerasRule:
    """The update rule of a Keras optimizer that was made in this call of the model_fn.

    Attributes:
        hyper: The learning rate, if it is computed in the model_fn.
    """

    def __init__(self, optimizer: Optimizer, variables: list[Variable]) -> None:
        self._optimizer = optimizer
        self._rate = _learning_rate(optimizer)
        self.hyper: dict[str, PyTree] = {"rate": self._rate.value} if isinstance(self._rate, ComputedRate) else {}
        # Before the step: its variables are part of the program's state. The scope is that of Keras' own `apply`, so
        # that checkpoints have the same names.
        if not optimizer.built:
            with keras.name_scope(optimizer.name, caller=optimizer):
                optimizer.build(variables)

    def update(
        self, scope: object, gradients: list[Array], variables: list[Variable], hyper: dict[str, PyTree]
    ) -> None:
        """Updates the variables by Keras' `apply`."""
        # The tracer of the model_fn is dead by now; this is the step program's.
        if isinstance(self._rate, ComputedRate):
            self._rate.value = hyper["rate"]
        if not isinstance(self._optimizer, keras.optimizers.LossScaleOptimizer):
            self._optimizer.apply(gradients, variables)
            return
        # Not `apply` for a scaled loss: it assigns variables inside of a `cond` (skip a step with infinite gradients),
        # and tracers would leak.
        apply: Callable[..., Any] = self._optimizer.stateless_apply
        state: list[Variable] = self._optimizer.variables
        trained, after = apply([v.value for v in state], gradients, [v.value for v in variables])
        for variable, value in zip([*variables, *state], [*trained, *after], strict=True):
            variable.assign(value)


def optimizer_in(scope: ModelScope, optimizer: Optimizer) -> Any:
    """Returns the optimizer itself if it was made in this call of the model_fn, else this call's copy of it."""
    if _closes_over_traced(_learning_rate(optimizer)):
        raise ArgumentError(
            "Keras computes the learning rate of an optimizer from its own count of steps. Received: "
            f"{optimizer.name} with a function that uses a value computed in the model_fn. Use a "
            "keras.optimizers.schedules.LearningRateSchedule, or an optimizer of lockstep.estimator.train."
        )
    counter = optimizer.variables[0]
    # Variables of a model_fn hold no value of their own: the step program passes their values in.
    if counter._value is None:
        if not any(variable is counter for variable in scope.variables.values()):
            raise ArgumentError(
                f"An optimizer is made in the model_fn that uses it, or outside of any. Received: {optimizer.name}, "
                "made in another call of a model_fn and kept. Make it anew in each call."
            )
        return optimizer
    # One copy for each call: minimize and apply_gradients of the same optimizer share its slots.
    copies = scope.collections.setdefault(_COPIES, [])
    for original, duplicate in copies:
        if original is optimizer:
            return duplicate
    duplicate = _copy(optimizer)
    copies.append((optimizer, duplicate))
    return duplicate


def _closes_over_traced(function: object) -> bool:
    # A schedule is a function of the step alone; ComputedRate passes its traced value on by `hyper`.
    if not isinstance(function, Callable) or isinstance(function, keras.optimizers.schedules.LearningRateSchedule):
        return False
    # Functions hide values in closures and defaults, functools.partial in `args` and `keywords`.
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    leaves = [cells, *(getattr(function, name, None) for name in ("__defaults__", "args", "keywords"))]
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(leaves))


def _learning_rate(optimizer: Optimizer) -> Any:
    # LossScaleOptimizer wraps the optimizer that has the rate. The property `learning_rate` calls functions and
    # schedules, and would hide them.
    return getattr(optimizer, "inner_optimizer", optimizer)._learning_rate


def _copy(optimizer: Optimizer) -> Any:
    try:
        # The values that variables have outside of the model_fn: a rate that a callback has set is kept.
        with keras.StatelessScope([(v, v._value) for v in optimizer.variables]):
            config = dict(optimizer.get_config())
        _drop_automatic_name(type(optimizer).__name__, config)
        duplicate = type(optimizer).from_config(config)
    except (TypeError, ValueError, AttributeError) as error:
        raise ArgumentError(
            "An optimizer from outside of the model_fn is copied by get_config and from_config, so that each call has "
            f"its own. Received: {type(optimizer).__name__}, for which that fails: {error}. Make it in the model_fn."
        ) from error
    # Keras' get_config leaves this out.
    pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    if pattern is not None:
        duplicate.exclude_from_weight_decay(var_names=[pattern.pattern])
    return duplicate


def _drop_automatic_name(kind: str, config: dict[str, PyTree]) -> None:
    """Drops an automatic name such as "adam_3"."""
    # Keras numbers optimizers over the process, so names in checkpoints would depend on what else the program has made.
    start, _, number = str(config.get("name")).rpartition("_")
    if number.isdigit() and start.replace("_", "") == kind.lower():
        config["name"] = None
    inner = config.get("inner_optimizer")
    if isinstance(inner, dict):
        _drop_automatic_name(inner["class_name"], inner["config"])
