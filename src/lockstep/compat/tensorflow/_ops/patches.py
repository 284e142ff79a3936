"""Windows of images and volumes, cut out element by element of the window."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.make import compute
from lockstep.compat.tensorflow._types import DTypeLike, Library, Padding, WindowLike
from lockstep.errors import ArgumentError

__all__ = ["dilation2d", "erosion2d", "extract_patches", "extract_volume_patches", "max_pool_with_argmax"]
__all__ += ["sobel_edges"]


def extract_patches(
    images: Tensor, sizes: WindowLike, strides: WindowLike, rates: WindowLike, padding: Padding, name: str | None = None
) -> Tensor:
    """Returns the windows of images, each as one vector.

    Args:
        images: `[batch, height, width, channels]`, of any type.
        sizes: The window, as `[1, height, width, 1]`.
        strides: How far windows are apart, in this form.
        rates: How far the elements of a window are apart, in this form.
        padding: "VALID", or "SAME" with zeros around the images.
        name: Its name in a model_fn.

    Returns:
        `[batch, rows, columns, height * width * channels]`, of the same type.

    Source: tf.image.extract_patches.
    """
    window, steps, gaps = (_inner(v, 2) for v in (sizes, strides, rates))
    return compute(lambda xp, x: _join_patches(xp, x, window, steps, gaps, padding), images)


def extract_volume_patches(
    input: Tensor, ksizes: WindowLike, strides: WindowLike, padding: Padding, name: str | None = None
) -> Tensor:
    """Returns the windows of volumes `[batch, depth, height, width, channels]`, each as one vector.

    Source: tf.extract_volume_patches.
    """
    window, steps = _inner(ksizes, 3), _inner(strides, 3)
    return compute(lambda xp, x: _join_patches(xp, x, window, steps, (1, 1, 1), padding), input)


def sobel_edges(image: Tensor) -> Tensor:
    """Returns Sobel's derivatives of images `[batch, height, width, channels]` down and to the right.

    Returns:
        `[batch, height, width, channels, 2]`.

    Source: tf.image.sobel_edges.
    """
    kernel = np.outer([-1.0, 0.0, 1.0], [1.0, 2.0, 1.0]).astype(np.float32)

    def edges(xp: Library, x: Tensor) -> Any:
        wide = xp.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], mode="reflect")
        parts = [part for _, part in _elements(wide, (3, 3), (1, 1), (1, 1), tuple(x.shape[1:3]))]
        return xp.stack(
            [sum(p * k for p, k in zip(parts, turned.ravel(), strict=True)) for turned in (kernel, kernel.T)], axis=-1
        )

    return compute(edges, image)


def dilation2d(
    input: Tensor,
    filters: Tensor,
    strides: WindowLike,
    padding: Padding,
    data_format: str,
    dilations: WindowLike,
    name: str | None = None,
) -> Tensor:
    """Returns the maximum of each window after the filter is added to it: grey dilation.

    Args:
        input: `[batch, height, width, channels]`.
        filters: `[height, width, channels]`.
        strides: How far windows are apart, as `[1, height, width, 1]`.
        padding: "VALID" or "SAME"; what is around the images never is the maximum.
        data_format: "NHWC".
        dilations: How far the elements of a window are apart, as `[1, height, width, 1]`.
        name: Its name in a model_fn.

    Source: tf.nn.dilation2d.
    """
    _check_format(data_format)
    steps, gaps = _inner(strides, 2), _inner(dilations, 2)
    return compute(lambda xp, x, f: _dilate(xp, x, f, steps, gaps, padding), input, filters)


def erosion2d(
    value: Tensor,
    filters: Tensor,
    strides: WindowLike,
    padding: Padding,
    data_format: str,
    dilations: WindowLike,
    name: str | None = None,
) -> Tensor:
    """Returns the minimum of each window less the filter: grey erosion; arguments as of `dilation2d`.

    Source: tf.nn.erosion2d.
    """
    _check_format(data_format)
    steps, gaps = _inner(strides, 2), _inner(dilations, 2)
    return compute(lambda xp, x, f: -_dilate(xp, -x, f[::-1, ::-1], steps, gaps, padding), value, filters)


def _dilate(
    xp: Library, x: Tensor, filters: Tensor, steps: tuple[int, ...], gaps: tuple[int, ...], padding: Padding
) -> Any:
    window = tuple(filters.shape[:2])
    wide, counts = _pad(xp, x, window, steps, gaps, padding, -np.inf)
    result: Any = None
    for place, part in _elements(wide, window, steps, gaps, counts):
        added = part + filters[place]
        result = added if result is None else xp.maximum(result, added)
    return result


def max_pool_with_argmax(
    input: Tensor,
    ksize: WindowLike,
    strides: WindowLike,
    padding: Padding,
    data_format: str = "NHWC",
    output_dtype: DTypeLike = np.int64,
    include_batch_in_index: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the maximum of each window, and its place in the flattened image, or with the batch in the whole input.

    Source: tf.nn.max_pool_with_argmax.
    """
    _check_format(data_format)
    window, steps = (_inner((1, v, v, 1) if isinstance(v, int) else v, 2) for v in (ksize, strides))
    xp, x = dispatch.pick(input)
    wide, counts = _pad(xp, x, window, steps, (1, 1), padding, -np.inf)
    # The places go through the windows as the elements do.
    places = np.arange(int(np.prod(x.shape[1:]))).reshape(1, *x.shape[1:])
    numbered, _ = _pad(np, places, window, steps, (1, 1), padding, -1)
    parts = xp.stack([part for _, part in _elements(wide, window, steps, (1, 1), counts)])
    numbers = xp.asarray(np.stack([part for _, part in _elements(numbered, window, steps, (1, 1), counts)]))
    best = xp.argmax(parts, axis=0)
    where = xp.take_along_axis(xp.broadcast_to(numbers, parts.shape), best[None], axis=0)[0]
    if include_batch_in_index:
        where = where + (np.arange(x.shape[0]) * int(np.prod(x.shape[1:])))[:, None, None, None]
    where = where.astype(dispatch.usable_dtype(xp, output_dtype))
    return dispatch.give(xp, xp.max(parts, axis=0)), dispatch.give_exact(xp, where)


def _inner(value: WindowLike, dims: int) -> tuple[int, ...]:
    """Returns the sizes in space of TensorFlow's form, which has a 1 for the batch and one for channels."""
    numbers = dispatch.to_static(value)
    if not isinstance(numbers, tuple) or len(numbers) != dims + 2 or (numbers[0], numbers[-1]) != (1, 1):
        raise ArgumentError(
            f"Windows, strides and rates have the form [1, ..., 1] of {dims + 2} sizes. Received: {value}."
        )
    return numbers[1:-1]


def _check_format(data_format: str) -> None:
    if data_format != "NHWC":
        raise ArgumentError(
            f'data_format must be "NHWC". Received: {data_format!r}. Use tf.transpose before and after.'
        )


def _pad(
    xp: Library,
    x: Tensor,
    window: tuple[int, ...],
    steps: tuple[int, ...],
    gaps: tuple[int, ...],
    padding: Padding,
    fill: Any,
) -> tuple[Any, tuple[int, ...]]:
    """Returns the padded input, and how many windows it has in each dimension of space."""
    if len(x.shape) != len(window) + 2:
        raise ArgumentError(f"The input must have {len(window) + 2} dimensions. Received shape: {tuple(x.shape)}.")
    wide = [(size - 1) * gap + 1 for size, gap in zip(window, gaps, strict=True)]
    if str(padding).upper() == "VALID":
        counts = [(n - w) // s + 1 for n, w, s in zip(x.shape[1:-1], wide, steps, strict=True)]
        return x, tuple(max(count, 0) for count in counts)
    if str(padding).upper() != "SAME":
        raise ArgumentError(f'padding must be "SAME" or "VALID". Received: {padding!r}.')
    counts = [-(-n // s) for n, s in zip(x.shape[1:-1], steps, strict=True)]
    around = [(0, 0)]
    for count, step, w, n in zip(counts, steps, wide, x.shape[1:-1], strict=True):
        missing = max((count - 1) * step + w - n, 0)
        # An odd one more goes behind, as in TensorFlow.
        around.append((missing // 2, missing - missing // 2))
    return xp.pad(x, [*around, (0, 0)], constant_values=fill), tuple(counts)


def _elements(
    x: Tensor, window: tuple[int, ...], steps: tuple[int, ...], gaps: tuple[int, ...], counts: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yields each place in a window, and what all windows have there."""
    for place in itertools.product(*map(range, window)):
        starts = [p * gap for p, gap in zip(place, gaps, strict=True)]
        cut = [slice(a, a + (n - 1) * s + 1, s) for a, n, s in zip(starts, counts, steps, strict=True)]
        yield place, x[(slice(None), *cut)]


def _join_patches(
    xp: Library,
    x: Tensor,
    window: tuple[int, ...],
    steps: tuple[int, ...],
    gaps: tuple[int, ...],
    padding: Padding,
) -> Any:
    wide, counts = _pad(xp, x, window, steps, gaps, padding, 0)
    return xp.concatenate([part for _, part in _elements(wide, window, steps, gaps, counts)], axis=-1)


named.record_names(globals())
