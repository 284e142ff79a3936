"""Divides a call among threads.

oneDNN's own threads meet at barriers in which they wait with full use of a processor. Where XLA's threads or another
process have that processor, such a wait ends when the system takes it away: kernels' gradients of a ResNet took 200 ms
instead of 2 on a busy machine, and two trainings on two cores were slower with oneDNN than without. So a call is
divided here, by examples or by rows, and each piece is computed by one thread (several where there are many cores).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lockstep._cpu.onednn.calls import Call, ConvolutionCall, ProductCall

MOST_PIECES = 4
# Some 0.2 ms of float32 on one core; handing a piece over takes 0.05 ms.
_LEAST_PRODUCTS = 8_000_000


@dataclass(frozen=True)
class Piece:
    """A part of a call.

    Attributes:
        call: What is computed.
        first, second, result: Where the operands and the result begin in those of the whole, in elements.
    """

    call: Call
    first: int
    second: int
    result: int


def divide(call: Call, cores: int) -> Sequence[Piece]:
    """Returns the pieces of a call for so many cores; those of a kernel's gradient are to be summed."""
    if isinstance(call, ProductCall):
        return _divide_product(call, cores)
    return _divide_convolution(call, cores)


def _divide_convolution(call: ConvolutionCall, cores: int) -> Sequence[Piece]:
    examples = call.source[0]
    products = math.prod(call.output) * math.prod(call.kernel[:-1])
    source, output = math.prod(call.source[1:]), math.prod(call.output[1:])
    pieces: list[Piece] = []
    for start, end in _ranges(examples, products, cores):
        count = end - start
        part = replace(call, source=(count, *call.source[1:]), output=(count, *call.output[1:]))
        first = start * (output if call.kind == "backward_data" else source)
        second = start * output if call.kind == "backward_weights" else 0
        result = {"forward": output, "backward_data": source, "backward_weights": 0}[call.kind] * start
        pieces.append(Piece(part, first, second, result))
    return pieces


def _divide_product(call: ProductCall, cores: int) -> Sequence[Piece]:
    sizes, strides = call.first
    columns = call.second[0][-1]
    # The first dimension: of pairs of matrices where there are some, else of the first matrix's rows.
    has_batch = len(sizes) > 2
    row = math.prod(sizes[1:-1]) * columns
    pieces: list[Piece] = []
    for start, end in _ranges(sizes[0], math.prod(sizes) * columns, cores):
        count = end - start
        second = ((count, *call.second[0][1:]), call.second[1]) if has_batch else call.second
        part = replace(call, first=((count, *sizes[1:]), strides), second=second, result=(count, row))
        pieces.append(Piece(part, start * strides[0], start * call.second[1][0] if has_batch else 0, start * row))
    return pieces


def _ranges(size: int, products: int, cores: int) -> Sequence[tuple[int, int]]:
    count = max(1, min(size, cores, MOST_PIECES, products // _LEAST_PRODUCTS))
    ends = [size * i // count for i in range(count + 1)]
    return list(itertools.pairwise(ends))
