"""Convolutions in one form: batch, then space, then channels last; kernels of space, input, output.

XLA's CPU compiler brings convolutions into this form itself, for only this form has a fast kernel; but it looks at the
program's entry computation alone. In the body of a loop (`lax.scan`, `while`), a branch or a call, what automatic
differentiation writes for the kernel's gradient stays as it is and runs as a naive loop: 293 ms instead of 5.8 ms for
16x28x28x32 with 64 kernels of 3x3, and 184 instead of 3.2 ms for 32x32x32x3 with 32 (float32, 2-core EPYC).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import AxisType

from lockstep._cpu.lowerings.equations import is_plain
from lockstep._types import Aval, JaxprEquation

# Computes a convolution of operands in canonical form.
Compute = Callable[[jax.Array, jax.Array], jax.Array]

FLOATS = ("float32", "float64", "bfloat16", "float16")


@dataclass(frozen=True)
class Convolution:
    """A convolution in canonical form.

    Attributes:
        dtype: Of both operands and the output.
        lhs: (n, *space, ci), the input's shape.
        rhs: (*taps, ci / feature_groups, co), the kernel's.
        out: (n / batch_groups, *space, co), the output's.
        strides, padding, lhs_dilation, rhs_dilation, feature_groups, batch_groups, precision: As jax has them.
        lhs_order, rhs_order: The permutations that bring the operands into this form.
        out_order: The permutation that brings the output back.
    """

    dtype: np.dtype[Any]
    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    out: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    feature_groups: int
    batch_groups: int
    precision: Any
    lhs_order: tuple[int, ...]
    rhs_order: tuple[int, ...]
    out_order: tuple[int, ...]

    @property
    def rank(self) -> int:
        """The number of spatial dimensions."""
        return len(self.strides)

    @property
    def window(self) -> tuple[int, ...]:
        """The kernel's spatial shape."""
        return self.rhs[:-2]

    @property
    def is_canonical(self) -> bool:
        """True if the operands and the output have this form already."""
        return self.lhs_order == self.rhs_order == self.out_order == tuple(range(self.rank + 2))

    @property
    def is_plain(self) -> bool:
        """True if it has neither groups nor a dilated input."""
        return self.feature_groups == self.batch_groups == 1 and set(self.lhs_dilation) <= {1}

    @property
    def is_input_gradient(self) -> bool:
        """True if the kernel is read by its columns, as differentiation writes the gradient of an input."""
        return self.rhs_order[-2:] != (self.rank, self.rank + 1)

    @property
    def has_margins_only(self) -> bool:
        """True if no padding is negative, which would cut the input."""
        return all(low >= 0 and high >= 0 for low, high in self.padding)

    @property
    def per_group(self) -> tuple[int, int]:
        """How many inputs and how many outputs a group of channels has."""
        return self.rhs[-2], self.rhs[-1] // self.feature_groups

    @property
    def is_empty(self) -> bool:
        """True if an operand or the output has no elements."""
        return 0 in (*self.lhs, *self.rhs, *self.out)

    @property
    def numbers(self) -> lax.ConvDimensionNumbers:
        """The numbers of the dimensions of canonical operands."""
        last, space = self.rank + 1, tuple(range(1, self.rank + 1))
        return lax.ConvDimensionNumbers((0, last, *space), (last, self.rank, *range(self.rank)), (0, last, *space))

    def from_canonical(self, compute: Compute) -> Compute:
        """Returns `compute` for operands and an output in the form that was asked for."""

        def compute_transposed(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
            out = compute(lax.transpose(lhs, self.lhs_order), lax.transpose(rhs, self.rhs_order))
            return lax.transpose(out, self.out_order)

        return compute_transposed

    def convolve(self, lhs: jax.Array, rhs: jax.Array) -> jax.Array:
        """Convolves operands of this form."""
        return lax.conv_general_dilated(
            lhs,
            rhs,
            self.strides,
            self.padding,
            self.lhs_dilation,
            self.rhs_dilation,
            self.numbers,
            self.feature_groups,
            self.batch_groups,
            self.precision,
        )


def batch_first(lhs: jax.Array, rhs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the input and the output's gradient of which a canonical convolution makes the gradient of a kernel."""
    rank = lhs.ndim - 2
    return lax.transpose(lhs, (rank + 1, *range(1, rank + 1), 0)), lax.transpose(rhs, (rank, *range(rank), rank + 1))


def canonical(lhs: Aval, rhs: Aval, params: Mapping[str, Any]) -> Convolution | None:
    """Returns the convolution of two operands, given their shapes and the primitive's parameters."""
    # `None` if the types are not one floating-point type throughout, or the result's sharding is given.
    if lhs.dtype != rhs.dtype or lhs.dtype.name not in FLOATS or not has_free_sharding(lhs, params.get("out_sharding")):
        return None
    if params["preferred_element_type"] not in (None, lhs.dtype):
        return None
    numbers = params["dimension_numbers"]
    rhs_spec = numbers.rhs_spec
    lhs_order = _channels_last(numbers.lhs_spec)
    rhs_order = (*rhs_spec[2:], rhs_spec[1], rhs_spec[0])
    lhs_shape = tuple(lhs.shape[i] for i in lhs_order)
    rhs_shape = tuple(rhs.shape[i] for i in rhs_order)
    return Convolution(
        lhs.dtype,
        lhs_shape,
        rhs_shape,
        _output_shape(lhs_shape, rhs_shape, params),
        tuple(params["window_strides"]),
        tuple((int(low), int(high)) for low, high in params["padding"]),
        tuple(params["lhs_dilation"]),
        tuple(params["rhs_dilation"]),
        params["feature_group_count"],
        params["batch_group_count"],
        params["precision"],
        lhs_order,
        rhs_order,
        tuple(int(i) for i in np.argsort(_channels_last(numbers.out_spec))),
    )


def float32_convolution(eqn: JaxprEquation) -> Convolution | None:
    """Returns the convolution that an equation is, if it is one of float32, with which alone passes were measured."""
    if eqn.primitive is not lax.conv_general_dilated_p or not is_plain(eqn):
        return None
    lhs, rhs = eqn.invars
    found = canonical(lhs.aval, rhs.aval, eqn.params)
    return found if found is not None and found.dtype == np.float32 else None


def canonicalize(convolution: Convolution) -> Compute | None:
    """Rule: brings a convolution into canonical form, as XLA does outside of loops."""
    return None if convolution.is_canonical else convolution.convolve


def has_free_sharding(operand: Aval, sharding: Any) -> bool:
    """Returns whether a result's sharding says nothing."""
    if sharding is None:
        return True
    if is_varying(operand):
        return False
    # Inside of `shard_map` differentiation gives one that is all manual.
    kinds = getattr(sharding.mesh, "axis_types", ())
    return all(kind is AxisType.Manual for kind in kinds) and all(part is None for part in sharding.spec)


def is_varying(operand: Aval) -> bool:
    """Returns whether jax tracks that it varies between replicas (`check_vma`); a rule's loops would have to, too."""
    return bool(getattr(getattr(operand, "manual_axis_type", None), "varying", ()) or getattr(operand, "vma", ()))


def _channels_last(spec: Sequence[int]) -> tuple[int, ...]:
    return (spec[0], *spec[2:], spec[1])


def _output_shape(lhs: tuple[int, ...], rhs: tuple[int, ...], params: Mapping[str, Any]) -> tuple[int, ...]:
    space = tuple(
        (_dilated_size(size, spread) + low + high - _dilated_size(taps, dilation)) // stride + 1
        for size, spread, (low, high), taps, dilation, stride in zip(
            lhs[1:-1],
            params["lhs_dilation"],
            params["padding"],
            rhs[:-2],
            params["rhs_dilation"],
            params["window_strides"],
            strict=True,
        )
    )
    return (lhs[0] // params["batch_group_count"], *(max(0, s) for s in space), rhs[-1])


def _dilated_size(size: int, dilation: int) -> int:
    return 0 if size == 0 else (size - 1) * dilation + 1
