"""Sines, cosines, tangents and their inverses: encodings of places, networks of sines, losses of angles."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

from benchmarks.grids.case import Case

_FUNCTIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "sin": jnp.sin,
    "cos": jnp.cos,
    "tan": jnp.tan,
    "asin": lambda x: jnp.arcsin(0.2 * x),
    "acos": lambda x: jnp.arccos(0.2 * x),
    "atan": jnp.arctan,
    "atan2": lambda x: jnp.arctan2(x, x - 0.5),
}
_SHAPES = ((2048,), (64, 100), (128, 32, 9), (512, 512), (16, 32, 32, 64), (1_000_003,))


def trigonometry_cases() -> Iterator[Case]:
    """Yields few and many angles, what is made of them, and the gradients."""
    for name, function in _FUNCTIONS.items():
        for shape in _SHAPES:
            yield _case(f"{name} of", function, shape, name == "sin" and shape == (512, 512))
    for shape in _SHAPES[3:]:
        yield _case("gradient of sin of", jax.grad(lambda x: jnp.sum(jnp.sin(30 * x) ** 2)), shape)
        yield _case("sin and cos of", lambda x: jnp.sin(x) * jnp.cos(0.5 * x), shape)


def _case(name: str, function: Callable[[jax.Array], jax.Array], shape: tuple[int, ...], quick: bool = False) -> Case:
    def compute(x: jax.Array, change: jax.Array) -> jax.Array:
        return 0.5 * function(jnp.tanh(x) + 0.1 * change)

    return Case(f"{name} {'x'.join(map(str, shape))}", compute, (shape, shape), jnp.float32, quick)
