"""Random bits of JAX's default generator, threefry, and what is made of them: masks of dropout, uniform numbers.

For the CPU JAX writes the 20 rounds of threefry's hash as a loop, to compile it sooner: five times both words of every
number go to memory and back. Masks took a fifth of a transformer's step (6 layers of 128, 96 tokens, batch 32): 9.6 ms
of CPU time for each 32x4x96x96, and 1.0 s to compile. Written out, the hash is one vector loop: 1.0 ms, and 0.1 s to
compile (2-core Xeon with AVX-512). The bits are the same.

XLA takes integers' operations for cheap, and repeats all of them in every expression that reads a mask: on the way
forward and on the way back. So what bits become is computed in one piece, and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import primitives
from jax.extend.random import threefry_prng_impl

from lockstep._cpu.lowerings.windows import isolate
from lockstep._engine.step.jaxprs import evaluate_jaxpr, open_jaxpr
from lockstep._types import Aval, Jaxpr, JaxprEquation

# The name of the generator, and of the type of its keys.
_NAME, _KEYS = "threefry2x32", "key<fry>"
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)
# What draws numbers in `jax.random`: operations on each number, and on keys. A function with anything else in it (a
# sum, a product) is no draw but uses one.
_OF_EACH_NUMBER = frozenset(
    (
        *("add", "and", "bitcast_convert_type", "broadcast_in_dim", "convert_element_type", "div", "eq", "erf"),
        *("erf_inv", "exp", "ge", "gt", "le", "log", "log1p", "lt", "max", "min", "mul", "ne", "neg", "nextafter"),
        *("not", "or", "pow", "rem", "select_n", "shift_left", "shift_right_logical", "sign", "sqrt", "squeeze"),
        *("slice", "stop_gradient", "sub", "xor"),
    )
)
_OF_KEYS = frozenset(("random_split", "random_fold_in", "random_wrap", "random_unwrap"))


def threefry(*operands: Aval, **_: Any) -> Callable[..., Any]:
    """Rule: `threefry2x32`, given two words of a key and two words to hash for each number."""
    return _hash


def _hash(first: jax.Array, second: jax.Array, high: jax.Array, low: jax.Array) -> list[jax.Array]:
    """Hashes; Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"."""
    keys = (first, second, first ^ second ^ _PARITY)
    high, low = high + first, low + second
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            high = high + low
            low = high ^ (low << np.uint32(rotation) | low >> np.uint32(32 - rotation))
        high = high + keys[(group + 1) % 3]
        low = low + (keys[(group + 2) % 3] + np.uint32(group + 1))
    return [high, low]


def random_bits(keys: Aval, *, bit_width: int, shape: Sequence[int]) -> Callable[..., Any] | None:
    """Rule: `random_bits` of threefry's keys, one or an array of them."""
    if keys.dtype.name != _KEYS or 0 in keys.shape:
        return None
    return lambda keys: _draw(keys, bit_width, tuple(shape))


def _draw(keys: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    def draw(data: jax.Array) -> jax.Array:
        return threefry_prng_impl.random_bits(data, bit_width, shape)

    for _ in keys.shape:
        draw = jax.vmap(draw)
    return draw(jax.random.key_data(keys))


def drawn_numbers(*operands: Aval, jaxpr: Jaxpr, **params: Any) -> Callable[..., Any] | None:
    """Rule: a call of a function that draws numbers, as those of `jax.random` are."""
    if not _is_draw(jaxpr) or _is_divided(params) or any(0 in operand.shape for operand in operands):
        return None
    are_keys = [operand.dtype.name == _KEYS for operand in operands]

    def compute(*words: jax.Array) -> jax.Array:
        pairs = zip(words, are_keys, strict=True)
        values = [jax.random.wrap_key_data(v, impl=_NAME) if is_key else v for v, is_key in pairs]
        return evaluate_jaxpr(jaxpr, values)[0]

    def draw_once(*values: Any) -> list[jax.Array]:
        pairs = zip(values, are_keys, strict=True)
        return [isolate(compute)(*(jax.random.key_data(v) if is_key else v for v, is_key in pairs))]

    return draw_once


def _is_divided(params: Mapping[str, Any]) -> bool:
    """Returns whether a call says how arrays are divided over devices."""
    return any(isinstance(s, jax.sharding.Sharding) for s in (*params["in_shardings"], *params["out_shardings"]))


def _is_draw(jaxpr: Jaxpr) -> bool:
    """Returns whether a function draws numbers of threefry and does nothing but change each of them."""
    body = open_jaxpr(jaxpr)
    return len(body.outvars) == 1 and not body.effects and all(map(_belongs_to_draw, body.eqns)) and _has_bits(body)


def _belongs_to_draw(eqn: JaxprEquation) -> bool:
    if eqn.primitive is primitives.jit_p:
        return not _is_divided(eqn.params) and all(map(_belongs_to_draw, open_jaxpr(eqn.params["jaxpr"]).eqns))
    if eqn.primitive is primitives.random_bits_p:
        return eqn.invars[0].aval.dtype.name == _KEYS
    return eqn.primitive.name in _OF_EACH_NUMBER or eqn.primitive.name in _OF_KEYS


def _has_bits(jaxpr: Jaxpr) -> bool:
    return any(
        eqn.primitive is primitives.random_bits_p
        or (eqn.primitive is primitives.jit_p and _has_bits(eqn.params["jaxpr"]))
        for eqn in open_jaxpr(jaxpr).eqns
    )
