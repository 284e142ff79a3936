"""Resizing of images.

Source: tf.image.resize; tensorflow/core/kernels/image/resize_bilinear_op.cc.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._types import ArrayLike
from lockstep.data._batch_rows import empty
from lockstep.data._image.formats import opencv
from lockstep.data._image.weights import Taps, taps
from lockstep.errors import ArgumentError

_Array = np.ndarray[Any, np.dtype[Any]]
_FLOAT = np.dtype(np.float32)
_FEW = 4  # taps, up to which gathering beats a matrix product on devices
_BLOCK = 1 << 20  # elements of scratch memory
_KEPT = 1 << 26  # bytes, beyond which memory is not kept
_CHANNELS = 4  # that OpenCV's quick ways can have
_MANY_ROWS = 4  # for each new one, from where on it pays to pick those that count
_local = threading.local()
# mode="wrap": no index is out of range, and numpy is fastest if told to wrap those that are.


class ResizeMethod:
    """The methods of `resize`. Source: tf.image.ResizeMethod."""

    BILINEAR = "bilinear"
    NEAREST_NEIGHBOR = "nearest"
    BICUBIC = "bicubic"
    AREA = "area"
    LANCZOS3 = "lanczos3"
    LANCZOS5 = "lanczos5"
    GAUSSIAN = "gaussian"
    MITCHELLCUBIC = "mitchellcubic"


METHODS = ("bilinear", "nearest", "bicubic", "area", "lanczos3", "lanczos5", "gaussian", "mitchellcubic")


def resize(
    images: ArrayLike,
    size: Any,
    method: str = ResizeMethod.BILINEAR,
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
) -> Any:
    """Resizes an image or a batch of images.

    Args:
        images: (height, width, channels) or (batch, height, width, channels), of any number type; numpy, or jax,
            traced too.
        size: The new height and width.
        method: One of `ResizeMethod`.
        preserve_aspect_ratio: Whether to take the largest size within `size` of the same proportions.
        antialias: Whether to average over more pixels where the image shrinks ("nearest" and "area" never do).

    Returns:
        Images of float32, not rounded or clipped; for "nearest", of the type of `images`. Numpy if `images` was, else
        jax. TensorFlow returns an image that has the size already as it is; here it becomes float32 like others.

    Raises:
        ArgumentError: If an argument is wrong.
        UnsupportedError: If OpenCV is needed, for "bilinear" of numpy images without `antialias`, and not installed.

    Source: tf.image.resize.
    """
    images = images if isinstance(images, (np.ndarray, jax.Array)) else np.asarray(images)
    _check(images, method)
    height, width = images.shape[-3:-1]
    new_height, new_width = _new_size(size, height, width, preserve_aspect_ratio)
    # The usual case has a library: 0.13 ms for a photograph, where numpy takes 0.36.
    if isinstance(images, np.ndarray) and method == "bilinear" and not antialias:
        return resize_bilinear(images, new_height, new_width)
    rows = taps(method, bool(antialias), height, new_height)
    columns = taps(method, bool(antialias), width, new_width)
    if isinstance(images, jax.Array):
        return _with_jax(images, rows, columns, method == "nearest")
    if method == "nearest":
        return images.take(rows.index[0], axis=-3).take(columns.index[0], axis=-2)
    return _with_numpy(images, rows, columns)


def _check(images: ArrayLike, method: object) -> None:
    if images.ndim not in (3, 4) or 0 in images.shape[-3:-1]:
        raise ArgumentError(
            f"an image is (height, width, channels), a batch (batch, height, width, channels), with pixels; received "
            f"shape {images.shape}. Add an axis of channels to a grey image."
        )
    if images.dtype == object:
        raise ArgumentError("images are numbers; received text or objects. Decode the images first.")
    if method not in METHODS:
        raise ArgumentError(f"method is one of {', '.join(METHODS)}, not {method!r}.")


def _new_size(size: Any, height: int, width: int, preserve_aspect_ratio: bool) -> tuple[int, int]:
    try:
        new_height, new_width = map(int, size)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"size is (height, width), known when the program is traced; received {size!r}.") from error
    if new_height < 1 or new_width < 1:
        raise ArgumentError(f"height and width of size are at least 1; received {size!r}.")
    if not preserve_aspect_ratio:
        return new_height, new_width
    # TensorFlow computes the scale in float32; in float64 some sizes would be rounded to another pixel.
    one = np.float32
    scale = min(one(new_height) / one(height), one(new_width) / one(width))
    return max(int(np.rint(scale * one(height))), 1), max(int(np.rint(scale * one(width))), 1)


def _with_numpy(images: _Array, rows: Taps, columns: Taps) -> _Array:
    height, width, channels = images.shape[-3:]
    elements = columns.of_elements(channels)
    result = empty((*images.shape[:-3], rows.index.shape[1], columns.index.shape[1], channels), _FLOAT)
    targets = result.reshape(-1, rows.index.shape[1], elements.index.shape[1])
    for image, target in zip(images.reshape(-1, height, width * channels), targets, strict=True):
        between = scratch("between", (len(target), image.shape[1]), _FLOAT)
        _sum_rows(image, rows, between)
        # Then the weighted sums of elements of each row.
        part = scratch("values", target.shape, _FLOAT)
        target[...] = 0
        for index, weight in zip(elements.index, elements.weight, strict=True):
            between.take(index, axis=1, out=part, mode="wrap")
            np.multiply(part, weight, out=part)
            np.add(target, part, out=target)
    return result


def _sum_rows(image: _Array, rows: Taps, target: _Array) -> None:
    """Writes weighted sums of rows: small matrix products, which take less time than products and sums of arrays."""
    count, width = len(rows.index), image.shape[1]
    index, weight = rows.in_order
    # Few enough rows at a time to stay in the processor's cache.
    block = max(_BLOCK // (count * width), 1)
    for begin in range(0, len(target), block):
        end = min(begin + block, len(target))
        gathered = scratch("gathered", ((end - begin) * count, width), image.dtype)
        image.take(index[begin * count : end * count], axis=0, out=gathered, mode="wrap")
        values = scratch("values", gathered.shape, _FLOAT)
        np.copyto(values, gathered, casting="unsafe")
        sums = target[begin:end].reshape(-1, 1, width)
        np.matmul(weight[begin:end], values.reshape(-1, count, width), out=sums)


def _with_jax(images: jax.Array, rows: Taps, columns: Taps, nearest: bool) -> jax.Array:
    axes: Sequence[tuple[int, Taps]] = ((images.ndim - 3, rows), (images.ndim - 2, columns))
    if nearest:
        for axis, chosen in axes:
            images = jnp.take(images, chosen.index[0], axis=axis)
        return images
    images = images.astype(jnp.float32)
    for axis, weighted in axes:
        images = _resize_axis(images, axis, weighted)
    return images


def _resize_axis(images: jax.Array, axis: int, weighted: Taps) -> jax.Array:
    # Many taps: one matrix product, which an accelerator does faster than many gathers.
    if len(weighted.index) > _FEW:
        matrix = jnp.asarray(weighted.matrix(images.shape[axis]))
        # HIGHEST, because a GPU would otherwise round the factors to TF32.
        product = jnp.tensordot(images, matrix, axes=((axis,), (1,)), precision=jax.lax.Precision.HIGHEST)
        return jnp.moveaxis(product, -1, axis)
    shape = [1] * images.ndim
    shape[axis] = -1
    parts = [
        jnp.take(images, index, axis=axis) * weight.reshape(shape)
        for index, weight in zip(weighted.index, weighted.weight, strict=True)
    ]
    return functools.reduce(jnp.add, parts)


def resize_bilinear(images: _Array, height: int, width: int) -> _Array:
    """Returns images, (height, width, channels) or a batch of them, in another size, as float32."""
    result = empty((*images.shape[:-3], height, width, images.shape[-1]), _FLOAT)
    if images.ndim == 3:
        _resize(images, result)
    else:
        for image, target in zip(images, result, strict=True):
            _resize(image, target)
    return result


def _resize(image: _Array, target: _Array) -> None:
    """Resizes one image."""
    channels = image.shape[-1]
    if channels <= _CHANNELS:
        _resize_channels(image, target)
        return
    # OpenCV's vectorized code is for up to four channels; others are resized four at a time.
    for begin in range(0, channels, _CHANNELS):
        some = image[..., begin : begin + _CHANNELS]
        part = scratch("part", (*target.shape[:2], some.shape[-1]), _FLOAT)
        _resize_channels(some, part)
        target[..., begin : begin + _CHANNELS] = part


def _resize_channels(image: _Array, target: _Array) -> None:
    if not target.size:
        return
    if len(image) >= _MANY_ROWS * len(target):
        _from_few_rows(image, target)
        return
    # Converted first: OpenCV resizes uint8 in fixed point, which rounds other than TensorFlow.
    values = scratch("values", image.shape, _FLOAT)
    np.copyto(values, image, casting="unsafe")
    _interpolate(values, target)


def _from_few_rows(image: _Array, target: _Array) -> None:
    """Picks the two rows that make a row, of large images a small part, before anything else is done."""
    height, width, channels = target.shape
    rows = taps("bilinear", False, len(image), height)
    picked = scratch("picked", (2 * height, *image.shape[1:]), image.dtype)
    # Of a photograph shrunk to 224 rows most rows are never used: they are not converted.
    image.take(rows.index.reshape(-1), axis=0, out=picked, mode="wrap")
    values = scratch("values", picked.shape, _FLOAT)
    np.copyto(values, picked, casting="unsafe")
    narrow = scratch("narrow", (2 * height, width, channels), _FLOAT)
    _interpolate(values, narrow)
    # top + (bottom - top) * share, the order of TensorFlow's kernel, in its float32.
    np.subtract(narrow[height:], narrow[:height], out=target)
    np.multiply(target, rows.weight[1][:, None, None], out=target)
    np.add(target, narrow[:height], out=target)


def _interpolate(values: _Array, target: _Array) -> None:
    library = opencv()
    library.resize(values, target.shape[1::-1], dst=target, interpolation=library.INTER_LINEAR)


def scratch(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Array:
    """Returns memory of this thread, whose content lasts until the thread asks for that name again."""
    size = math.prod(shape) * dtype.itemsize
    memory: _Array | None = getattr(_local, name, None)
    # It grows to the largest image that the thread has seen.
    if memory is None or memory.size < size:
        memory = np.empty(size, np.uint8)
        if size <= _KEPT:
            setattr(_local, name, memory)
    return memory[:size].view(dtype).reshape(shape)
