"""Calls of oneDNN, written as the attribute of a custom call."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

Sizes = tuple[int, ...]
Dtype = Literal["bfloat16", "float32"]
Kind = Literal["forward", "backward_data", "backward_weights"]


@dataclass(frozen=True)
class ConvolutionCall:
    """A convolution, or the gradient of one by its input or its kernel.

    Attributes:
        dtype: Of both operands and the result.
        kind: `forward` takes the input and the kernel, `backward_data` the output's gradient and the kernel,
            `backward_weights` the input and the output's gradient.
        has_bias: Whether `forward` takes a third operand, (co,), that it adds to the output; whether `backward_weights`
            has a second result, the gradient of that.
        has_relu: Whether `forward` gives the larger of the output, with its bias, and zero.
        source: (n, *space, ci), the shape of the input and of its gradient.
        kernel: (*taps, ci / groups, co), that of the kernel and of its gradient.
        output: (n, *space, co), that of the output and of its gradient.
        strides: Of the window.
        dilation: Distance of the kernel's places; 1 for neighbours.
        padding: Before and after each dimension of space.
        groups: Groups of channels.
    """

    dtype: Dtype
    kind: Kind
    source: Sizes
    kernel: Sizes
    output: Sizes
    strides: Sizes
    dilation: Sizes
    padding: tuple[tuple[int, int], ...]
    groups: int
    has_bias: bool = False
    has_relu: bool = False

    @property
    def results(self) -> tuple[Sizes, ...]:
        """The shapes of the results."""
        if self.kind == "backward_weights":
            return (self.kernel, self.kernel[-1:]) if self.has_bias else (self.kernel,)
        return (self.output if self.kind == "forward" else self.source,)


@dataclass(frozen=True)
class ProductCall:
    """A product of matrices, or of as many pairs of them as the first dimensions say.

    Attributes:
        dtype: Of both operands and the result.
        first: (*batch, m, k), as sizes and as strides in elements.
        second: (*batch, k, n), likewise.
        result: Shape of the result, whose elements are those of (*batch, m, n), one after the other.
    """

    dtype: Dtype
    first: tuple[Sizes, Sizes]
    second: tuple[Sizes, Sizes]
    result: Sizes

    @property
    def results(self) -> tuple[Sizes, ...]:
        """The shape of the result, as the only one."""
        return (self.result,)


Call = ConvolutionCall | ProductCall
_KINDS: dict[str, Callable[..., Call]] = {"convolution": ConvolutionCall, "product": ProductCall}


def as_text(call: Call) -> str:
    """Returns a call as text."""
    name = next(name for name, kind in _KINDS.items() if kind is type(call))
    return json.dumps({"name": name, **asdict(call)})


def from_text(text: str) -> Call:
    """Returns the call that a text says."""
    fields = json.loads(text)
    return _KINDS[fields.pop("name")](**{name: _as_tuples(value) for name, value in fields.items()})


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value
