"""`minimize` and `apply_gradients` for optimizers of lockstep, Keras and optax."""

from __future__ import annotations

from collections.abc import Iterable

import jax
import keras

from lockstep import _types as types
from lockstep._types import PyTree, Tensor, Variable
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.records import TrainOp
from lockstep.estimator._model_fn.scope import ModelScope, demand
from lockstep.estimator.train._arguments import Pair, check_pairs, scalar_loss, trained_variables
from lockstep.estimator.train._global_step import with_counter
from lockstep.estimator.train._keras_rule import KerasRule, optimizer_in
from lockstep.estimator.train._optax_rule import OptaxRule
from lockstep.estimator.train._optimizer import Optimizer


def minimize(
    loss: Tensor,
    optimizer: types.Optimizer,
    var_list: PyTree | None = None,
    global_step: Tensor | Variable | None = None,
) -> TrainOp:
    """Returns the training operation that minimizes a loss, for `EstimatorSpec(train_op=...)`.

    Args:
        loss: Floats, which are summed; or a function of no arguments that returns them.
        optimizer: An optimizer of

            * `lockstep.estimator.train`, or a subclass of `lockstep.estimator.train.Optimizer`;
            * Keras: made in the model_fn, or outside (then each call of the model_fn has a copy, by its config).
              Clipping, weight decay, averaging, accumulation and loss scaling are Keras' own. Its learning rate is a
              number or a schedule;
            * optax: or anything with `init(params)` and `update(gradients, state, params)`. `params` is a dictionary of
              arrays by the variables' names in checkpoints. It may be made with values computed in the model_fn. An
              `update` that takes `value` is given the loss.
        var_list: Trainable variables, in any structure; `None` for all made so far.
        global_step: The result of `get_global_step()`, to increment it; or a keras.Variable to increment. With `None`,
            optimizers of Keras and optax increment the global step, those of `lockstep.estimator.train` do not; a step
            in which nothing increments it is with_counter once.

    Raises:
        StartupOrderError: Outside of a model_fn.
        ArgumentError: If the loss is not of floats, there are no variables to train, or `optimizer` is none of these.
        UnsupportedError: If the state of a transformation cannot be kept in checkpoints.
    """
    if isinstance(optimizer, Optimizer):
        # A subclass of a program may take the loss and the step alone, as TensorFlow's heads call it.
        more = {} if var_list is None or _are_all(var_list) else {"var_list": var_list}
        return optimizer.minimize(loss, global_step=global_step, **more)
    scope = demand("lockstep.estimator.train.minimize")
    value = scalar_loss(loss)
    variables = trained_variables(scope, var_list)
    if isinstance(optimizer, keras.optimizers.Optimizer):
        own = optimizer_in(scope, optimizer)
        rule = KerasRule(own, variables)
        # After KerasRule has built it: a dynamic loss scale is a variable that `build` creates.
        value = own.scale_loss(value)
    else:
        rule = _optax_rule(scope, optimizer, variables, value)
    # Keras and optax know no global step, so their programs pass none; TensorFlow 1's programs say which step counts.
    rule, increments = with_counter(rule, scope.global_step if global_step is None else global_step)
    return TrainOp.deferred(rule, value, variables, increments)


def apply_gradients(
    grads_and_vars: Iterable[Pair], optimizer: types.Optimizer, global_step: Tensor | Variable | None = None
) -> TrainOp:
    """Returns the training operation that applies gradients, for `EstimatorSpec(train_op=...)`.

    Args:
        grads_and_vars: (gradient, variable) pairs, such as `Optimizer.compute_gradients` returns; a variable whose
            gradient is `None` stays as it is. An optimizer that scales losses expects gradients of the scaled loss.
        optimizer: See `minimize`; an `update` that takes `value` gets none.
        global_step: See `minimize`.

    Raises:
        StartupOrderError: Outside of a model_fn.
        ArgumentError: If no variable has a gradient, shapes do not match, or `optimizer` is none of these.
        UnsupportedError: If the state of a transformation cannot be kept in checkpoints.
    """
    if isinstance(optimizer, Optimizer):
        return optimizer.apply_gradients(grads_and_vars, global_step=global_step)
    scope = demand("lockstep.estimator.train.apply_gradients")
    pairs = check_pairs(grads_and_vars)
    variables = [v for _, v in pairs]
    if isinstance(optimizer, keras.optimizers.Optimizer):
        rule = KerasRule(optimizer_in(scope, optimizer), variables)
    else:
        rule = _optax_rule(scope, optimizer, variables, None)
    rule, increments = with_counter(rule, scope.global_step if global_step is None else global_step)
    return TrainOp.immediate(rule, pairs, increments)


def _optax_rule(scope: ModelScope, optimizer: types.Optimizer, variables: list[Variable], loss: Tensor) -> OptaxRule:
    if callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None)):
        return OptaxRule(scope, optimizer, variables, loss)
    raise ArgumentError(
        "An optimizer is one of lockstep.estimator.train, of Keras, or a gradient transformation with init and update, "
        f"as optax has them. Received: {optimizer!r}."
    )


def _are_all(var_list: PyTree) -> bool:
    """Returns whether variables are all those that `None` stands for."""
    every = demand("lockstep.estimator.train.minimize").trainable_variables()
    return {id(v) for v in jax.tree.leaves(var_list)} == {id(v) for v in every}
