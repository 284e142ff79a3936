"""One case of a grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Case:
    """A function and what to call it with.

    Attributes:
        name: Shapes and operation, for the table.
        compute: Pure function of `shapes`' arrays.
        shapes: The operands.
        dtype: Their type.
        quick: Whether `--quick` measures it.
        alone: Whether to measure it outside of loops.
        in_loop: Whether to measure it in a loop as well.
    """

    name: str
    compute: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: Any = jnp.float32
    quick: bool = False
    alone: bool = True
    in_loop: bool = True

    def operands(self) -> tuple[jax.Array, ...]:
        """Random numbers in the operands' shapes."""
        rng = np.random.default_rng(0)
        return tuple(jnp.asarray(rng.standard_normal(shape, "float32"), self.dtype) for shape in self.shapes)


STEPS = 3


def looped(compute: Callable[..., Any]) -> Callable[..., Any]:
    """`compute`, `STEPS` times in a loop that XLA can neither unroll, nor empty, nor move work out of."""

    def run(first: jax.Array, *others: jax.Array) -> Any:
        def body(carry: Any, _: None) -> Any:
            number, _ = carry
            result = compute(first + number * 0, *others)
            return (jax.tree.leaves(result)[0].ravel()[0], result), None

        shapes = jax.eval_shape(compute, first, *others)
        nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        start = (jnp.zeros((), jax.tree.leaves(shapes)[0].dtype), nothing)
        return jax.lax.scan(body, start, None, length=STEPS)[0][1]

    return run
