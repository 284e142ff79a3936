"""How oneDNN computes a call: primitives, in their order, and what they need besides the operands."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lockstep._cpu.onednn import library
from lockstep._cpu.onednn.calls import Call, ConvolutionCall, ProductCall, Sizes
from lockstep._cpu.onednn.library import Handle, Library
from lockstep._cpu.onednn.pieces import Piece

# Of the arrays that a program gives; the last is a third operand, or a second result.
FIRST, SECOND, RESULT, BIAS = 0, 1, 2, 3
# From so many input channels on, arrays in blocks of channels pay for their copies where there is no AVX-512: the
# gradient of a 3x3 kernel for 8x96x96x32 and 16 channels on one core 12.7 ms, not 18.2, for 4x32x32x128 and 128 19.2,
# not 37.0; with 3 channels, 16x180x180 and 16, 20.2, not 18.1 (EPYC with AVX2). Depthwise ones are faster without:
# 16x28x28x192 0.6, not 1.3.
_LEAST_BLOCKED = 16
# What a convolution's primitive calls the operands and the result.
_NUMBERS = {
    "forward": (library.SOURCE, library.WEIGHTS, library.DESTINATION),
    "backward_data": (library.DESTINATION_GRADIENT, library.WEIGHTS, library.SOURCE_GRADIENT),
    "backward_weights": (library.SOURCE, library.DESTINATION_GRADIENT, library.WEIGHTS_GRADIENT),
}


@dataclass(frozen=True)
class Array:
    """An array that primitives read or write.

    Attributes:
        description: oneDNN's, of its sizes and its order in memory.
        operand: `FIRST`, `SECOND`, `RESULT` or `BIAS`, if it is a part of that; `None` if it exists only in the call.
        offset: Where it begins there, in bytes.
    """

    description: Handle
    operand: int | None = None
    offset: int = 0


@dataclass(frozen=True)
class Step:
    """A primitive, and the numbers of the plan's arrays by those of its arguments."""

    primitive: Handle
    arguments: Mapping[int, int]


@dataclass
class Plan:
    """The steps of a call.

    Attributes:
        arrays: What they read and write.
        pieces: For each piece its steps; pieces may be computed at the same time.
        last: Steps that follow when all pieces are done.
    """

    arrays: list[Array] = field(default_factory=list[Array])
    pieces: list[list[Step]] = field(default_factory=list[list[Step]])
    last: list[Step] = field(default_factory=list[Step])

    def add(self, array: Array) -> int:
        """Adds an array; returns its number."""
        self.arrays.append(array)
        return len(self.arrays) - 1


def plan(dnnl: Library, call: Call, pieces: Sequence[Piece]) -> Plan:
    """Returns the steps of a call; making its primitives takes some milliseconds."""
    made = Plan()
    call, pieces = _over_pictures(call), [replace(piece, call=_over_pictures(piece.call)) for piece in pieces]
    if isinstance(call, ConvolutionCall) and call.kind == "backward_weights":
        _plan_kernel_gradient(dnnl, made, call, pieces)
        return made
    for piece in pieces:
        plan_piece = _plan_product if isinstance(piece.call, ProductCall) else _plan_convolution
        made.pieces.append(plan_piece(dnnl, made, piece))
    return made


def _over_pictures(call: Call) -> Call:
    """Returns a convolution over lines as one over pictures of one row; any other call as it is.

    oneDNN has depthwise kernels for pictures alone: 16x100x128 with 33 places 2.6 ms over lines, 0.19 over pictures,
    with 3 places 0.54 and 0.05 (float32, 2-core EPYC with AVX-512). Others take as long either way.
    """
    if not isinstance(call, ConvolutionCall) or len(call.strides) > 1:
        return call
    return replace(
        call,
        source=(call.source[0], 1, *call.source[1:]),
        kernel=(1, *call.kernel),
        output=(call.output[0], 1, *call.output[1:]),
        strides=(1, *call.strides),
        dilation=(1, *call.dilation),
        padding=((0, 0), *call.padding),
    )


def _plan_product(dnnl: Library, made: Plan, piece: Piece) -> list[Step]:
    call = piece.call
    assert isinstance(call, ProductCall)
    sizes = (*call.first[0][:-1], call.second[0][-1])
    layouts = call.first, call.second, (sizes, _row_major(sizes))
    arrays = [dnnl.describe(call.dtype, *layout) for layout in layouts]
    numbers = (library.SOURCE, library.WEIGHTS, library.DESTINATION)
    arguments: Mapping[int, int] = dict(zip(numbers, _add_operands(made, piece, arrays), strict=True))
    return [_step(dnnl, made, dnnl.describe_product(*arrays), arguments)]


def _plan_convolution(dnnl: Library, made: Plan, piece: Piece) -> list[Step]:
    call = piece.call
    assert isinstance(call, ConvolutionCall)
    source, kernel, output = _describe_arrays(dnnl, call)
    arrays = [source, kernel, output] if call.kind == "forward" else [output, kernel, source]
    bias = _describe_bias(dnnl, call, call.dtype)
    primitive = _describe_convolution(dnnl, call, source, output, call.dtype, bias)
    first, second, result = _add_operands(made, piece, arrays)
    # A kernel lies as suits the primitive best; it is copied from the program's order.
    steps: list[Step] = []
    second = _reorder(dnnl, made, steps, second, kernel, dnnl.query(primitive, library.WEIGHTS_QUERY))
    arguments = dict(zip(_NUMBERS[call.kind], (first, second, result), strict=True))
    if bias is not None:
        arguments[library.BIAS] = made.add(Array(bias, BIAS))
    return [*steps, _step(dnnl, made, primitive, arguments)]


def _plan_kernel_gradient(dnnl: Library, made: Plan, call: ConvolutionCall, pieces: Sequence[Piece]) -> None:
    """Plans the sum of what the pieces' examples contribute, in float32, and its copy into the program's order."""
    bias = _describe_bias(dnnl, call, "float32")
    kernels: list[int] = []
    biases: list[int] = []
    for piece in pieces:
        assert isinstance(piece.call, ConvolutionCall)
        source, _, output = _describe_arrays(dnnl, piece.call)
        # Of the primitive: in the program's order, or in one that suits it best.
        own_source, own_output = source, output
        if not dnnl.has_avx512 and call.groups == 1 and piece.call.source[-1] >= _LEAST_BLOCKED:
            own_source = dnnl.describe(call.dtype, _channels_second(piece.call.source)[0], None)
            own_output = dnnl.describe(call.dtype, _channels_second(piece.call.output)[0], None)
        primitive = _describe_convolution(dnnl, piece.call, own_source, own_output, "float32", bias)
        first, second = _add_operands(made, piece, [source, output])
        steps: list[Step] = []
        first = _reorder(dnnl, made, steps, first, source, dnnl.query(primitive, library.SOURCE_QUERY))
        wanted = dnnl.query(primitive, library.DESTINATION_GRADIENT_QUERY)
        second = _reorder(dnnl, made, steps, second, output, wanted)
        kernels.append(made.add(Array(dnnl.query(primitive, library.WEIGHTS_GRADIENT_QUERY))))
        arguments = dict(zip(_NUMBERS[call.kind], (first, second, kernels[-1]), strict=True))
        if bias is not None:
            biases.append(made.add(Array(bias)))
            arguments[library.BIAS_GRADIENT] = biases[-1]
        made.pieces.append([*steps, _step(dnnl, made, primitive, arguments)])
    _, kernel, _ = _describe_arrays(dnnl, call)
    _plan_sum(dnnl, made, kernels, Array(kernel, RESULT))
    if bias is not None:
        result = _describe_bias(dnnl, call, call.dtype)
        assert result is not None
        _plan_sum(dnnl, made, biases, Array(result, BIAS))


def _reorder(dnnl: Library, made: Plan, steps: list[Step], array: int, given: Handle, wanted: Handle) -> int:
    """Returns the number of an array in another order in memory; adds the step that copies it, if it needs one."""
    if dnnl.are_equal(wanted, given):
        return array
    copy = made.add(Array(wanted))
    copying = {library.SOURCE: array, library.DESTINATION: copy}
    steps.append(_step(dnnl, made, dnnl.describe_reorder(given, wanted), copying))
    return copy


def _plan_sum(dnnl: Library, made: Plan, parts: Sequence[int], result: Array) -> None:
    """Plans the sum of arrays into the first of them, when all pieces are done, and its copy into the result."""
    total = made.arrays[parts[0]].description
    if len(parts) > 1:
        adding = {library.MULTIPLE_SOURCES + i: part for i, part in enumerate(parts)}
        description = dnnl.describe_sum(total, [made.arrays[part].description for part in parts])
        made.last.append(_step(dnnl, made, description, {**adding, library.DESTINATION: parts[0]}))
    copying = {library.SOURCE: parts[0], library.DESTINATION: made.add(result)}
    made.last.append(_step(dnnl, made, dnnl.describe_reorder(total, result.description), copying))


def _add_operands(made: Plan, piece: Piece, descriptions: Sequence[Handle]) -> list[int]:
    """Adds the piece's parts of both operands and, if it is described, of the result."""
    size = library.DTYPES[piece.call.dtype].item_size
    offsets = piece.first, piece.second, piece.result
    return [
        made.add(Array(description, operand, offsets[operand] * size))
        for operand, description in enumerate(descriptions)
    ]


def _step(dnnl: Library, made: Plan, description: Handle, arguments: Mapping[int, int]) -> Step:
    """Returns a primitive with the memory that it computes in."""
    scratchpad = dnnl.query(description, library.SCRATCHPAD_QUERY)
    if dnnl.size(scratchpad):
        arguments = {**arguments, library.SCRATCHPAD: made.add(Array(scratchpad))}
    return Step(dnnl.create("primitive_create", description), arguments)


def _describe_arrays(dnnl: Library, call: ConvolutionCall) -> tuple[Handle, Handle, Handle]:
    """Returns descriptions of the input, the kernel and the output, which lie as programs have them."""
    *strides, inputs, outputs = _row_major(call.kernel)
    # Output channels, by group where there are groups, then input channels, then places.
    order = (outputs, inputs, *strides)
    if call.groups > 1:
        order = (call.kernel[-1] // call.groups, *order)
    layouts = _channels_second(call.source), (_kernel_sizes(call), order), _channels_second(call.output)
    source, kernel, output = (dnnl.describe(call.dtype, *layout) for layout in layouts)
    return source, kernel, output


def _describe_bias(dnnl: Library, call: ConvolutionCall, dtype: str) -> Handle | None:
    """Returns the description of a call's bias, or of the gradient of that; `None` if it has none."""
    return dnnl.describe(dtype, (call.kernel[-1],), (1,)) if call.has_bias else None


def _describe_convolution(
    dnnl: Library, call: ConvolutionCall, source: Handle, output: Handle, kernel_dtype: str, bias: Handle | None
) -> Handle:
    """Returns the primitive; its kernel, or the gradient of that, has an order of its own."""
    kernel = dnnl.describe(kernel_dtype, _kernel_sizes(call), None)
    low, high = zip(*call.padding, strict=True)
    # oneDNN counts what lies between a kernel's places.
    window = (call.strides, tuple(d - 1 for d in call.dilation), low, high)
    # It says with which forward pass a gradient goes.
    own = kernel if kernel_dtype == call.dtype else dnnl.describe(call.dtype, _kernel_sizes(call), None)
    own_bias = _describe_bias(dnnl, call, call.dtype)
    arrays = source, own, own_bias, output
    forward = dnnl.describe_convolution(
        "forward", library.FORWARD_TRAINING, library.DIRECT, *arrays, *window, has_relu=call.has_relu
    )
    if call.kind == "forward":
        return forward
    arrays = (source, kernel, output) if call.kind == "backward_data" else (source, kernel, bias, output)
    return dnnl.describe_convolution(call.kind, library.DIRECT, *arrays, *window, forward)


def _kernel_sizes(call: ConvolutionCall) -> Sizes:
    *taps, inputs, outputs = call.kernel
    return (call.groups, outputs // call.groups, inputs, *taps) if call.groups > 1 else (outputs, inputs, *taps)


def _channels_second(shape: Sizes) -> tuple[Sizes, Sizes]:
    """Returns the shape and strides of an array with channels last in oneDNN's order: batch, channels, space."""
    strides = _row_major(shape)
    return (shape[0], shape[-1], *shape[1:-1]), (strides[0], strides[-1], *strides[1:-1])


def _row_major(shape: Sizes) -> Sizes:
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
