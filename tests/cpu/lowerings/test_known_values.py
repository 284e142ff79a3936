"""Values that no input decides: those that XLA computes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from lockstep._cpu.lowerings.known_values import KnownValues
from lockstep._engine.step.jaxprs import open_jaxpr

LINE = np.linspace(-3, 3, 12, dtype="float32")


def known_result(f: Any, *arguments: Any) -> np.ndarray | None:
    """Returns the value of a function's result, if it is known before the function runs."""
    jaxpr = jax.make_jaxpr(f)(*arguments)
    return KnownValues(jaxpr).of(open_jaxpr(jaxpr).outvars[0])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jnp.arange(12.0) * 2 - 1,
        lambda x: jnp.where(jnp.arange(12.0) > 3, 1 / (jnp.arange(12.0) - 3), 5),
        lambda x: jnp.maximum(0, 1 - abs(jnp.arange(3.0)[:, None] - jnp.arange(4.0) * 0.7)).sum(0),
        lambda x: jnp.concatenate([jnp.arange(3), jnp.arange(4)]).reshape(7, 1).astype("bfloat16"),
        lambda x: jnp.tile(jnp.arange(6).reshape(2, 3).T, (2, 1)),
        lambda x: jax.jit(lambda y, z: (y, z + 1))(x, jnp.arange(4.0))[1],
        lambda x: jnp.asarray(LINE) ** 3 + jnp.floor(LINE) + jnp.sign(LINE) - jnp.minimum(-LINE, 1),
        lambda x: (jnp.asarray(LINE) <= 1) & ~(jnp.asarray(LINE) == 0) | (jnp.asarray(LINE) != 2),
        lambda x: lax.select_n(jnp.arange(3), *(jnp.arange(3.0) * n for n in (1, 10, 100))),
    ],
)
def test_values_are_those_of_xla(f: Any) -> None:
    x = np.ones(4, "float32")
    value = known_result(f, x)
    assert value is not None
    expected = jax.jit(f)(x)
    assert value.dtype == expected.dtype
    np.testing.assert_allclose(np.asarray(value, "float64"), np.asarray(expected, "float64"), rtol=1e-6)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x,
        lambda x: jnp.arange(4.0) + x,
        lambda x: jax.jit(lambda y, z: (y, z + 1))(x, jnp.arange(4.0))[0],
        lambda x: jnp.sin(jnp.arange(4.0)),
        lambda x: jnp.arange(4) // 2,
        lambda x: jnp.arange(float(1 << 21)) * 2,
        lambda x: (jax.debug.print("{}", x), x)[1],
    ],
)
def test_what_an_input_decides_is_not_known(f: Any) -> None:
    """Nor what NumPy computes in another way, or what is large."""
    assert known_result(f, np.ones(4, "float32")) is None
