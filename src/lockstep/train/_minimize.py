"""One way to train for every kind of optimizer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

from lockstep._model_fn.records import TrainOp
from lockstep._model_fn.scope import ModelScope, demand
from lockstep.errors import ArgumentError
from lockstep.train._global_step import counted
from lockstep.train._keras_rule import KerasRule, optimizer_here
from lockstep.train._optax_rule import OptaxRule
from lockstep.train._optimizer import Optimizer
from lockstep.train._pairs import Pair, loss_of, pairs_of, variables_of


def minimize(loss: Any, optimizer: Any, var_list: Any = None, global_step: Any = None) -> TrainOp:
    """Returns the update that makes a loss smaller, for `EstimatorSpec(train_op=...)`.

    Args:
        loss: Floats, whose sum is meant if they are several; or a function of no arguments that returns them.
        optimizer: One of

            * `lockstep.train`, or a subclass of `lockstep.train.Optimizer`;
            * Keras: made in the model_fn, or outside (then each call of the model_fn has a copy, by its config).
              Clipping, weight decay, averaging, accumulation and loss scaling are Keras' own. Its learning rate is a
              number or a schedule;
            * optax: or anything with `init(params)` and `update(gradients, state, params)`. `params` is a dictionary of
              arrays by the variables' names in checkpoints. It may be made with values computed in the model_fn. An
              `update` that takes `value` is given the loss.
        var_list: Trainable variables, in any structure; `None` for all that there are so far.
        global_step: What `get_global_step()` returns, to count the step; or a keras.Variable to count with. With
            `None`, optimizers of Keras and optax count the step, those of `lockstep.train` leave that to others; a step
            that nothing counts is counted once.

    Raises:
        StartupOrderError: Outside of a model_fn.
        ArgumentError: If the loss is not of floats, there is nothing to train, or `optimizer` is none.
        UnsupportedError: If the state of a transformation cannot be kept in checkpoints.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer.minimize(loss, global_step=global_step, var_list=var_list)
    scope = demand("lockstep.train.minimize")
    value = loss_of(loss)
    variables = variables_of(scope, var_list)
    if isinstance(optimizer, keras.optimizers.Optimizer):
        here = optimizer_here(scope, optimizer)
        rule = KerasRule(here, variables)
        # Only now: a scale that changes is a variable that build makes.
        value = here.scale_loss(value)
    else:
        rule = _optax_rule(scope, optimizer, variables, value)
    counting, counts = counted(rule, scope.global_step if global_step is None else global_step)
    return TrainOp.deferred(counting, value, variables, counts)


def apply_gradients(grads_and_vars: Iterable[Pair], optimizer: Any, global_step: Any = None) -> TrainOp:
    """Returns the update by given gradients, for `EstimatorSpec(train_op=...)`.

    Args:
        grads_and_vars: (gradient, variable) pairs, such as `Optimizer.compute_gradients` returns; a variable whose
            gradient is `None` stays as it is. An optimizer that scales losses expects gradients of the scaled loss.
        optimizer: See `minimize`; a transformation that needs the loss is not given it.
        global_step: See `minimize`.

    Raises:
        StartupOrderError: Outside of a model_fn.
        ArgumentError: If no variable has a gradient, shapes do not match, or `optimizer` is none.
        UnsupportedError: If the state of a transformation cannot be kept in checkpoints.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer.apply_gradients(grads_and_vars, global_step=global_step)
    scope = demand("lockstep.train.apply_gradients")
    pairs = pairs_of(grads_and_vars)
    variables = [v for _, v in pairs]
    if isinstance(optimizer, keras.optimizers.Optimizer):
        rule = KerasRule(optimizer_here(scope, optimizer), variables)
    else:
        rule = _optax_rule(scope, optimizer, variables, None)
    counting, counts = counted(rule, scope.global_step if global_step is None else global_step)
    return TrainOp.immediate(counting, pairs, counts)


def _optax_rule(scope: ModelScope, optimizer: Any, variables: list[Any], loss: Any) -> OptaxRule:
    if callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None)):
        return OptaxRule(scope, optimizer, variables, loss)
    raise ArgumentError(
        "An optimizer is one of lockstep.train, of Keras, or a gradient transformation with init and update, as optax "
        f"has them. Received: {optimizer!r}."
    )
