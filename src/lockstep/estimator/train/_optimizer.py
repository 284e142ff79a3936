"""The base class of optimizers with TensorFlow 1's interface."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.core import Tracer

from lockstep._types import Array, ArrayLike, DType, PyTree, Tensor, Variable
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._model_fn.records import TrainOp
from lockstep.estimator._model_fn.scope import ModelScope, demand
from lockstep.estimator.train._arguments import (
    Hyperparameter,
    Pair,
    check_pairs,
    no_gradient,
    scalar_loss,
    trained_variables,
)
from lockstep.estimator.train._global_step import with_counter


class Optimizer:
    """Base class of the optimizers; a model_fn makes one and calls `minimize`.

    Subclasses override some of these methods, which run in this order:

    * `_create_slots(var_list)` creates variables, by `_zeros_slot` and the like; in the model_fn.
    * `_prepare()` computes values that an update needs, such as this step's learning rate, and stores them in
      attributes; in the model_fn.
    * `_apply_dense(grad, var)` updates one variable; after the model_fn, as part of the step.
    * `_finish(update_ops, name_scope)` updates variables of the optimizer as a whole; after all others.

    An update runs on a copy of the optimizer. It may use values computed in the model_fn only if they are attributes by
    then, or in a list, tuple or dictionary that is one. Gradients are dense.

    Attributes:
        GATE_NONE: A value of `gate_gradients`.
        GATE_OP: A value of `gate_gradients`.
        GATE_GRAPH: A value of `gate_gradients`.

    Args:
        use_locking: Accepted for TensorFlow's sake: updates never overlap.
        name: Name of the optimizer's variables in checkpoints.

    Raises:
        ArgumentError: If the name is empty.

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
        self._state = _OptimizerState()

    def get_name(self) -> str:
        """Returns the optimizer's name."""
        return self._name

    def minimize(
        self,
        loss: Tensor,
        global_step: Tensor | Variable | None = None,
        var_list: PyTree | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Tensor | None = None,
    ) -> TrainOp:
        """Returns the training operation that minimizes a loss, for `EstimatorSpec(train_op=...)`.

        Args:
            loss: Floats, which are summed; or a function of no arguments that returns them.
            global_step: The result of `get_global_step()`, to increment it; or a keras.Variable to increment; or
                `None`.
            var_list: Trainable variables, in any structure; `None` for all made so far.
            gate_gradients: Any of the three values: all gradients are computed before any variable changes.
            aggregation_method: Only `None`.
            colocate_gradients_with_ops: Only `False`.
            name: Names the operation in TensorFlow's graphs; of no effect on what is computed.
            grad_loss: A weight for each element of the loss; `None` for 1.

        Raises:
            StartupOrderError: Outside of a model_fn.
            ArgumentError: If the loss is not of floats, or there are no variables to train.
            UnsupportedError: For arguments that concern TensorFlow's graphs only.
        """
        # A subclass that clips or logs gradients, as programs do, must see values. Otherwise gradients stay inside of
        # the step program, which averages them where it wants (ZeRO-1, local SGD, compression).
        own = (Optimizer.compute_gradients, Optimizer.apply_gradients)
        if (type(self).compute_gradients, type(self).apply_gradients) != own:
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
        rule, counts = with_counter(self._rule(variables), global_step)
        return TrainOp.deferred(rule, value, variables, counts)

    def compute_gradients(
        self,
        loss: Tensor,
        var_list: PyTree | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Tensor | None = None,
    ) -> list[Pair]:
        """Computes gradients as values, for use with `apply_gradients`; see `minimize` for the arguments.

        Returns:
            (gradient, variable) pairs. Gradients are averaged over the replicas.
        """
        arguments = (var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss)
        value, variables = self._objective(loss, *arguments)
        scope = self._state.enter("Optimizer.compute_gradients")
        return list(zip(scope.gradients(value, variables), variables, strict=True))

    def apply_gradients(
        self,
        grads_and_vars: Iterable[Pair],
        global_step: Tensor | Variable | None = None,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> TrainOp:
        """Returns the training operation that applies gradients, for `EstimatorSpec(train_op=...)`.

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
        self._state.enter("Optimizer.apply_gradients")
        pairs = check_pairs(grads_and_vars)
        rule, counts = with_counter(self._rule([v for _, v in pairs]), global_step)
        return TrainOp.immediate(rule, pairs, counts)

    def get_slot(self, var: Variable, name: str) -> Any:
        """Returns the slot `name` of a variable, such as its "momentum"; `None` if there is none."""
        # By id: keras.Variable's == compares values, which are tracers here.
        return self._state.slots.get(name, {}).get(id(var))

    def get_slot_names(self) -> list[str]:
        """Returns the sorted names of the optimizer's slots."""
        return sorted(self._state.slots)

    def variables(self) -> list[Any]:
        """Returns the optimizer's variables in this call of the model_fn, sorted by name in checkpoints."""
        scope = self._state.enter("Optimizer.variables")
        slots = [variable for by_id in self._state.slots.values() for variable in by_id.values()]
        return sorted([*slots, *self._state.others.values()], key=scope.key_of)

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        """Creates the variables that updates of `var_list` need."""

    def _prepare(self) -> None:
        """Computes values that an update needs."""

    def _apply_dense(self, grad: Array, var: Variable) -> Any:
        """Updates a variable; the result is passed to `_finish`."""
        raise UnsupportedError(
            f"An optimizer must say how it updates a variable. Received: {type(self).__name__}, which does not. Define "
            "_apply_dense(self, grad, var)."
        )

    def _resource_apply_dense(self, grad: Array, handle: Variable) -> Any:
        """Updates a variable; TensorFlow's other name for `_apply_dense`, which is called unless this is overridden."""
        return self._apply_dense(grad, handle)

    def _finish(self, update_ops: list[Tensor], name_scope: str) -> Any:
        """Updates variables of the optimizer as a whole."""

    def _zeros_slot(self, var: Variable, slot_name: str, op_name: str) -> Any:
        """Returns a slot that starts with zeros."""
        return self._state.slot(var, slot_name, op_name, jnp.zeros_like)

    def _get_or_make_slot(self, var: Variable, val: ArrayLike, slot_name: str, op_name: str) -> Any:
        """Returns a slot that starts with `val`, which must not be traced."""
        if isinstance(val, Tracer):
            raise ArgumentError(
                f"The first value of a slot must be known before training starts. Received: a traced value for "
                f"{slot_name!r}. Use numpy for it, or _get_or_make_slot_with_initializer."
            )
        return self._state.slot(var, slot_name, op_name, lambda value: jnp.asarray(val))

    def _get_or_make_slot_with_initializer(
        self,
        var: Variable,
        initializer: Callable[..., Any],
        shape: Sequence[int],
        dtype: DType,
        slot_name: str,
        op_name: str,
    ) -> Any:
        """Returns a slot that starts with `initializer(shape, dtype=dtype)`."""
        size = tuple(shape)
        return self._state.slot(var, slot_name, op_name, lambda value: jnp.asarray(initializer(size, dtype=dtype)))

    def _filled_slot(self, var: Variable, value: float, slot_name: str, op_name: str) -> Any:
        """Returns a slot that starts with one value everywhere."""
        return self._state.slot(var, slot_name, op_name, lambda like: jnp.full_like(like, value))

    def _create_non_slot_variable(
        self, initial_value: ArrayLike, name: str, colocate_with: Variable | None = None
    ) -> Any:
        """Returns a scalar variable, created on first use."""
        return self._state.other(name, lambda: initial_value, jnp.result_type(jnp.float32, initial_value))

    def _get_non_slot_variable(self, name: str, graph: None = None) -> Any:
        """Returns a variable of `_create_non_slot_variable`, or `None`."""
        return self._state.others.get(name)

    def _non_slot_variables(self) -> list[Any]:
        """Returns the variables of `_create_non_slot_variable`."""
        return list(self._state.others.values())

    def _call_if_callable(self, param: Hyperparameter) -> Any:
        """Calls a function; returns any other value as it is."""
        return param() if callable(param) else param

    def _objective(
        self, loss: Tensor, var_list: PyTree, gate: int, aggregation: None, colocate: bool, grad_loss: Tensor
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
        scope = self._state.enter("Optimizer.minimize")
        # A loss that is a function makes its layers now, so it is called before all variables are listed.
        value = scalar_loss(loss, grad_loss)
        return value, trained_variables(scope, var_list)

    def _rule(self, variables: list[Variable]) -> _OptimizerRule:
        """Creates slots and returns the update rule of some variables."""
        # TensorFlow's order in apply_gradients; a subclass' `_prepare` may read slots.
        self._create_slots(variables)
        prepared = copy.copy(self)
        # The optimizer may be used in another call of the model_fn before this rule's update runs.
        prepared._state = copy.copy(self._state)
        prepared._prepare()
        return _OptimizerRule(prepared, Optimizer._apply_all)

    def _apply_all(self, gradients: list[Array], variables: list[Variable]) -> None:
        """Updates the variables that have gradients."""
        pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
        if not pairs:
            raise no_gradient(variables)
        updates = [self._resource_apply_dense(gradient.astype(v.dtype), v) for gradient, v in pairs]
        self._finish(updates, self._name)


class _OptimizerState:
    """The variables of an optimizer in one call of a model_fn.

    Names are TensorFlow's: slots are named after the optimizer, "dense/kernel/Adam", and when that is taken
    "dense/kernel/Adam_1".

    Attributes:
        slots: Slots, by name, then by the trained variable's id.
        others: Other variables, by name.
    """

    def __init__(self) -> None:
        self.slots: dict[str, dict[int, Any]] = {}
        self.others: dict[str, PyTree] = {}
        # Weak: an optimizer that a program keeps must not keep the traced values of a model_fn's call.
        self._scope: Callable[[], ModelScope | None] = lambda: None

    def enter(self, caller: str) -> ModelScope:
        """Returns the current model_fn call; starts anew in a new one. `caller` is named if there is none."""
        scope = demand(caller)
        if self._scope() is not scope:
            self.slots, self.others = {}, {}
            self._scope = weakref.ref(scope)
        return scope

    def slot(self, variable: Variable, slot_name: str, op_name: str, initial: Callable[[Array], Array]) -> Variable:
        """Returns the slot `slot_name`, created on first use.

        Its name in checkpoints is `op_name` after the variable's. `initial` computes its first value from that of
        `variable`.
        """
        scope = self.enter("A slot of an optimizer")
        slots = self.slots.setdefault(slot_name, {})
        if id(variable) not in slots:
            start = f"{scope.key_of(variable)}/"
            key = _unique_key(scope, start + op_name)
            slots[id(variable)] = scope.slot(variable, key.removeprefix(start), initial)
        return slots[id(variable)]

    def other(self, name: str, initial: Callable[[], ArrayLike], dtype: DType) -> Any:
        """Returns a scalar variable that belongs to no trained variable, created on first use."""
        scope = self.enter("A variable of an optimizer")
        if name not in self.others:
            self.others[name] = scope.variable(_unique_key(scope, name), initial, (), dtype)
        return self.others[name]


def _unique_key(scope: ModelScope, name: str) -> str:
    # Two optimizers of one model_fn share names, such as a GAN's two Adams; TensorFlow numbers them from the second on.
    key, number = name, 0
    while key in scope.variables:
        number += 1
        key = f"{name}_{number}"
    return key


class _OptimizerRule:
    """The update rule of an optimizer, with its attributes as they are now.

    Attributes:
        hyper: The traced values in the optimizer, by attribute.
    """

    def __init__(self, optimizer: Optimizer, apply: Callable[[Any, list[Array], list[Variable]], None]) -> None:
        self._optimizer = optimizer
        self._apply = apply
        # Tracers of the model_fn must not outlive its trace, and the update is traced again, per replica. So traced
        # values leave the attributes for `hyper`, an input of the step program, and come back as that program's
        # tracers.
        self._split = {name: _SplitTree(value) for name, value in vars(optimizer).items() if _is_traced(value)}
        self.hyper: dict[str, PyTree] = {name: split.traced for name, split in self._split.items()}
        for name in self._split:
            setattr(optimizer, name, None)

    def update(
        self, scope: object, gradients: list[Array], variables: list[Variable], hyper: dict[str, PyTree]
    ) -> None:
        """Updates the variables, on a copy of the optimizer, whose attributes hold no tracers afterwards."""
        optimizer = copy.copy(self._optimizer)
        for name, split in self._split.items():
            setattr(optimizer, name, split.merge(hyper[name]))
        self._apply(optimizer, gradients, variables)


class _SplitTree:
    """A PyTree, split into `traced` leaves and the rest."""

    def __init__(self, value: PyTree) -> None:
        leaves, self._treedef = jax.tree.flatten(value)
        self.traced = [leaf for leaf in leaves if isinstance(leaf, Tracer)]
        # Tuples of one: None marks the place of a traced leaf, and is a value of others.
        self._rest = [None if isinstance(leaf, Tracer) else (leaf,) for leaf in leaves]

    def merge(self, traced: list[Array]) -> PyTree:
        """Returns the PyTree with other values in the places of the traced leaves."""
        values = iter(traced)
        return jax.tree.unflatten(self._treedef, [next(values) if r is None else r[0] for r in self._rest])


def _is_traced(value: PyTree) -> bool:
    # Not by jax.tree.leaves, which sorts the keys of dictionaries, and fails for keys of several types.
    if isinstance(value, Tracer):
        return True
    if isinstance(value, dict):
        return any(_is_traced(v) for v in value.values())
    return isinstance(value, (list, tuple)) and any(_is_traced(v) for v in value)
