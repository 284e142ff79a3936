"""Update rules of gradient transformations: optax', or others with `init` and `update`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._types import Array, Optimizer, PyTree, State, Tensor, Variable
from lockstep.errors import UnsupportedError
from lockstep.estimator._model_fn.scope import ModelScope
from lockstep.estimator.train._closed import ClosureConverted

_NAME = "optax"
# The extra argument of optax' line searches and Polyak steps.
_VALUE = "value"


class OptaxRule:
    """The update rule of a gradient transformation.

    Its parameters are a dictionary of the variables' values by their names in checkpoints. Each array of its state is a
    variable, named by its path in the state, such as "optax/0/mu/dense/kernel".

    Args:
        scope: The current model_fn call.
        transformation: An object with `init(params)` and `update(gradients, state, params)`.
        variables: The variables that it trains.
        loss: The `value` for an `update` that takes one; `None` if there is none.

    Attributes:
        hyper: The traced values that the transformation closes over, and the loss.

    Raises:
        UnsupportedError: If its state cannot be kept in checkpoints.
    """

    def __init__(self, scope: ModelScope, transformation: Optimizer, variables: list[Variable], loss: Tensor) -> None:
        self._keys = [scope.key_of(v) for v in variables]
        params = {k: jax.ShapeDtypeStruct(tuple(v.shape), v.dtype) for k, v in zip(self._keys, variables, strict=True)}
        state = jax.eval_shape(transformation.init, params)
        self._treedef = jax.tree.structure(state)
        self._state = _state_variables(scope, transformation, state, self._keys)
        extra = [] if loss is None or not _takes_value(transformation) else [loss]

        def update(gradients: PyTree, state: State, params: PyTree, *value: Array) -> tuple[Any, Any]:
            return transformation.update(gradients, state, params, **({_VALUE: value[0]} if value else {}))

        examples = (params, state, params, *(jax.ShapeDtypeStruct(e.shape, e.dtype) for e in extra))
        self._update = ClosureConverted(update, *examples)
        self.hyper: dict[str, PyTree] = {"captured": self._update.captured, _VALUE: extra}

    def update(
        self, scope: object, gradients: list[Array], variables: list[Variable], hyper: dict[str, PyTree]
    ) -> None:
        """Updates the variables that have gradients."""
        params = {k: v.value for k, v in zip(self._keys, variables, strict=True)}
        gradient_of = dict(zip(self._keys, gradients, strict=True))
        # The state's structure is fixed, so a missing gradient counts as zero in it, but its variable stays as it is.
        by_key = {
            k: jnp.zeros_like(p) if gradient_of[k] is None else gradient_of[k].astype(p.dtype)
            for k, p in params.items()
        }
        state = jax.tree.unflatten(self._treedef, [v.value for v in self._state])
        updates, after = self._update(hyper["captured"], by_key, state, params, *hyper[_VALUE])
        for variable, value in zip(self._state, jax.tree.leaves(after), strict=True):
            variable.assign(value)
        for key, variable in zip(self._keys, variables, strict=True):
            if gradient_of[key] is not None:
                variable.assign((params[key] + updates[key]).astype(params[key].dtype))


def _state_variables(scope: ModelScope, transformation: Optimizer, state: State, keys: list[str]) -> list[Any]:
    """Creates a variable for each array of a state."""
    first = _FirstState(transformation, keys)
    start = _unique_prefix(scope)
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    return [_variable(scope, start, path, leaf, number, first) for number, (path, leaf) in enumerate(leaves)]


def _variable(
    scope: ModelScope, start: str, path: tuple[Any, ...], leaf: Array, number: int, first: _FirstState
) -> Any:
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        raise UnsupportedError(
            f"The state of a transformation is kept in checkpoints, as plain arrays. Received: {leaf.dtype} at {name}. "
            "Use a transformation without such state, or a raw key: jax.random.PRNGKey."
        )
    key = "/".join(part for part in (start, name) if part)
    return scope.derived_variable(key, lambda values: first(number, values), leaf.shape, leaf.dtype)


class _FirstState:
    """Computes the first state from the variables' first values, and hands out one array at a time."""

    def __init__(self, transformation: Optimizer, keys: list[str]) -> None:
        self._init = transformation.init
        self._keys = keys
        # Popped as arrays are read, so that no copy of the model is kept.
        self._left: dict[int, Any] = {}

    def __call__(self, number: int, values: Mapping[str, Any]) -> Any:
        if number not in self._left:
            state = self._init({key: jnp.asarray(values[key]) for key in self._keys})
            self._left = dict(enumerate(jax.tree.leaves(state)))
        return self._left.pop(number)


def _unique_prefix(scope: ModelScope) -> str:
    """Returns a prefix of names that no other transformation of this model_fn has."""
    count = scope.collections.setdefault("lockstep.estimator.train/optax", [])
    count.append(None)
    return _NAME if len(count) == 1 else f"{_NAME}_{len(count) - 1}"


def _takes_value(transformation: Optimizer) -> bool:
    parameters = inspect.signature(transformation.update).parameters
    return _VALUE in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
