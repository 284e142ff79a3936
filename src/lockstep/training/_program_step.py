"""A user's step as a function of arrays, and the checks of its trace before it runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import keras
import numpy as np

from lockstep._engine.step.protocol import Step
from lockstep._nest import pack, unpack
from lockstep._types import Batch, Jaxpr, State
from lockstep.errors import ArgumentError
from lockstep.training._program_layout import Layout

UserStep = Callable[[Any, Any], tuple[Any, Any]]
# Shorter steps are traced twice, to see whether it is the same; for longer ones that takes too long.
_FEW_EQUATIONS = 2000
_RULE = "A step changes nothing but the state that it returns. Received: a step that"
_ADVICE = (
    "Pass variables in the state, and call model.stateless_call(trainable, non_trainable, x) and "
    "optimizer.stateless_apply(...), which return new values."
)


class NoUpdates(keras.StatelessScope):
    """A scope in which Keras variables may be read, and not assigned to.

    Args:
        rule: The rule, for the error: what the function may do instead.
        advice: The next action.
    """

    def __init__(self, rule: str, advice: str) -> None:
        super().__init__()
        self._rule = rule
        self._advice = advice

    def add_update(self, update: Any) -> None:
        """Raises `ArgumentError`."""
        raise ArgumentError(f"{self._rule} assigns to the Keras variable {update[0].path}. {self._advice}")


def of_arrays(step: UserStep, layout: Layout) -> Step:
    """Returns a user's step `(state, batch) -> (state, logs)` as `(arrays, batch) -> (logs, arrays)`."""

    def inner(arrays: State, batch: Batch) -> tuple[Any, Any]:
        with NoUpdates(_RULE, _ADVICE):
            result: Any = step(layout.state(arrays), unpack(batch))
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            what = f"{type(result).__name__}" + (f" of {len(result)}" if isinstance(result, (tuple, list)) else "")
            raise ArgumentError(
                f"A step returns (state, logs). Received: {what}. Return the new state, and what is to be shown, such "
                'as {"loss": loss}, or {} for nothing.'
            )
        state, logs = result
        for path, leaf in jax.tree_util.tree_flatten_with_path(logs)[0]:
            if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
                raise ArgumentError(
                    f"The logs of a step hold numbers and arrays. Received: {type(leaf).__name__} at "
                    f"{jax.tree_util.keystr(path) or 'the logs'}. Leave it out."
                )
        return pack(logs), layout.after(state, arrays)

    return inner


def examine(step: UserStep, layout: Layout, arrays: State, batch: Batch) -> None:
    """Traces a step.

    Args:
        step: The step.
        layout: The layout of its state.
        arrays: Shapes and dtypes of the state's arrays.
        batch: Those of a batch.

    Raises:
        ArgumentError: If the step is not pure.
    """

    def trace() -> Any:
        return jax.make_jaxpr(of_arrays(step, layout))(arrays, batch)  # A new function each time: jax keeps traces.

    check_same_trace(trace(), trace)


def check_same_trace(first: Jaxpr, trace: Callable[[], Any]) -> None:
    """Raises `ArgumentError` if a step does something else when it is traced again.

    Args:
        first: Its jaxpr.
        trace: Traces it.
    """
    if len(first.jaxpr.eqns) > _FEW_EQUATIONS:
        return
    second = trace()
    # Without the addresses of functions that the step has made.
    one, other = (re.sub("0x[0-9a-f]+", "", str(jaxpr)) for jaxpr in (first, second))
    if one != other or not all(map(_is_same_constant, first.consts, second.consts)):
        raise ArgumentError(
            "A step must be a pure function: JAX records it once, and repeats the record. Received: a step that "
            "computes something else when it is recorded again; it counts, reads a clock, or draws from numpy.random "
            "or random. Let the state hold what changes: a count of steps, a key of jax.random that the step splits."
        )


def _is_same_constant(one: Any, other: Any) -> bool:
    """Compares constants; of those that hold no numbers, such as a key, the text says enough."""
    if one is other or not isinstance(getattr(one, "dtype", None), np.dtype):
        return True
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()


shaped = partial(jax.tree.map, lambda a: jax.ShapeDtypeStruct(np.shape(a), jax.dtypes.canonicalize_dtype(a.dtype)))
