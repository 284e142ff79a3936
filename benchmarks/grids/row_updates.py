"""Tables of embeddings and their optimizers: some rows are looked up, and get a gradient."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.grids.case import Case

State = tuple[jax.Array, jax.Array, jax.Array]
"""A table, and two arrays of its shape that belong to the optimizer."""

# Rows and numbers of a row, around the size from which rows are updated by themselves, and far above it.
_TABLES = ((16_384, 16), (100_000, 1), (300_000, 1), (4_096, 64), (8_192, 64), (100_000, 32), (1_000_000, 16))
_LOOKUPS = (32, 256, 1_024, 8_192)
# Steps of a training, so that the copy of the table before the first one is a small part.
_STEPS = 10


def row_update_cases() -> Iterator[Case]:
    """Yields tables with few and many lookups, under SGD, Adagrad, momentum and Adam."""
    for table in _TABLES:
        for count in _LOOKUPS:
            yield _training("Adagrad", table, count, quick=count == 256)
    for table in _TABLES[-3:]:
        yield _training("SGD", table, 256)
        yield _training("momentum", table, 256)
        for count in _LOOKUPS:
            yield _training("Adam", table, count, quick=count == 256)
    for table, count in (((20_000, 64), 1_024), ((2_000_000, 1), 1_024), ((16_384, 64), 32)):
        yield _training("Adam", table, count)


def _sgd(state: State, gradient: jax.Array) -> State:
    values, means, squares = state
    return values - 0.01 * gradient, means, squares


def _momentum(state: State, gradient: jax.Array) -> State:
    values, means, squares = state
    means = 0.9 * means - 0.01 * gradient
    return values + means, means, squares


def _adagrad(state: State, gradient: jax.Array) -> State:
    values, means, squares = state
    squares = squares + gradient**2
    return values - 0.01 * gradient / jnp.sqrt(squares + 1e-7), means, squares


def _adam(state: State, gradient: jax.Array) -> State:
    values, means, squares = state
    means, squares = means + (gradient - means) * 0.1, squares + (gradient**2 - squares) * 0.001
    return values - 0.01 * means / (jnp.sqrt(squares) + 1e-7), means, squares


_OPTIMIZERS = {"SGD": _sgd, "momentum": _momentum, "Adagrad": _adagrad, "Adam": _adam}


def _training(name: str, table: tuple[int, int], count: int, quick: bool = False) -> Case:
    def compute(table: jax.Array, seeds: jax.Array, target: jax.Array) -> jax.Array:
        places = (jnp.abs(seeds) * 1e7).astype(jnp.int32) % table.shape[0]

        def step(i: int, state: State) -> State:
            here = lax.dynamic_index_in_dim(places, i, keepdims=False)
            gradient = jax.grad(lambda t: jnp.sum((jnp.take(t, here, 0) - target) ** 2))(state[0])
            return _OPTIMIZERS[name](state, gradient)

        return lax.fori_loop(0, _STEPS, step, (table, jnp.zeros_like(table), jnp.full_like(table, 0.1)))[0]

    title = f"row updates {name}, {table[0]}x{table[1]} float32, {count} lookups, {_STEPS} steps"
    return Case(title, compute, (table, (_STEPS, count), (table[1],)), jnp.float32, quick, in_loop=False)
