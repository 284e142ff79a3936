"""Optimizers with Keras 2's names for their learning rate and their weights, and its ways to train in a model_fn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any

import jax
import keras
import numpy as np
from jax.core import Tracer
from keras.src.backend.common.stateless_scope import get_stateless_scope
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from lockstep._types import Optimizer, PyTree, Tensor
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.named import model_fn_scope, replica_scope
from lockstep.compat.tensorflow._tape.recording import innermost
from lockstep.compat.tensorflow._types import Argument, LearningRate
from lockstep.compat.tensorflow.config._settings import functions_run_eagerly
from lockstep.compat.tensorflow.keras._late_variables import take_late
from lockstep.compat.tensorflow.keras._patches._patch import adds, replaces, replaces_property
from lockstep.compat.tensorflow.keras._patches.optimizer_rules import EAGER
from lockstep.distribute import has_strategy
from lockstep.distribute.internal import default
from lockstep.errors import ArgumentError, UnsupportedError


@replaces(BaseOptimizer, "__init__")
def _init_with_rate(
    original: Callable[..., None],
    self: Optimizer,
    learning_rate: LearningRate = None,
    *args: Argument,
    **kwargs: Argument,
) -> None:
    _refuse_keras_2_rules(type(self))
    rate = kwargs.pop("lr", learning_rate)
    if rate is None and not type(self).__module__.startswith("keras."):
        # Keras 2's base class takes none: a class of the program's has its own.
        rate = _OF_BASE
    original(self, as_rate(rate), *args, **kwargs)


# Keras' own default.
_OF_BASE = 0.001
# Methods in which classes of programs for Keras 2 write their rule; Keras 3 calls none of them.
_RULES = ("_resource_apply_dense", "_resource_apply_sparse", "_create_slots", "get_updates")


def _refuse_keras_2_rules(cls: type) -> None:
    """Raises `UnsupportedError` for a class whose rule is written for Keras 2."""
    found = [name for name in _RULES if getattr(getattr(cls, name, None), "__module__", __name__) != __name__]
    if found:
        raise UnsupportedError(
            "An optimizer's rule is update_step(gradient, variable, learning_rate), and build(variables) makes what it "
            f"keeps, as in Keras 3. Received: {cls.__name__}, which has {', '.join(found)} of Keras 2. Move the rule "
            "to update_step; keras.optimizers.SGD is a short example."
        )


def as_rate(rate: LearningRate) -> Any:
    """Returns a learning rate as Keras 3 wants it: numbers as floats, what a model_fn computed as a schedule."""
    # A rate that a model_fn computes from the global step is a tracer, other in each step.
    if isinstance(rate, Tracer) and model_fn_scope() is not None:
        from lockstep.estimator.internal import ComputedRate

        return ComputedRate(rate)
    # Left to Keras, whose errors name what it takes.
    if isinstance(rate, (bool, str)) or callable(rate):
        return rate
    if isinstance(rate, Real) or (hasattr(rate, "__float__") and not np.shape(rate)):
        return float(rate)
    return rate


def _get_learning_rate(self: Optimizer) -> Any:
    # The variable, for Keras 2 programs change it by K.set_value(optimizer.lr, ...); a schedule's value at this step.
    rate = self._learning_rate
    return rate if hasattr(rate, "assign") else self.learning_rate


def _set_learning_rate(self: Optimizer, rate: LearningRate) -> None:
    self.learning_rate = as_rate(rate)


adds(BaseOptimizer, "lr")(
    property(_get_learning_rate, _set_learning_rate, doc="Keras 2's short name of `learning_rate`.")
)
adds(BaseOptimizer, "weights")(property(lambda self: self.variables, doc="Keras 2's name of `variables`."))


@adds(BaseOptimizer, "get_weights")
def _get_weights(self: Optimizer) -> list[np.ndarray]:
    """Returns the values of all variables, in the order in which `set_weights` takes them."""
    return [np.asarray(variable) for variable in self.variables]


@adds(BaseOptimizer, "minimize")
def _minimize(
    self: Optimizer,
    loss: Tensor,
    var_list: PyTree = None,
    grad_loss: Tensor = None,
    name: Any = None,
    tape: Argument = None,
) -> Any:
    """Makes a loss smaller; in a model_fn it returns the update that does. Source: `Optimizer.minimize` of Keras 2.

    Raises:
        ArgumentError: If `grad_loss` is given, or a loss that is no function has no tape.
    """
    if grad_loss is not None:
        raise ArgumentError("grad_loss must be None: multiply the loss instead. Received one.")
    if model_fn_scope() is None:
        return _minimize_by_tape(self, loss, var_list, tape)
    from lockstep.estimator.train import minimize

    return minimize(loss, self, var_list() if callable(var_list) else var_list)


def _minimize_by_tape(self: Optimizer, loss: Tensor, var_list: Any, tape: Argument) -> Any:
    from lockstep.compat.tensorflow._ops.gradient_tape import GradientTape

    if tape is None and not callable(loss):
        raise ArgumentError(
            f"The loss is a function of no arguments, or a tensor with its tape. Received: {loss!r:.60}. "
            "Pass tape=tape."
        )
    # As Keras 2: a function of no arguments is recorded here, a tensor has been by its tape.
    tape = GradientTape() if tape is None else tape
    if callable(loss):
        with tape:
            loss = loss()
    # Afterwards, for the function may have made the variables.
    found: Any = var_list() if callable(var_list) else var_list
    variables = list(found)
    return self.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


@adds(BaseOptimizer, "get_updates")
def _get_updates(self: Optimizer, loss: Tensor, params: PyTree) -> list[Any]:
    """Returns the updates of a model_fn that make a loss smaller; Source: `Optimizer.get_updates` of Keras 2."""
    return [_minimize(self, loss, params)]


@replaces(BaseOptimizer, "apply_gradients")
def _apply_gradients(
    original: Callable[..., Any], self: Optimizer, grads_and_vars: Any, *args: Argument, **kwargs: Argument
) -> Any:
    """Returns an update in a model_fn; takes Keras 2's arguments."""
    kwargs.pop("name", None)
    if model_fn_scope() is None:
        aggregates = kwargs.pop("experimental_aggregate_gradients", True)
        # Both options of Keras 2 say that the gradients are applied as each replica has them.
        scope = replica_scope() if kwargs.pop("skip_gradients_aggregation", False) or not aggregates else None
        # Outside of a model_fn Keras' own method applies the gradients at once.
        pairs = list(_scale_again(self, grads_and_vars))
        if not pairs:
            # As Keras 2: a model that is not built yet has no variables.
            return self._iterations
        take_late(self, [variable for _, variable in pairs])
        if _is_compiled_alone(self, pairs, args, kwargs):
            return _apply_compiled(original, self, pairs)
        with contextlib.nullcontext() if scope is None else scope.as_given():
            return original(self, pairs, *args, **kwargs)
    if args or kwargs:
        raise ArgumentError(f"In a model_fn apply_gradients takes pairs alone. Received besides: {args}, {kwargs}.")
    # The step of the Estimator applies them, once they are averaged over the replicas.
    from lockstep.estimator.train import apply_gradients

    return apply_gradients(grads_and_vars, self)


def _is_compiled_alone(optimizer: Optimizer, pairs: Any, args: Any, kwargs: Any) -> bool:
    """Returns whether an update in plain Python is compiled: Keras' own is some fifteen operations for each weight."""
    # Keras warns of weights without gradients, and chooses among them.
    is_plain = not args and not kwargs and bool(pairs) and all(g is not None for g, _ in pairs)
    return (
        is_plain
        and not dispatch.is_traced()
        and innermost() is None
        and get_stateless_scope() is None
        and not has_strategy()
        and not functions_run_eagerly()
        and all(isinstance(g, jax.Array) for g, _ in pairs)
    )


def _apply_compiled(original: Callable[..., Any], optimizer: Optimizer, pairs: Any) -> Any:
    variables = [v for _, v in pairs]
    if not optimizer.built:
        with keras.name_scope(optimizer.name, caller=optimizer):
            optimizer.build(variables)
    # Settings are a part of the program; the learning rate is one of the variables, or a schedule.
    settings = tuple(
        (name, value if isinstance(value, (bool, int, float, str, type(None))) else id(value))
        for name, value in vars(optimizer).items()
        if name in _SCHEDULE or isinstance(value, (bool, int, float, str, type(None)))
    )
    key = tuple(map(id, variables)), settings
    known = vars(optimizer).get(_UPDATE)
    if known is None or known[0] != key:

        def update(gradients: Any) -> None:
            vars(optimizer)[EAGER] = True
            try:
                original(optimizer, list(zip(gradients, variables, strict=True)))
            finally:
                del vars(optimizer)[EAGER]

        known = key, update
        # Not by setattr: Keras tracks what is assigned.
        vars(optimizer)[_UPDATE] = known
    default().run(known[1], ([g for g, _ in pairs],))
    return optimizer._iterations


_UPDATE, _SCHEDULE = "_lockstep_update", ("_learning_rate",)


@adds(LossScaleOptimizer, "get_scaled_loss")
def _get_scaled_loss(self: Optimizer, loss: Tensor) -> Any:
    """Returns the loss times the scale. Source: `LossScaleOptimizer.get_scaled_loss` of Keras 2."""
    return (lambda: self.scale_loss(loss())) if callable(loss) else self.scale_loss(loss)


@adds(LossScaleOptimizer, "get_unscaled_gradients")
def _get_unscaled_gradients(self: Optimizer, gradients: PyTree) -> list[Any]:
    """Returns the gradients without the scale, such as `apply_gradients` gets them next.

    Source: `LossScaleOptimizer.get_unscaled_gradients` of Keras 2.
    """
    # Keras 3's apply divides by the scale itself, and looks whether gradients are finite: they get the scale back
    # there.
    self._lockstep_unscaled = True
    return [None if g is None else g / self.loss_scale for g in gradients]


def _scale_again(optimizer: Optimizer, pairs: Iterable[Any]) -> Iterable[Any]:
    """Returns gradients with the scale that `get_unscaled_gradients` has removed."""
    if not getattr(optimizer, "_lockstep_unscaled", False):
        return pairs
    optimizer._lockstep_unscaled = False
    return [(None if g is None else g * optimizer.loss_scale, v) for g, v in pairs]


@adds(LossScaleOptimizer, "loss_scale")
@property
def _loss_scale(self: Optimizer) -> Any:
    """Keras 2's name of the scale."""
    return self.dynamic_scale.value if self.built else self.initial_scale


def _set_iterations(self: Optimizer, value: Tensor) -> None:
    """Takes the global step, which counts an optimizer's steps in a model_fn anyway."""
    scope = model_fn_scope()
    # The step counts by itself, so that this very assignment changes nothing.
    if scope is None or value is not scope.global_step:
        raise UnsupportedError(
            "iterations of an optimizer can be set to the global step of a model_fn: "
            f"tf.compat.v1.train.get_or_create_global_step(). Received: {value!r}. To change the count, use "
            "optimizer.iterations.assign(number)."
        )


@replaces_property(BaseOptimizer, "iterations", setter=_set_iterations)
def _get_iterations(original: Any, self: Optimizer) -> Any:
    return original.fget(self)
