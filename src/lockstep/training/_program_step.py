"""A user's step as one of arrays alone, and what a look at its record tells before it runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from lockstep._engine.keras.no_updates import NoUpdates
from lockstep._engine.step.protocol import Step
from lockstep._nest import opened, packed
from lockstep.errors import ArgumentError
from lockstep.training._program_layout import Layout

UserStep = Callable[[Any, Any], tuple[Any, Any]]
# A step that has no more is recorded twice, to see whether it is the same; with more, that takes too long.
_FEW_EQUATIONS = 2000
_RULE = "A step changes nothing but the state that it returns. Received: a step that"
_ADVICE = (
    "Pass variables in the state, and call model.stateless_call(trainable, non_trainable, x) and "
    "optimizer.stateless_apply(...), which return new values."
)


def of_arrays(step: UserStep, layout: Layout) -> Step:
    """Returns a user's step `(state, batch) -> (state, logs)` as `(arrays, batch) -> (logs, arrays)`."""

    def inner(arrays: Any, batch: Any) -> tuple[Any, Any]:
        with NoUpdates(_RULE, _ADVICE):
            made = step(layout.state(arrays), opened(batch))
        state, logs = _pair(made)
        return packed(_checked_logs(logs)), layout.after(state, arrays)

    return inner


def examine(step: UserStep, layout: Layout, arrays: Any, batch: Any) -> None:
    """Traces a step.

    Args:
        step: The step.
        layout: Of its state.
        arrays: Shapes and types of the state's arrays.
        batch: Those of a batch.

    Raises:
        ArgumentError: If the step is not pure.
    """

    def traced() -> Any:
        return jax.make_jaxpr(of_arrays(step, layout))(arrays, batch)  # A new function each time: jax keeps traces.

    demand_same_record(traced(), traced)


def demand_same_record(first: Any, trace: Callable[[], Any]) -> None:
    """Raises `ArgumentError` if a step does something else when it is traced again.

    Args:
        first: Its jaxpr.
        trace: Traces it.
    """
    if len(first.jaxpr.eqns) > _FEW_EQUATIONS:
        return
    second = trace()
    if _text(first) != _text(second) or not all(map(_is_same, first.consts, second.consts)):
        raise ArgumentError(
            "A step must be a pure function: JAX records it once, and repeats the record. Received: a step that "
            "computes something else when it is recorded again; it counts, reads a clock, or draws from numpy.random "
            "or random. Let the state hold what changes: a count of steps, a key of jax.random that the step splits."
        )


def _text(record: Any) -> str:
    """A record as text, without the addresses of functions that the step has made."""
    return re.sub("0x[0-9a-f]+", "", str(record))


def _is_same(one: Any, other: Any) -> bool:
    """Whether the step has got the same constant; of what holds no numbers, such as a key, the text says enough."""
    if one is other or not isinstance(getattr(one, "dtype", None), np.dtype):
        return True
    return np.asarray(one).tobytes() == np.asarray(other).tobytes()


def _pair(made: Any) -> tuple[Any, Any]:
    if isinstance(made, (tuple, list)) and len(made) == 2:
        return made[0], made[1]
    what = f"{type(made).__name__}" + (f" of {len(made)}" if isinstance(made, (tuple, list)) else "")
    raise ArgumentError(
        f"A step returns (state, logs). Received: {what}. Return the new state, and what is to be shown, such as "
        '{"loss": loss}, or {} for nothing.'
    )


def _checked_logs(logs: Any) -> Any:
    for path, leaf in jax.tree_util.tree_flatten_with_path(logs)[0]:
        if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, bool, int, float, complex)):
            raise ArgumentError(
                f"The logs of a step hold numbers and arrays. Received: {type(leaf).__name__} at "
                f"{jax.tree_util.keystr(path) or 'the logs'}. Leave it out."
            )
    return logs


shaped = partial(jax.tree.map, lambda a: jax.ShapeDtypeStruct(np.shape(a), jax.dtypes.canonicalize_dtype(a.dtype)))
