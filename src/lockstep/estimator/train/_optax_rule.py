"""Update rules of gradient transformations: optax', or others with `init` and `update`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun

from lockstep._engine.step.jaxprs import close_jaxpr
from lockstep._types import Array, Optimizer, PyTree, State, Tensor, Variable
from lockstep.errors import UnsupportedError
from lockstep.estimator._model_fn.scope import ModelScope

_TRACED = object()
# The extra argument of optax' line searches and Polyak steps.
_VALUE = "value"


class OptaxRule:
    """The update rule of a gradient transformation.

    Its parameters are a dictionary of the variables' values by their names in checkpoints. Each array of its state is a
    variable, named by its path in the state, such as "optax/0/mu/dense/kernel".

    Attributes:
        hyper: The traced values that the transformation closes over, and the loss for an `update` that takes it.
    """

    def __init__(self, scope: ModelScope, transformation: Optimizer, variables: list[Variable], loss: Tensor) -> None:
        self._keys = [scope.key_of(v) for v in variables]
        params = {k: jax.ShapeDtypeStruct(tuple(v.shape), v.dtype) for k, v in zip(self._keys, variables, strict=True)}
        state = jax.eval_shape(transformation.init, params)
        self._treedef = jax.tree.structure(state)
        self._state = _state_variables(scope, transformation, state, self._keys)
        # optax' `chain` takes any keyword and passes it on to those of its parts that know it.
        arguments = inspect.signature(transformation.update).parameters
        takes_value = _VALUE in arguments or any(p.kind is p.VAR_KEYWORD for p in arguments.values())
        extra = [loss] if takes_value and loss is not None else []

        def update(gradients: PyTree, state: State, params: PyTree, *value: Array) -> tuple[Any, Any]:
            return transformation.update(gradients, state, params, **({_VALUE: value[0]} if value else {}))

        examples = (params, state, params, *(jax.ShapeDtypeStruct(e.shape, e.dtype) for e in extra))
        self._update = _ClosureConverted(update, *examples)
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
    # Popped as arrays are read, so that no copy of the model is kept.
    unread: dict[int, Any] = {}

    def first_value(number: int, values: Mapping[str, Any]) -> Any:
        if number not in unread:
            first = transformation.init({key: jnp.asarray(values[key]) for key in keys})
            unread.update(enumerate(jax.tree.leaves(first)))
        return unread.pop(number)

    # A prefix that no other transformation of this model_fn has.
    prefixes = scope.collections.setdefault("lockstep.estimator.train/optax", [])
    prefixes.append(f"optax_{len(prefixes)}" if prefixes else "optax")
    variables: list[Any] = []
    for number, (path, leaf) in enumerate(jax.tree_util.tree_flatten_with_path(state)[0]):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            raise UnsupportedError(
                f"The state of a transformation is kept in checkpoints, as plain arrays. Received: {leaf.dtype} at "
                f"{name}. Use a transformation without such state, or a raw key: jax.random.PRNGKey."
            )
        key = "/".join(part for part in (prefixes[-1], name) if part)
        first = functools.partial(first_value, number)
        variables.append(scope.derived_variable(key, first, leaf.shape, leaf.dtype))
    return variables


class _ClosureConverted:
    """A function that can be called after the trace it was made in has ended.

    `examples` have the shapes and dtypes of later calls' arguments. `captured` are the traced values that the function
    uses besides its arguments.
    """

    def __init__(self, function: Callable[..., Any], *examples: PyTree) -> None:
        # jax.closure_convert does this too, but hoists floats only; optax' state has integers.
        program, shape = jax.make_jaxpr(function, return_shape=True)(*examples)
        self._jaxpr = program.jaxpr
        self._treedef = jax.tree.structure(shape)
        self.captured = [c for c in program.consts if isinstance(c, Tracer)]
        # Only the places of tracers are kept: they would outlive their trace here.
        self._constants = [_TRACED if isinstance(c, Tracer) else c for c in program.consts]

    def __call__(self, captured: list[Array], *arguments: PyTree) -> PyTree:
        """Calls the function with other values in place of the captured ones."""
        values = iter(captured)
        constants = [next(values) if c is _TRACED else c for c in self._constants]
        leaves = jaxpr_as_fun(close_jaxpr(self._jaxpr, constants))(*jax.tree.leaves(arguments))
        return jax.tree.unflatten(self._treedef, leaves)
