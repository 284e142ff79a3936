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
    count = _count(math.prod(call.output) * math.prod(call.kernel[:-1]), cores)
    # A batch of one example, or of two for four cores: its rows are divided, too.
    parts = _parts_of_rows(call, count // examples)
    if parts:
        return [_piece(call, example, part) for example in range(examples) for part in parts]
    pieces: list[Piece] = []
    for start, end in _ranges(examples, count):
        whole = replace(call, source=(end - start, *call.source[1:]), output=(end - start, *call.output[1:]))
        pieces.append(_piece(call, start, _Part(whole, 0, 0)))
    return pieces


@dataclass(frozen=True)
class _Part:
    """A call of some rows of its input and its output, and where they begin in those of the whole."""

    call: ConvolutionCall
    source_row: int
    output_row: int


def _piece(call: ConvolutionCall, example: int, part: _Part) -> Piece:
    source = example * math.prod(call.source[1:]) + part.source_row * math.prod(call.source[2:])
    output = example * math.prod(call.output[1:]) + part.output_row * math.prod(call.output[2:])
    match call.kind:
        case "forward":
            return Piece(part.call, source, 0, output)
        case "backward_data":
            return Piece(part.call, output, 0, source)
        case "backward_weights":
            return Piece(part.call, source, output, 0)


def _parts_of_rows(call: ConvolutionCall, count: int) -> Sequence[_Part]:
    """Returns so many parts of an example, along its first dimension of space; none if that cannot be."""
    # The rows of what is computed are divided: of the input for its gradient, else of the output. Each part reads those
    # rows of the other array that its own meet.
    is_of_source = call.kind == "backward_data"
    size = (call.source if is_of_source else call.output)[1]
    if not 2 <= count <= size:
        return []
    parts: list[_Part] = []
    for begin, end in _ranges(size, count):
        rows = (begin, end), _output_rows(call, begin, end)
        source, output = rows if is_of_source else (_source_rows(call, begin, end), (begin, end))
        part = _part(call, source, output)
        if part is None:
            return []
        parts.append(part)
    return parts


def _source_rows(call: ConvolutionCall, begin: int, end: int) -> tuple[int, int]:
    """Returns the range of the input's rows that rows of the output are computed from."""
    stride, (low, _) = call.strides[0], call.padding[0]
    return max(0, begin * stride - low), min(call.source[1], (end - 1) * stride - low + _reach(call) + 1)


def _output_rows(call: ConvolutionCall, begin: int, end: int) -> tuple[int, int]:
    """Returns the range of the output's rows that are computed from rows of the input, among others."""
    stride, (low, _) = call.strides[0], call.padding[0]
    return max(0, -((_reach(call) - begin - low) // stride)), min(call.output[1], (end - 1 + low) // stride + 1)


def _part(call: ConvolutionCall, source: tuple[int, int], output: tuple[int, int]) -> _Part | None:
    """Returns the part of these rows; `None` if it is no convolution that oneDNN knows."""
    stride = call.strides[0]
    rows, places = source[1] - source[0], output[1] - output[0]
    if rows < 1 or places < 1:
        return None
    # What a window sees beyond these rows counts as padding: zeros, or rows whose gradient is another part's.
    low = call.padding[0][0] + source[0] - output[0] * stride
    high = (places - 1) * stride + _reach(call) + 1 - low - rows
    if low < 0 or high <= -stride or max(low, high) > _reach(call):
        return None
    part = replace(
        call,
        source=(1, rows, *call.source[2:]),
        output=(1, places, *call.output[2:]),
        padding=((low, high), *call.padding[1:]),
    )
    return _Part(part, source[0], output[0])


def _reach(call: ConvolutionCall) -> int:
    """Returns how many rows of the input lie between the first and the last that a window sees."""
    return (call.kernel[0] - 1) * call.dilation[0]


def _divide_product(call: ProductCall, cores: int) -> Sequence[Piece]:
    sizes, strides = call.first
    columns = call.second[0][-1]
    # The first dimension: of pairs of matrices where there are some, else of the first matrix's rows.
    has_batch = len(sizes) > 2
    row = math.prod(sizes[1:-1]) * columns
    pieces: list[Piece] = []
    for start, end in _ranges(sizes[0], _count(math.prod(sizes) * columns, cores)):
        count = end - start
        second = ((count, *call.second[0][1:]), call.second[1]) if has_batch else call.second
        part = replace(call, first=((count, *sizes[1:]), strides), second=second, result=(count, row))
        pieces.append(Piece(part, start * strides[0], start * call.second[1][0] if has_batch else 0, start * row))
    return pieces


def _count(products: int, cores: int) -> int:
    """Returns for how many pieces there is enough to do."""
    return max(1, min(cores, MOST_PIECES, products // _LEAST_PRODUCTS))


def _ranges(size: int, count: int) -> Sequence[tuple[int, int]]:
    """Returns `count` ranges of as many numbers each as can be, or `size` of one."""
    count = min(size, count)
    ends = [size * i // count for i in range(count + 1)]
    return list(itertools.pairwise(ends))
