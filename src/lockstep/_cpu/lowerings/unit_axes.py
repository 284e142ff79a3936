"""Arrays of more than four axes, of which some have one element: computed without those.

XLA's CPU compiler has fast code for what surrounds a product, such as a softmax and its gradient, in up to four axes.
`jax.nn.dot_product_attention` has a fifth, of groups of heads, of which there is usually one: the gradient of a softmax
over 2x4x1024x1024 takes 16 ms with it, and 6 without (2-core EPYC with AVX-512). Each operation here reshapes its
operands and its result; between two of them XLA removes both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
from jax import lax
from jax.extend.core import primitives

from lockstep._types import Aval

_MOST_AXES = 4

Compute = Callable[..., jax.Array]


def _is_worth(shape: Sequence[int]) -> bool:
    """Returns whether there are too many axes, one of which has one element."""
    return len(shape) > _MOST_AXES and 1 in shape and 0 not in shape


def _squeezed(x: jax.Array) -> jax.Array:
    return x.reshape([size for size in x.shape if size != 1])


def _places(shape: Sequence[int]) -> dict[int, int]:
    """Returns which axis each one of more than one element is without the others."""
    return {axis: place for place, axis in enumerate(axis for axis, size in enumerate(shape) if size != 1)}


def _elementwise(primitive: Any, *operands: Aval, **params: Any) -> Compute | None:
    """Rule: an operation of elements; operands may have one where others have several, or be numbers."""
    shapes = [aval.shape for aval in operands if aval.shape]
    if len({*map(len, shapes)}) != 1 or any(0 in sizes for sizes in shapes):
        return None
    shape = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    if not _is_worth(shape):
        return None
    kept = [axis for axis, size in enumerate(shape) if size != 1]

    def compute(*values: jax.Array) -> jax.Array:
        short = [value.reshape([value.shape[axis] for axis in kept]) if value.ndim else value for value in values]
        return primitive.bind(*short, **primitive.get_bind_params(params)).reshape(shape)

    return compute


def reduction(primitive: Any, operand: Aval, *, axes: Sequence[int], **params: Any) -> Compute | None:
    """Rule: a sum or an extreme over axes."""
    if not _is_worth(operand.shape) or params.get("out_sharding") is not None:
        return None
    places = _places(operand.shape)
    kept = [size for axis, size in enumerate(operand.shape) if axis not in axes]
    params["axes"] = tuple(places[axis] for axis in axes if axis in places)
    return lambda x: primitive.bind(_squeezed(x), **primitive.get_bind_params(params)).reshape(kept)


def _broadcast(
    operand: Aval, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], **params: Any
) -> Compute | None:
    """Rule: an array that is repeated along axes."""
    if not _is_worth(shape) or params.get("sharding") is not None:
        return None
    places, sizes = _places(shape), [size for size in shape if size != 1]
    pairs = zip(broadcast_dimensions, operand.shape, strict=True)
    dimensions = tuple(places[axis] for axis, size in pairs if size != 1)
    return lambda x: lax.broadcast_in_dim(_squeezed(x), sizes, dimensions).reshape(shape)


def _transposition(operand: Aval, *, permutation: Sequence[int]) -> Compute | None:
    """Rule: a transposition."""
    if not _is_worth(operand.shape):
        return None
    places, shape = _places(operand.shape), [operand.shape[axis] for axis in permutation]
    order = [places[axis] for axis in permutation if axis in places]
    return lambda x: lax.transpose(_squeezed(x), order).reshape(shape)


_OPERATIONS = (
    *(lax.add_p, lax.sub_p, lax.mul_p, lax.div_p, lax.neg_p, lax.max_p, lax.min_p, lax.integer_pow_p, lax.square_p),
    *(lax.exp_p, lax.log_p, lax.tanh_p, lax.logistic_p, lax.sqrt_p, lax.rsqrt_p, lax.erf_p, lax.abs_p, lax.sign_p),
    *(lax.eq_p, lax.ne_p, lax.lt_p, lax.le_p, lax.gt_p, lax.ge_p, lax.and_p, lax.or_p, lax.not_p, lax.select_n_p),
    *(lax.convert_element_type_p, primitives.add_jaxvals_p),
)
UNIT_AXES_RULES: Mapping[Any, Callable[..., Compute | None]] = {
    **{primitive: partial(_elementwise, primitive) for primitive in _OPERATIONS},
    **{primitive: partial(reduction, primitive) for primitive in (lax.reduce_max_p, lax.reduce_min_p)},
    lax.broadcast_in_dim_p: _broadcast,
    lax.transpose_p: _transposition,
}
