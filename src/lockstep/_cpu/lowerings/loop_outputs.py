"""Arrays that a loop fills, a part in each round, and that need no value before it.

`lax.scan` begins with arrays of zeros for what it stacks. They are one array to XLA, of which it makes a copy for each
output. Where a loop is differentiated, these are all that its rounds save: in a step of two ConvLSTMs 26 copies of 4 MB
took 33 of 76 ms of operations. Here the arrays come from a custom call that writes nothing.
"""

from __future__ import annotations

import functools
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax

from lockstep._cpu import targets
from lockstep._cpu.lowerings.loop_body import Body, body_of, nbytes

NAME = "lockstep_empty"
# A call is Python's, some 10 us, and may wait for the interpreter; to fill 1 MB takes 0.1 ms.
_LEAST_BYTES = 4 << 20


def loop_outputs(*operands: Any, **params: Any) -> Any:
    """Rule: a `scan` on one device that stacks large outputs, as a loop that writes them where they are."""
    body = body_of(operands, params)
    if body is None or body.options["unroll"] != 1 or not targets.is_supported():
        return None
    # Keys of random numbers have a type of jax's own.
    if not all(isinstance(v.aval.dtype, np.dtype) for v in body.stacked):
        return None
    is_large = sum(map(nbytes, body.stacked)) * body.length >= _LEAST_BYTES
    return partial(_compute, body) if is_large else None


def _compute(body: Body, *operands: jax.Array) -> list[jax.Array]:
    """Computes the loop; returns what it carries, then what it stacks."""
    fixed, first, rows = body.split(operands)
    stacked = _empty([jax.ShapeDtypeStruct((body.length, *v.aval.shape), v.aval.dtype) for v in body.stacked])

    def one_round(state: tuple[Any, list[Any], list[Any]]) -> tuple[Any, list[Any], list[Any]]:
        number, carried, stacked = state
        place = body.length - 1 - number if body.options["reverse"] else number
        parts = {v: lax.dynamic_index_in_dim(array, place, keepdims=False) for v, array in rows.items()}
        known = fixed | dict(zip(body.carried, carried, strict=True)) | parts
        found = body.compute([*body.after, *body.stacked], known)
        after, new = found[: len(carried)], found[len(carried) :]
        written = [lax.dynamic_update_index_in_dim(a, v, place, 0) for a, v in zip(stacked, new, strict=True)]
        return number + 1, after, written

    _, last, stacked = lax.while_loop(lambda state: state[0] < body.length, one_round, (0, first, stacked))
    return [*last, *stacked]


def _empty(shapes: list[jax.ShapeDtypeStruct]) -> list[jax.Array]:
    """Returns arrays with any values, in a program for CPU devices that XLA does not divide."""
    _register()
    return list(jax.ffi.ffi_call(NAME, shapes)())


@functools.cache
def _register() -> None:
    targets.register(NAME, lambda frame: None)
