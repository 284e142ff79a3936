"""Recurrent layers: the gradient of a cell in a loop over times."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.grids.case import Case

_ROWS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
_QUICK = (8, 32)


def recurrent_cases() -> Iterator[Case]:
    """Yields gradients of layers with few and many rows, units and times, in every type."""
    for name, rows in itertools.product(CELLS, _ROWS):
        yield _case(name, 80, rows, 128, quick=rows in _QUICK)
    for units, rows in itertools.product((32, 64, 256, 512), (1, 8, 32, 64, 96)):
        yield _case("LSTM", 40, rows, units)
    for times, rows in itertools.product((4, 10, 400), (4, 32, 96)):
        yield _case("LSTM", times, rows, 64)
    for dtype, rows in itertools.product((jnp.bfloat16, jnp.float16, jnp.float64), (4, 32, 96)):
        yield _case("LSTM", 40, rows, 64, dtype)


def _lstm(of_input: jax.Array, of_state: jax.Array, state: Any, x: jax.Array) -> Any:
    return _gated(state[1], *jnp.split(x @ of_input + state[0] @ of_state, 4, -1))


def _by_gates(of_input: jax.Array, of_state: jax.Array, state: Any, x: jax.Array) -> Any:
    """As layers with dropout compute it, where each gate sees the input through a mask of its own."""
    weights = zip(jnp.split(of_input, 4, -1), jnp.split(of_state, 4, -1), strict=True)
    return _gated(state[1], *(x @ given + state[0] @ kept for given, kept in weights))


def _gated(cell: jax.Array, keep: jax.Array, new: jax.Array, value: jax.Array, out: jax.Array) -> Any:
    """The state and the output of an LSTM, given what its gates see."""
    cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(new) * jnp.tanh(value)
    hidden = jax.nn.sigmoid(out) * jnp.tanh(cell)
    return (hidden, cell), hidden


def _gru(of_input: jax.Array, of_state: jax.Array, state: Any, x: jax.Array) -> Any:
    (hidden, _), units = state, of_state.shape[0]
    given, kept = x @ of_input, hidden @ of_state
    keep, reset = jnp.split(jax.nn.sigmoid((given + kept)[..., : 2 * units]), 2, -1)
    new = jnp.tanh(given[..., 2 * units :] + reset * kept[..., 2 * units :])
    hidden = keep * hidden + (1 - keep) * new
    return (hidden, hidden), hidden


def _simple(of_input: jax.Array, of_state: jax.Array, state: Any, x: jax.Array) -> Any:
    hidden = jnp.tanh(x @ of_input + state[0] @ of_state)
    return (hidden, hidden), hidden


# What a cell computes, and how many matrices of its weights lie side by side.
CELLS: dict[str, tuple[Callable[..., Any], int]] = {
    "LSTM": (_lstm, 4),
    "LSTM by gates": (_by_gates, 4),
    "GRU": (_gru, 3),
    "simple": (_simple, 1),
}


def _case(name: str, times: int, rows: int, units: int, dtype: Any = jnp.float32, quick: bool = False) -> Case:
    cell, gates = CELLS[name]
    weights = (units, gates * units)

    def layer(x: jax.Array, of_input: jax.Array, of_state: jax.Array) -> jax.Array:
        # As layers begin: gates neither open nor shut, so that a state stays a number.
        scaled = (w * (0.5 / units**0.5) for w in (of_input, of_state))
        step = partial(cell, *(w.astype(x.dtype) for w in scaled))
        first = jnp.zeros((rows, units), x.dtype)
        return jax.lax.scan(step, (first, first), x)[1]

    def gradient(x: jax.Array, of_input: jax.Array, of_state: jax.Array, g: jax.Array) -> Any:
        return jax.vjp(layer, x, of_input, of_state)[1](g)

    shapes = ((times, rows, units), weights, weights, (times, rows, units))
    title = f"recurrent {name} of {units}, {times} times, {rows} rows {jnp.dtype(dtype).name} gradient"
    return Case(title, gradient, shapes, dtype, quick, in_loop=False)
