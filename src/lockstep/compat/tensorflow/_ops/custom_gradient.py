"""tf.custom_gradient: functions whose derivatives a function of the program computes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import keras

from lockstep._nest import flatten
from lockstep._types import Variable
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._tape import recording
from lockstep.compat.tensorflow._tape.entry import is_inexact
from lockstep.compat.tensorflow._types import Argument

__all__ = ["custom_gradient"]


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a function whose derivatives are those that it returns: `(result, gradient function)`.

    The gradient function takes a derivative by each result, and returns one by each tensor among the arguments. If the
    function reads trainable variables, it takes `variables=`, too, and returns `(by arguments, by variables)`.

    Source: tf.custom_gradient.
    """
    by_jax = keras.ops.custom_gradient(f)

    @functools.wraps(f)
    def call(*args: Argument, **kwargs: Argument) -> Any:
        around = recording.current()
        if around is None:
            # No tape is open here: who takes derivatives is JAX, in fit or in a model_fn.
            return by_jax(*args, **kwargs)
        return _record(around, f, args, kwargs)

    return call


class _Reads:
    """Takes note of the variables that a function reads, in the place of a tape."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[Variable, Any]] = {}

    def knows(self, values: Sequence[Any]) -> bool:
        """Asks for no operation."""
        del values
        return False

    def note_read(self, variable: Variable, array: Any) -> None:
        """Takes note of a variable."""
        if variable.trainable and is_inexact(array):
            self.found[id(variable)] = variable, array


def _record(around: recording.Recording, f: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    reads = _Reads()
    around.tapes.append(reads)
    try:
        returned, gradient = f(*args, **kwargs)
    finally:
        around.tapes.remove(reads)
    leaves = [_array(leaf) for leaf in jax.tree.leaves(args)]
    given = {id(leaf) for leaf in jax.tree.leaves(args)}
    variables = {key: pair for key, pair in reads.found.items() if key not in given}
    takes_variables = "variables" in inspect.signature(gradient).parameters or any(
        p.kind is p.VAR_KEYWORD for p in inspect.signature(gradient).parameters.values()
    )
    if variables and not takes_variables:
        raise TypeError(
            "If using @custom_gradient with a function that uses variables, then grad_fn must accept a keyword "
            f"argument 'variables'. Received: a function that reads {[v.path for v, _ in variables.values()]}."
        )
    results, structure = flatten(returned)
    arrays = [dispatch.to_array(dispatch.DEVICE, result) for result in results]

    def pull(*upstream: Any) -> list[Any]:
        named = {"variables": [v for v, _ in variables.values()]} if variables else {}
        found = gradient(*upstream, **named)
        of_variables: Sequence[Any] = ()
        if variables:
            found, of_variables = found
        of_arguments = list(found) if isinstance(found, (list, tuple)) else [found]
        if len(of_arguments) != len(leaves):
            raise ValueError(
                f"custom_gradient function expected to return {len(leaves)} gradients, but returned "
                f"{len(of_arguments)} instead."
            )
        return [None if g is None else dispatch.to_array(dispatch.DEVICE, g) for g in (*of_arguments, *of_variables)]

    inputs = [*leaves, *(array for _, array in variables.values())]
    return structure.unflatten(around.python_call(inputs, arrays, pull))


def _array(leaf: Any) -> Any:
    """Returns the array on the tape that an argument is."""
    if isinstance(leaf, keras.Variable):
        return leaf.value
    watched = recording.stands_for(leaf)
    return leaf if watched is None else watched
