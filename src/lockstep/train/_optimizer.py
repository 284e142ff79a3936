"""The base of optimizers with TensorFlow 1's interface."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
from jax.core import Tracer

from lockstep._model_fn.records import TrainOp
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.train._global_step import counted
from lockstep.train._pairs import Pair, loss_of, pairs_of, variables_of
from lockstep.train._rule import OptimizerRule
from lockstep.train._slots import OwnVariables


class Optimizer:
    """Base class of the optimizers; a model_fn makes one and calls `minimize`.

    Subclasses change what they need of these steps, which run in this order:

    * `_create_slots(var_list)` makes variables, by `_zeros_slot` and the like; in the model_fn.
    * `_prepare()` computes what an update needs, such as the learning rate of this step, and keeps it in attributes; in
      the model_fn.
    * `_apply_dense(grad, var)` updates one variable; after the model_fn, as part of the step.
    * `_finish(update_ops, name_scope)` updates what belongs to no single variable; after all others.

    An update is carried out on a copy of the optimizer. It may use what the model_fn has computed only if that is in an
    attribute by then: in the attribute itself, or in a list, tuple or dictionary. Gradients are dense.

    Attributes:
        GATE_NONE: A value of `gate_gradients`.
        GATE_OP: A value of `gate_gradients`.
        GATE_GRAPH: A value of `gate_gradients`.

    Args:
        use_locking: Whether updates must not overlap. They never do.
        name: What its variables are called in checkpoints.

    Raises:
        ArgumentError: If there is no name.

    Source: tf.compat.v1.train.Optimizer.
    """

    GATE_NONE: ClassVar[int] = 0
    GATE_OP: ClassVar[int] = 1
    GATE_GRAPH: ClassVar[int] = 2

    def __init__(self, use_locking: bool, name: str) -> None:
        if not name:
            raise ArgumentError(f"An optimizer must have a name. Received: {name!r}.")
        self._use_locking = use_locking
        self._name = name
        self._own = OwnVariables()

    def get_name(self) -> str:
        """Returns its name."""
        return self._name

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> TrainOp:
        """Returns the update that makes a loss smaller, for `EstimatorSpec(train_op=...)`.

        Args:
            loss: Floats, whose sum is meant if they are several; or a function of no arguments that returns them.
            global_step: What `get_global_step()` returns, to count the step; or a keras.Variable to count with; or
                `None`.
            var_list: Trainable variables, in any structure; `None` for all that there are so far.
            gate_gradients: Any of the three values: all gradients are taken before any variable changes.
            aggregation_method: Only `None`.
            colocate_gradients_with_ops: Only `False`.
            name: Names the operation in TensorFlow's graphs; of no effect on what is computed.
            grad_loss: What each element of the loss counts, of its shape; `None` for 1.

        Raises:
            StartupOrderError: Outside of a model_fn.
            ArgumentError: If the loss is not of floats, or there is nothing to train.
            UnsupportedError: For what concerns TensorFlow's graphs only.
        """
        if self._takes_own_gradients():
            pairs = self.compute_gradients(
                loss,
                var_list=var_list,
                gate_gradients=gate_gradients,
                aggregation_method=aggregation_method,
                colocate_gradients_with_ops=colocate_gradients_with_ops,
                grad_loss=grad_loss,
            )
            return self.apply_gradients(pairs, global_step=global_step, name=name)
        arguments = (var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss)
        value, variables = self._objective(loss, *arguments)
        rule, counts = counted(self._rule(variables), global_step)
        return TrainOp.deferred(rule, value, variables, counts)

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[Pair]:
        """Returns gradients as values, to be changed before `apply_gradients`; see `minimize` for the arguments.

        Returns:
            (gradient, variable) pairs. Gradients are averaged over the replicas.
        """
        arguments = (var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss)
        value, variables = self._objective(loss, *arguments)
        scope = self._own.here("Optimizer.compute_gradients")
        return list(zip(scope.gradients(value, variables), variables, strict=True))

    def apply_gradients(
        self,
        grads_and_vars: Iterable[Pair],
        global_step: Any = None,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> TrainOp:
        """Returns the update by given gradients, for `EstimatorSpec(train_op=...)`.

        Args:
            grads_and_vars: (gradient, variable) pairs; a variable whose gradient is `None` stays as it is.
            global_step: See `minimize`.
            name: See `minimize`.
            skip_gradients_aggregation: Only `False`.

        Raises:
            StartupOrderError: Outside of a model_fn.
            ArgumentError: If no variable has a gradient, or shapes do not match.
        """
        if skip_gradients_aggregation:
            raise UnsupportedError(
                "Gradients are averaged over the replicas, so that these stay equal. Received: "
                "skip_gradients_aggregation=True. Leave it out: gradients that are equal already stay what they are."
            )
        self._own.here("Optimizer.apply_gradients")
        pairs = pairs_of(grads_and_vars)
        rule, counts = counted(self._rule([v for _, v in pairs]), global_step)
        return TrainOp.immediate(rule, pairs, counts)

    def get_slot(self, var: Any, name: str) -> Any:
        """Returns the slot `name` of a variable, such as its "momentum"; `None` if there is none."""
        return self._own.slots.get(name, {}).get(id(var))

    def get_slot_names(self) -> list[str]:
        """Returns the names of its slots, sorted."""
        return sorted(self._own.slots)

    def variables(self) -> list[Any]:
        """Returns the variables that it has made in this call of the model_fn, by name in checkpoints."""
        return self._own.all()

    def _create_slots(self, var_list: Sequence[Any]) -> None:
        """Makes the variables that updates of `var_list` need."""

    def _prepare(self) -> None:
        """Computes what an update needs."""

    def _apply_dense(self, grad: Any, var: Any) -> Any:
        """Updates a variable; what it returns goes to `_finish`."""
        raise UnsupportedError(
            f"An optimizer must say how it updates a variable. Received: {type(self).__name__}, which does not. Define "
            "_apply_dense(self, grad, var)."
        )

    def _resource_apply_dense(self, grad: Any, handle: Any) -> Any:
        """Updates a variable; TensorFlow's other name for `_apply_dense`, which is called unless this is overridden."""
        return self._apply_dense(grad, handle)

    def _finish(self, update_ops: list[Any], name_scope: str) -> Any:
        """Ends an update."""

    def _zeros_slot(self, var: Any, slot_name: str, op_name: str) -> Any:
        """Returns a slot that starts with zeros."""
        return self._own.slot(var, slot_name, op_name, jnp.zeros_like)

    def _get_or_make_slot(self, var: Any, val: Any, slot_name: str, op_name: str) -> Any:
        """Returns a slot that starts with `val`, which must not be traced."""
        if isinstance(val, Tracer):
            raise ArgumentError(
                f"The first value of a slot must be known before training starts. Received: a traced value for "
                f"{slot_name!r}. Use numpy for it, or _get_or_make_slot_with_initializer."
            )
        return self._own.slot(var, slot_name, op_name, lambda value: jnp.asarray(val))

    def _get_or_make_slot_with_initializer(
        self, var: Any, initializer: Callable[..., Any], shape: Any, dtype: Any, slot_name: str, op_name: str
    ) -> Any:
        """Returns a slot that starts with what `initializer(shape, dtype=dtype)` returns."""
        size = tuple(shape)
        return self._own.slot(var, slot_name, op_name, lambda value: jnp.asarray(initializer(size, dtype=dtype)))

    def _filled_slot(self, var: Any, value: float, slot_name: str, op_name: str) -> Any:
        """Returns a slot that starts with one value everywhere."""
        return self._own.slot(var, slot_name, op_name, lambda like: jnp.full_like(like, value))

    def _create_non_slot_variable(self, initial_value: Any, name: str, colocate_with: Any = None) -> Any:
        """Returns a variable of no dimensions, made if it is not there."""
        return self._own.other(name, lambda: initial_value, jnp.result_type(jnp.float32, initial_value))

    def _get_non_slot_variable(self, name: str, graph: None = None) -> Any:
        """Returns a variable that `_create_non_slot_variable` has made, or `None`."""
        return self._own.others.get(name)

    def _non_slot_variables(self) -> list[Any]:
        """Returns what `_create_non_slot_variable` has made."""
        return list(self._own.others.values())

    def _call_if_callable(self, param: Any) -> Any:
        """Returns what a function returns, and anything else as it is."""
        return param() if callable(param) else param

    def _takes_own_gradients(self) -> bool:
        """Whether a subclass wants to see the gradients as values."""
        mine = (Optimizer.compute_gradients, Optimizer.apply_gradients)
        return (type(self).compute_gradients, type(self).apply_gradients) != mine

    def _objective(
        self, loss: Any, var_list: Any, gate: int, aggregation: None, colocate: bool, grad_loss: Any
    ) -> tuple[Any, list[Any]]:
        if gate not in (self.GATE_NONE, self.GATE_OP, self.GATE_GRAPH):
            raise ArgumentError(
                f"gate_gradients is one of Optimizer.GATE_NONE, GATE_OP and GATE_GRAPH. Received: {gate!r}."
            )
        if aggregation is not None or colocate:
            raise UnsupportedError(
                "aggregation_method and colocate_gradients_with_ops concern TensorFlow's graphs; there are none. "
                f"Received: {aggregation!r} and {colocate!r}. Leave them out: XLA decides."
            )
        scope = self._own.here("Optimizer.minimize")
        value = loss_of(loss, grad_loss)
        return value, variables_of(scope, var_list)

    def _rule(self, variables: list[Any]) -> OptimizerRule:
        """Makes everything that the update of some variables needs."""
        self._create_slots(variables)
        prepared = copy.copy(self)
        # Another call of the model_fn must not change what this rule knows.
        prepared._own = copy.copy(self._own)
        prepared._prepare()
        return OptimizerRule(prepared, Optimizer._carry_out)

    def _carry_out(self, gradients: list[Any], variables: list[Any]) -> None:
        """Updates variables; one without a gradient stays as it is."""
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        if not pairs:
            raise ArgumentError(
                "At least one variable must have a gradient. Received: None for each of "
                f"{', '.join(v.path for v in variables)}. Check that the loss depends on them."
            )
        done = [self._resource_apply_dense(gradient.astype(v.dtype), v) for gradient, v in pairs]
        self._finish(done, self._name)
