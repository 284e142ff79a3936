"""Initial values of some rows of a table, equal to those of the whole table to the bit, without the whole table.

Keras' random initialisers draw by counters (jax's partitionable Threefry): the number of an element and the seed give
its value. So the traced initialiser is evaluated for the rows that are asked for, with their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax.extend.random import threefry2x32_p

from lockstep._engine.servers.layout import dtype_of
from lockstep._engine.step import jaxprs
from lockstep._types import Array, Jaxpr
from lockstep.errors import UnsupportedError

# Smaller tables are made whole, and rows are taken of them, where an initialiser cannot be divided.
_WHOLE_BYTES = 64 << 20
# What computes each element of its result from the elements at the same place.
_ELEMENTWISE = frozenset(
    (
        *(
            "abs",
            "add",
            "add_any",
            "and",
            "bitcast_convert_type",
            "clamp",
            "convert_element_type",
            "copy",
            "cos",
            "div",
        ),
        *("eq", "erf", "erf_inv", "exp", "exp2", "expm1", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p"),
        *("logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "or", "pow", "rem", "round", "rsqrt"),
        *("select_n", "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sqrt", "square"),
        *("stop_gradient", "sub", "tan", "tanh", "xor"),
    )
)

Initializer = Callable[..., Array]


class _NotByRowsError(Exception):
    """A primitive needs more than the rows themselves."""


def initializer_of(initializer: Initializer, shape: Sequence[int], dtype: str) -> bytes:
    """Returns an exported program `(ids) -> rows` for servers: ids int64 of shape (n,), rows of shape (n, *row).

    Args:
        initializer: Of Keras, or any function of shape and dtype. It is called once, traced.
        shape: Of the whole table.
        dtype: Of the table.

    Raises:
        UnsupportedError: If rows cannot be computed alone, and the table is larger than 64 MiB.
    """
    shape = tuple(shape)
    # Traced here, so that a seed generator advances once, as for a table that is made whole.
    closed = jax.make_jaxpr(lambda: jnp.asarray(initializer(shape, dtype=dtype)))()

    def rows(ids: Array) -> Array:
        return _Rows(shape, ids).evaluate(closed, [], is_eager=True)[0]

    def taken(ids: Array) -> Array:
        return jnp.take(jex.jaxpr_as_fun(closed)()[0], ids, axis=0)

    try:
        return _export(rows)
    except _NotByRowsError as error:
        size = math.prod(shape) * dtype_of(dtype).itemsize
        if size > _WHOLE_BYTES:
            raise UnsupportedError(
                f"Tables above {_WHOLE_BYTES >> 20} MiB are initialised row by row, when a row is first touched. "
                f"Received: {type(initializer).__name__} for shape {shape}, which needs {error}. Use an initialiser "
                "that draws each element by itself: uniform, normal, truncated_normal, or a constant."
            ) from error
        return _export(taken)


def _export(function: Callable[[Array], Array]) -> bytes:
    with jax.enable_x64(True):  # Elements of a large table have numbers beyond 32 bits.
        (n,) = export.symbolic_shape("n")
        exported = export.export(jax.jit(function), platforms=["cpu"])(jax.ShapeDtypeStruct((n,), np.int64))
        return bytes(exported.serialize())


class _Rows:
    """An evaluation of a program that makes a whole table, for some of its rows."""

    def __init__(self, shape: tuple[int, ...], ids: Array) -> None:
        self._shape = shape
        self._ids = ids

    def evaluate(self, closed: Jaxpr, arguments: Sequence[Array], is_eager: bool = False) -> list[Array]:
        """Returns the results, in which arrays of the table's shape have only the rows.

        Args:
            closed: The program.
            arguments: Its inputs.
            is_eager: Whether Keras computes each equation by itself: then XLA may not simplify across them here.
        """
        values: dict[Any, Any] = {}
        body = jaxprs.open_jaxpr(closed)
        values.update(zip(body.constvars, jaxprs.constants_of(closed), strict=True))
        values.update(zip(body.invars, arguments, strict=True))
        for eqn in body.eqns:
            given = [jaxprs.read(values, v) for v in eqn.invars]
            results = self._equation(eqn, given)
            # Two factors one after the other would become their product, which is rounded differently.
            results = list(lax.optimization_barrier(results)) if is_eager and self._has_rows(eqn) else results
            values.update(zip(eqn.outvars, results, strict=True))
        return [jaxprs.read(values, v) for v in body.outvars]

    def _equation(self, eqn: Any, given: list[Array]) -> list[Array]:
        name = eqn.primitive.name
        if not any(self._is_whole(v) for v in (*eqn.invars, *eqn.outvars)):
            return jaxprs.evaluate_equation(eqn, given)
        if (inner := jaxprs.called_jaxpr(eqn)) is not None:
            return self.evaluate(inner, given)
        if name == "random_bits":
            return [self._bits(given[0], eqn.params["bit_width"])]
        if name == "broadcast_in_dim" and not eqn.invars[0].aval.shape:
            return [jnp.broadcast_to(given[0], (self._ids.shape[0], *self._shape[1:]))]
        if name == "broadcast_in_dim" and math.prod(eqn.invars[0].aval.shape) == 1:
            return [jnp.broadcast_to(given[0].reshape(()), (self._ids.shape[0], *self._shape[1:]))]
        if name in _ELEMENTWISE:
            params = dict(eqn.params)
            if name == "convert_element_type":
                return [lax.convert_element_type(given[0], params["new_dtype"])]
            with eqn.ctx.manager:
                return jaxprs.bind(
                    eqn.primitive, [self._align(x, v) for x, v in zip(given, eqn.invars, strict=True)], params
                )
        raise _NotByRowsError(f"the whole table for {name!r}")

    def _has_rows(self, eqn: Any) -> bool:
        return all(self._is_whole(v) for v in eqn.outvars)

    def _is_whole(self, atom: Any) -> bool:
        return tuple(getattr(atom.aval, "shape", ())) == self._shape

    def _align(self, value: Array, atom: Any) -> Array:
        """Returns an input of an elementwise primitive: of the rows, or one value for all."""
        if self._is_whole(atom) or not atom.aval.shape:
            return value
        if math.prod(atom.aval.shape) == 1:
            return jnp.asarray(value).reshape((1,) * len(self._shape))
        raise _NotByRowsError(f"an array of shape {atom.aval.shape}")

    def _bits(self, key: Array, width: int) -> Array:
        """Returns the random bits of the rows' elements.

        Source: `jax_threefry_partitionable`, the default since jax 0.5: element i has Threefry's hash of i.
        """
        if str(jax.random.key_impl(key)) != "threefry2x32" or width not in (8, 16, 32, 64):
            raise _NotByRowsError(f"random bits of {jax.random.key_impl(key)}")
        data = jax.random.key_data(key).reshape(2)
        size = math.prod(self._shape[1:])
        numbers = self._ids[:, None].astype(jnp.uint64) * size + jnp.arange(size, dtype=jnp.uint64)
        high, low = (numbers >> 32).astype(jnp.uint32), numbers.astype(jnp.uint32)
        first, second = threefry2x32_p.bind(*(jnp.broadcast_to(d, high.shape) for d in data), high, low)
        if width == 64:
            bits = (first.astype(jnp.uint64) << 32) | second.astype(jnp.uint64)
        else:
            bits = (first ^ second).astype(f"uint{width}")
        return bits.reshape(-1, *self._shape[1:])
