"""Pictures that are resized: the few pixels that each new one lies between are fetched and weighted.

`jax.image.resize` multiplies each axis by a matrix of all weights, almost all of which are zero, and differentiation by
the matrix turned round. Around each product XLA transposes the pictures. Bilinear, 16x48x48x64 to 96x96 takes 8.2 ms
so, and 3.5 here; its gradient 18.5 and 3.4 (2-core EPYC with AVX-512).

What is looked for are products with matrices that constants decide and that have few numbers for each result, one
after the other with transpositions between them, after which all axes are where they were.

A pixel that is not finite stays in what it has a weight in, as in TensorFlow. The product multiplies it by zero too,
and so makes the whole row NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives

from lockstep._cpu.lowerings.equations import Flow, call_instead, is_plain
from lockstep._cpu.lowerings.known_values import KnownValues
from lockstep._cpu.lowerings.windows import isolate
from lockstep._engine.step.jaxprs import (
    equations,
    open_jaxpr,
    replace_subjaxprs,
    variables,
    with_equations,
    writer_of,
)
from lockstep._types import Jaxpr, JaxprEquation

_TYPES = ("float32", "bfloat16", "float16")
_LEAST_SIZE = 8
_LEAST_TIMES = 2
# Weights for each result. Where there are more than two, neighbours are to be fetched along with a pixel: what is
# fetched one by one costs more than a product of some of them.
_MOST_WEIGHTS, _FEW_WEIGHTS = 32, 2
_LEAST_NEIGHBOURS, _LEAST_NEIGHBOURS_OF_FEW = 16, 3
# For each pixel, or for each result if these are more: where pictures shrink, one has a weight in few results.
_MOST_EACH = 8
# Products of more are not joined with the next: it would compute each of their results as often as it has weights.
_MOST_JOINED = 4


@dataclass(frozen=True)
class _Weights:
    """A matrix of few numbers a column, and the axis that it is multiplied with.

    Attributes:
        axis: Of the picture as it was before the first product.
        places: Which pixels each result is made of, of shape (weights a result, results).
        values: Their weights.
    """

    axis: int
    places: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class _Chain:
    """Products and transpositions one after the other.

    Attributes:
        source: What they begin with.
        result: What they have come to.
        order: Which axis of the source each axis of the result is.
        weights: Those of the products.
    """

    source: Any
    result: Any
    order: tuple[int, ...]
    weights: tuple[_Weights, ...] = ()

    @property
    def is_in_place(self) -> bool:
        return self.order == tuple(range(len(self.order)))


def interpolate(jaxpr: Jaxpr) -> Jaxpr:
    """Returns a program, closed or not, that resizes pictures pixel by pixel; the same object if it has none."""
    return _interpolate(jaxpr, KnownValues(jaxpr)) if _has_products(jaxpr) else jaxpr


def _has_products(jaxpr: Jaxpr) -> bool:
    return any(eqn.primitive is lax.dot_general_p for eqn in equations(jaxpr))


def _interpolate(jaxpr: Jaxpr, known: KnownValues) -> Jaxpr:
    body = open_jaxpr(jaxpr)
    flow = Flow.of(body)
    calls: dict[Any, JaxprEquation] = {}
    for eqn in body.eqns:
        chain = _chain(eqn, flow, known)
        # One that begins with a later product of the same chain is shorter.
        if chain is not None and chain.result not in calls:
            calls[chain.result] = _call(flow.writers[chain.result], chain)

    def change(eqn: JaxprEquation) -> JaxprEquation:
        is_call = eqn.primitive is primitives.jit_p and any(map(known.is_known, variables(eqn.invars)))
        if is_call and _has_products(eqn.params["jaxpr"]):
            return replace_subjaxprs(eqn, lambda called: _interpolate(called, known.inside(eqn)))
        return calls.get(eqn.outvars[0], eqn) if eqn.outvars else eqn

    return with_equations(jaxpr, [change(eqn) for eqn in body.eqns])


def _chain(eqn: JaxprEquation, flow: Flow, known: KnownValues) -> _Chain | None:
    """Returns the chain that begins with a product, with the transpositions before it, up to where it is in place."""
    product = _product(eqn, known)
    if product is None:
        return None
    source = product.operand
    order = tuple(range(len(source.aval.shape)))
    while (writer := writer_of(source, flow.writers)) is not None and writer.primitive is lax.transpose_p:
        order = tuple(writer.params["permutation"][axis] for axis in order)
        (source,) = writer.invars
    chain: _Chain | None = _Chain(source, product.operand, order)
    longest, step = None, eqn
    while step is not None and (chain := _extended(chain, step, known)) is not None:
        if chain.is_in_place:
            longest = chain
        readers = flow.readers_alone(chain.result)
        step = readers[0] if len(readers) == 1 else None
    return longest


def _extended(chain: _Chain, eqn: JaxprEquation, known: KnownValues) -> _Chain | None:
    """Returns a chain with one equation more; `None` if that is none for it."""
    result = eqn.outvars[0]
    if eqn.primitive is lax.transpose_p:
        return replace(chain, result=result, order=tuple(chain.order[axis] for axis in eqn.params["permutation"]))
    product = _product(eqn, known)
    if product is None or product.operand is not chain.result:
        return None
    axis = chain.order[product.axis]
    weights = _weights(product.matrix, axis)
    if weights is None:
        return None
    least = _LEAST_NEIGHBOURS_OF_FEW if len(weights.places) <= _FEW_WEIGHTS else _LEAST_NEIGHBOURS
    if math.prod(chain.source.aval.shape[axis + 1 :]) < least:
        return None
    others = tuple(a for a in chain.order if a != axis)
    order = (axis, *others) if product.is_first else (*others, axis)
    return replace(chain, result=result, order=order, weights=(*chain.weights, weights))


@dataclass(frozen=True)
class _Product:
    """A product of an array with a matrix whose values are known.

    Attributes:
        operand: The array.
        axis: The axis that is summed over.
        matrix: Of shape (summed over, results).
        is_first: Whether the matrix is the first operand, so that its axis is the first of the result.
    """

    operand: Any
    axis: int
    matrix: np.ndarray
    is_first: bool


def _product(eqn: JaxprEquation, known: KnownValues) -> _Product | None:
    if eqn.primitive is not lax.dot_general_p or not is_plain(eqn) or eqn.outvars[0].aval.dtype.name not in _TYPES:
        return None
    contracted, batch = eqn.params["dimension_numbers"]
    if any(map(len, batch)) or any(len(axes) != 1 for axes in contracted):
        return None
    for place in (1, 0):
        matrix, operand = eqn.invars[place], eqn.invars[1 - place]
        if len(matrix.aval.shape) == 2 and known.is_known(matrix) and not known.is_known(operand):
            values = known.of(matrix)
            assert values is not None
            values = values if contracted[place][0] == 0 else values.T
            return _Product(operand, contracted[1 - place][0], values, place == 0)
    return None


def _weights(matrix: np.ndarray, axis: int) -> _Weights | None:
    """Returns the numbers of a matrix that are not zero; `None` if there are too many."""
    size, results = matrix.shape
    counts = np.count_nonzero(matrix, axis=0)
    most = max(int(counts.max(initial=0)), 1)
    is_small = size < _LEAST_SIZE or (most > _FEW_WEIGHTS and size < _LEAST_TIMES * most)
    if is_small or most > _MOST_WEIGHTS or most * results > _MOST_EACH * max(size, results):
        return None
    places = np.argsort(matrix == 0, axis=0, kind="stable")[:most]
    values = np.take_along_axis(matrix, places, 0)
    # Where there are fewer the last one is taken again, with no weight: not another, which may not be finite.
    last = np.take_along_axis(places, np.maximum(counts - 1, 0)[None], 0)
    return _Weights(axis, np.where(np.arange(most)[:, None] < counts, places, last).astype(np.int32), values)


def _call(eqn: JaxprEquation, chain: _Chain) -> JaxprEquation:
    """Returns a call in the place of a chain's last equation."""

    def compute(pictures: jax.Array) -> jax.Array:
        for weights in chain.weights:
            pictures = _weighted(pictures, weights)
        return pictures

    # What surrounds it would be computed again for each pixel that is fetched: with a relu's gradient before them, the
    # gradients of three resizings to 8x96x96x32 took 10 ms, and 4 on their own.
    isolated = isolate(compute)
    return call_instead(eqn.replace(invars=[chain.source]), lambda pictures: [isolated(pictures)])


def _weighted(pictures: jax.Array, weights: _Weights) -> jax.Array:
    shape = [-1 if axis == weights.axis else 1 for axis in range(pictures.ndim)]
    total: Any = 0
    for places, values in zip(weights.places, weights.values, strict=True):
        pixels = jnp.take(pictures, places, axis=weights.axis, mode="clip")
        total = total + pixels.astype(np.float32) * values.astype(np.float32).reshape(shape)
    result = total.astype(pictures.dtype)
    return lax.optimization_barrier(result) if len(weights.places) > _MOST_JOINED else result
