"""Keras' optimizers in a model_fn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import keras
from jax.core import Tracer

from lockstep._model_fn.scope import ModelScope
from lockstep.errors import ArgumentError

# The collection that remembers which optimizers from outside of the model_fn were copied.
_COPIES = "lockstep.train/keras"


class ComputedRate(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that a model_fn has computed, where Keras takes numbers and schedules.

    Args:
        value: An array of no dimensions.
    """

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def __call__(self, step: Any) -> Any:
        """Returns the rate, whatever the step."""
        return self.value

    def get_config(self) -> dict[str, Any]:
        """Returns the config: the rate."""
        return {"value": self.value}


class KerasRule:
    """The update of an optimizer of Keras.

    Args:
        optimizer: Made in this call of the model_fn.
        variables: What it trains.

    Attributes:
        hyper: The learning rate, if the model_fn has computed it.
    """

    def __init__(self, optimizer: Any, variables: list[Any]) -> None:
        self._optimizer = optimizer
        self._rate = _rate(optimizer)
        self.hyper: dict[str, Any] = {"rate": self._rate.value} if isinstance(self._rate, ComputedRate) else {}
        if not optimizer.built:
            with keras.name_scope(optimizer.name, caller=optimizer):
                optimizer.build(variables)

    def update(self, scope: Any, gradients: list[Any], variables: list[Any], hyper: dict[str, Any]) -> None:
        """Updates the variables as Keras does."""
        if isinstance(self._rate, ComputedRate):
            self._rate.value = hyper["rate"]
        if isinstance(self._optimizer, keras.optimizers.LossScaleOptimizer):
            _apply_scaled(self._optimizer, gradients, variables)
        else:
            self._optimizer.apply(gradients, variables)


def optimizer_here(scope: ModelScope, optimizer: Any) -> Any:
    """Returns an optimizer that belongs to this call of the model_fn: itself if it was made in it, else a copy.

    Raises:
        ArgumentError: If it cannot be copied, or its learning rate was computed in the model_fn.
    """
    _refuse_traced(optimizer)
    if _is_made_in(scope, optimizer):
        return optimizer
    copies = scope.collections.setdefault(_COPIES, [])
    for original, made in copies:
        if original is optimizer:
            return made
    made = _copy(optimizer)
    copies.append((optimizer, made))
    return made


def _is_made_in(scope: ModelScope, optimizer: Any) -> bool:
    counter = optimizer.variables[0]
    # A variable that is made in a model_fn holds no value itself.
    if counter._value is not None:
        return False
    if not any(variable is counter for variable in scope.variables.values()):
        raise ArgumentError(
            f"An optimizer is made in the model_fn that uses it, or outside of any. Received: {optimizer.name}, made "
            "in another call of a model_fn and kept. Make it anew in each call."
        )
    return True


def _copy(optimizer: Any) -> Any:
    try:
        made = type(optimizer).from_config(_config(optimizer))
    except (TypeError, ValueError, AttributeError) as error:
        raise ArgumentError(
            "An optimizer from outside of the model_fn is copied by get_config and from_config, so that each call has "
            f"its own. Received: {type(optimizer).__name__}, for which that fails: {error}. Make it in the model_fn."
        ) from error
    # What get_config leaves out.
    pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    if pattern is not None:
        made.exclude_from_weight_decay(var_names=[pattern.pattern])
    return made


def _config(optimizer: Any) -> Any:
    """Returns the config by the values that the optimizer has outside of the model_fn."""
    with keras.StatelessScope([(v, v._value) for v in optimizer.variables]):
        config = dict(optimizer.get_config())
    _forget_number(type(optimizer).__name__, config)
    return config


def _forget_number(kind: str, config: dict[str, Any]) -> None:
    """Drops an automatic name, whose number says how many others the process has made: keys must not depend on it."""
    start, _, number = str(config.get("name")).rpartition("_")
    if number.isdigit() and start.replace("_", "") == kind.lower():
        config["name"] = None
    inner = config.get("inner_optimizer")
    if isinstance(inner, dict):
        _forget_number(inner["class_name"], inner["config"])


def _rate(optimizer: Any) -> Any:
    return getattr(optimizer, "inner_optimizer", optimizer)._learning_rate


def _refuse_traced(optimizer: Any) -> None:
    rate = _rate(optimizer)
    if _closes_over_traced(rate):
        raise ArgumentError(
            "Keras computes the learning rate of an optimizer from its own count of steps. Received: "
            f"{optimizer.name} with a function that uses a value computed in the model_fn. Use a "
            "keras.optimizers.schedules.LearningRateSchedule, or an optimizer of lockstep.train."
        )


def _closes_over_traced(function: Any) -> bool:
    if not isinstance(function, Callable) or isinstance(function, keras.optimizers.schedules.LearningRateSchedule):
        return False
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    held = [cells, *(getattr(function, name, None) for name in ("__defaults__", "args", "keywords"))]
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(held))


def _apply_scaled(optimizer: Any, gradients: list[Any], variables: list[Any]) -> None:
    """Applies gradients of a scaled loss; Keras' `apply` would assign inside of a branch, which JAX does not allow."""
    state = optimizer.variables
    trained, after = optimizer.stateless_apply([v.value for v in state], gradients, [v.value for v in variables])
    for variable, value in zip([*variables, *state], [*trained, *after], strict=True):
        variable.assign(value)
