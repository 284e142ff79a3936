"""Products of bfloat16 matrices that oneDNN computes, in programs that XLA does not divide between devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

from lockstep._cpu.lowerings.convolution import has_free_sharding
from lockstep._cpu.onednn.calls import Dtype, ProductCall, Sizes
from lockstep._cpu.onednn.custom_call import compute as compute_call
from lockstep._cpu.onednn.library import computes
from lockstep._types import Aval

# XLA has no fast kernels for it. Those of float32 are good, and XLA makes what surrounds a product a part of it: steps
# without and with oneDNN's products of float32 took, in ms, in turn, 10.0 and 17.0 (autoencoder), 229 and 272 (encoder
# 4x256), 211 and 250 (decoder 4x128; 2-core Xeon with AVX-512), 7.8 and 13.4, 292 and 418, 176 and 247, 313 and 405
# (ResNet50; 2-core EPYC with AVX2).
_DTYPE: Dtype = "bfloat16"
# Below so many products a call, which is Python's and wakes threads, takes longer than XLA's own: 32x256 by 256x256
# 0.063 and 0.062 ms, 512x256 by 256x256 0.58 and 0.10 (XLA's and oneDNN's, 2-core Xeon, busy).
_LEAST_PRODUCTS = 4_000_000
_MOST_DIMENSIONS = 6

Dimensions = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


def foreign_product(lhs: Aval, rhs: Aval, *, dimension_numbers: Dimensions, **params: Any) -> Callable[..., Any] | None:
    """Rule: a product, also of many pairs, also of transposed matrices, as a call of oneDNN."""
    # XLA copies what is not laid out as its kernels read it, and writes an operand that it computes before the product
    # in that order, an element at a time; oneDNN reads operands as they lie.
    (contracted, other_contracted), (batch, other_batch) = dimension_numbers
    if not lhs.dtype.name == rhs.dtype.name == _DTYPE or not computes(_DTYPE):
        return None
    if params.get("preferred_element_type") not in (None, lhs.dtype):
        return None
    if not has_free_sharding(lhs, params.get("out_sharding")):
        return None
    first = _matrix(lhs.shape, batch, contracted, is_first=True)
    second = _matrix(rhs.shape, other_batch, other_contracted, is_first=False)
    if first is None or second is None or len(first[0]) > _MOST_DIMENSIONS:
        return None
    result = _result(lhs.shape, rhs.shape, dimension_numbers)
    products = math.prod(result) * first[0][-1]
    # A matrix times a vector is limited by memory, and a part of what is around it for XLA.
    is_vector = min(first[0][-2], first[0][-1], second[0][-1]) == 1
    if is_vector or products < _LEAST_PRODUCTS:
        return None
    call = ProductCall(_DTYPE, first, second, result)
    return lambda lhs, rhs: compute_call(call, lhs, rhs)


def _matrix(
    shape: Sizes, batch: Sequence[int], contracted: Sequence[int], is_first: bool
) -> tuple[Sizes, Sizes] | None:
    """Returns sizes and strides of an operand as matrices; `None` if it cannot be seen as such where it lies."""
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    free = [i for i in range(len(shape)) if i not in (*batch, *contracted)]
    merged = [_merge(shape, strides, dimensions) for dimensions in (free, contracted)]
    if None in merged:
        return None
    rows, columns = cast("list[tuple[int, int]]", merged if is_first else merged[::-1])
    sizes = (*(shape[i] for i in batch), rows[0], columns[0])
    return sizes, (*(strides[i] for i in batch), rows[1], columns[1])


def _merge(shape: Sizes, strides: Sequence[int], dimensions: Sequence[int]) -> tuple[int, int] | None:
    """Returns size and stride of some dimensions taken as one; `None` if they do not follow each other."""
    size, stride = 1, 1
    for i in reversed(dimensions):
        if shape[i] == 1:
            continue
        if size == 1:
            stride = strides[i]
        elif strides[i] != size * stride:
            return None
        size *= shape[i]
    return size, stride


def _result(lhs: Sizes, rhs: Sizes, numbers: Dimensions) -> Sizes:
    (contracted, other_contracted), (batch, other_batch) = numbers
    rows = [size for i, size in enumerate(lhs) if i not in (*batch, *contracted)]
    columns = [size for i, size in enumerate(rhs) if i not in (*other_batch, *other_contracted)]
    return (*(lhs[i] for i in batch), *rows, *columns)
