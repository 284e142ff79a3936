"""Bilinear resizing of arrays in memory, through OpenCV, which has instructions for it that numpy lacks.

Source: tf.image.resize(method="bilinear"); tensorflow/core/kernels/image/resize_bilinear_op.cc.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep.data._image.libraries import opencv
from lockstep.data._image.scratch import scratch
from lockstep.data._image.weights import taps

_FLOAT = np.dtype(np.float32)
_CHANNELS = 4  # that OpenCV's quick ways can have
_MANY_ROWS = 4  # for each new one, from where on it pays to pick those that count
_Array = np.ndarray[Any, np.dtype[Any]]


def resize_bilinear(images: _Array, height: int, width: int) -> _Array:
    """Returns images, (height, width, channels) or a batch of them, in another size, as float32."""
    channels = images.shape[-1]
    result = np.empty((*images.shape[:-3], height, width, channels), _FLOAT)
    batch, targets = (images, result) if images.ndim == 4 else (images[None], result[None])
    for image, target in zip(batch, targets, strict=True):
        # OpenCV's vectorized code is for up to four channels; others are resized four at a time.
        if channels <= _CHANNELS:
            _resize(image, target)
            continue
        for begin in range(0, channels, _CHANNELS):
            some = image[..., begin : begin + _CHANNELS]
            part = scratch("part", (height, width, some.shape[-1]), _FLOAT)
            _resize(some, part)
            target[..., begin : begin + _CHANNELS] = part
    return result


def _resize(image: _Array, target: _Array) -> None:
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
