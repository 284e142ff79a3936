"""Gradient transformations of optax, or anything else with `init` and `update`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._model_fn.scope import ModelScope
from lockstep.errors import UnsupportedError
from lockstep.train._closed import Closed

_NAME = "optax"
# What an update may ask for besides gradients, state and parameters.
_VALUE = "value"


class OptaxRule:
    """The update of a gradient transformation.

    Its parameters are a dictionary: the values of the variables by their names in checkpoints. Each array of its state
    is a variable, called by where it is in the state, such as "optax/0/mu/dense/kernel".

    Args:
        scope: The running call of the model_fn.
        transformation: With `init(params)` and `update(gradients, state, params)`.
        variables: What it trains.
        loss: What to give to an `update` that takes `value`; `None` if there is none.

    Attributes:
        hyper: What the transformation was made with that was traced, and the loss.

    Raises:
        UnsupportedError: If its state holds something that cannot be in a checkpoint.
    """

    def __init__(self, scope: ModelScope, transformation: Any, variables: list[Any], loss: Any) -> None:
        self._keys = [scope.key_of(v) for v in variables]
        params = {k: jax.ShapeDtypeStruct(tuple(v.shape), v.dtype) for k, v in zip(self._keys, variables, strict=True)}
        state = jax.eval_shape(transformation.init, params)
        self._treedef = jax.tree.structure(state)
        self._state = _state_variables(scope, transformation, state, self._keys)
        extra = [] if loss is None or not _takes_value(transformation) else [loss]

        def update(gradients: Any, state: Any, params: Any, *value: Any) -> tuple[Any, Any]:
            return transformation.update(gradients, state, params, **({_VALUE: value[0]} if value else {}))

        examples = (params, state, params, *(jax.ShapeDtypeStruct(e.shape, e.dtype) for e in extra))
        self._update = Closed(update, *examples)
        self.hyper: dict[str, Any] = {"captured": self._update.captured, _VALUE: extra}

    def update(self, scope: Any, gradients: list[Any], variables: list[Any], hyper: dict[str, Any]) -> None:
        """Updates the variables; one without a gradient stays as it is."""
        params = {k: v.value for k, v in zip(self._keys, variables, strict=True)}
        given = dict(zip(self._keys, gradients, strict=True))
        by_key = {k: jnp.zeros_like(p) if given[k] is None else given[k].astype(p.dtype) for k, p in params.items()}
        state = jax.tree.unflatten(self._treedef, [v.value for v in self._state])
        updates, after = self._update(hyper["captured"], by_key, state, params, *hyper[_VALUE])
        for variable, value in zip(self._state, jax.tree.leaves(after), strict=True):
            variable.assign(value)
        for key, variable in zip(self._keys, variables, strict=True):
            if given[key] is not None:
                variable.assign((params[key] + updates[key]).astype(params[key].dtype))


def _state_variables(scope: ModelScope, transformation: Any, state: Any, keys: list[str]) -> list[Any]:
    """Makes a variable of each array in a state."""
    first = _First(transformation, keys)
    start = _free_start(scope)
    leaves = jax.tree_util.tree_flatten_with_path(state)[0]
    return [_variable(scope, start, path, leaf, number, first) for number, (path, leaf) in enumerate(leaves)]


def _variable(scope: ModelScope, start: str, path: Any, leaf: Any, number: int, first: _First) -> Any:
    name = jax.tree_util.keystr(path, simple=True, separator="/")
    if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
        raise UnsupportedError(
            f"The state of a transformation is kept in checkpoints, as plain arrays. Received: {leaf.dtype} at {name}. "
            "Use a transformation without such state, or a raw key: jax.random.PRNGKey."
        )
    key = "/".join(part for part in (start, name) if part)
    return scope.derived(key, lambda values: first(number, values), leaf.shape, leaf.dtype)


class _First:
    """Computes the first state from the first values of the variables, for one array of it after another."""

    def __init__(self, transformation: Any, keys: list[str]) -> None:
        self._init = transformation.init
        self._keys = keys
        # Emptied as arrays are asked for, so that no copy of the model is kept.
        self._left: dict[int, Any] = {}

    def __call__(self, number: int, values: Mapping[str, Any]) -> Any:
        if number not in self._left:
            state = self._init({key: jnp.asarray(values[key]) for key in self._keys})
            self._left = dict(enumerate(jax.tree.leaves(state)))
        return self._left.pop(number)


def _free_start(scope: ModelScope) -> str:
    """Returns a name that no other transformation of this model_fn has."""
    count = scope.collections.setdefault("lockstep.train/optax", [])
    count.append(None)
    return _NAME if len(count) == 1 else f"{_NAME}_{len(count) - 1}"


def _takes_value(transformation: Any) -> bool:
    parameters = inspect.signature(transformation.update).parameters
    return _VALUE in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
