"""tf.compat.v1.image: resizing as TensorFlow 1 samples, which is at other points; else tf.image."""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

import numpy as _np

from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow._ops import dispatch as _dispatch
from lockstep.compat.tensorflow._ops.images import check_image as _check_image
from lockstep.compat.tensorflow._ops.images import resize_with_crop_or_pad as resize_image_with_crop_or_pad
from lockstep.compat.tensorflow._ops.images import transpose as transpose_image
from lockstep.compat.tensorflow._ops.make import compute as _compute
from lockstep.compat.tensorflow._ops.patches import extract_patches as _extract_patches
from lockstep.compat.tensorflow._types import ShapeLike as _ShapeLike
from lockstep.errors import ArgumentError as _ArgumentError

__all__ = ["ResizeMethod", "extract_image_patches", "resize", "resize_area", "resize_bicubic", "resize_bilinear"]
__all__ += ["resize_image_with_crop_or_pad", "resize_images", "resize_nearest_neighbor", "transpose_image"]

_ROOT = "lockstep.compat.tensorflow.image"
# Keys' kernel with the constant that TensorFlow 1 took, and the steps of its table.
_CUBIC, _STEPS = -0.75, 1024


class ResizeMethod:
    """How images are resized. Source: tf.compat.v1.image.ResizeMethod."""

    BILINEAR, NEAREST_NEIGHBOR, BICUBIC, AREA = range(4)


def _points(size: int, count: int, align_corners: bool) -> _Any:
    """Returns where along a dimension of `size` the `count` new pixels are taken."""
    scale = (size - 1) / (count - 1) if align_corners and count > 1 else size / count
    return (_np.arange(count, dtype=_np.float32) * _np.float32(scale)).astype(_np.float32)


def _taps(method: str, size: int, count: int, align_corners: bool) -> tuple[_Any, _Any]:
    """Returns the pixels that each new one is made of, and their weights."""
    points = _points(size, count, align_corners)
    if method == "nearest":
        # Halves go up; numpy's own rounding would take even ones.
        chosen = _np.floor(points + 0.5) if align_corners else _np.floor(points)
        return _np.minimum(chosen, size - 1).astype(_np.int32)[:, None], _np.ones((count, 1), _np.float32)
    first = _np.floor(points).astype(_np.int32)
    part = (points - first).astype(_np.float32)
    if method == "bilinear":
        index = _np.stack([first, _np.minimum(first + 1, size - 1)], axis=1)
        return index, _np.stack([1 - part, part], axis=1)
    x = _np.rint(part * _STEPS) / _STEPS
    near, far = (lambda v: ((_CUBIC + 2) * v - (_CUBIC + 3)) * v * v + 1), _far
    weight = _np.stack([far(x + 1), near(x), near(1 - x), far(2 - x)], axis=1).astype(_np.float32)
    return _np.clip(first[:, None] + _np.arange(-1, 3), 0, size - 1), weight


def _far(v: _Any) -> _Any:
    return ((_CUBIC * v - 5 * _CUBIC) * v + 8 * _CUBIC) * v - 4 * _CUBIC


def _resize(method: str, images: _Tensor, size: _ShapeLike, align_corners: bool, half_pixel_centers: bool) -> _Any:
    height, width = _dispatch.to_shape(size)
    if half_pixel_centers:
        if align_corners:
            raise _ArgumentError("align_corners and half_pixel_centers exclude each other. Received: both true.")
        return _importlib.import_module(_ROOT).resize(images, (height, width), method)
    _check_image(images)

    def sample(xp: _Any, x: _Any) -> _Any:
        taps = [_taps(method, int(x.shape[a]), n, align_corners) for a, n in ((-3, height), (-2, width))]
        x = x if method == "nearest" else x.astype("float32")
        for axis, (index, weight) in zip((-3, -2), taps, strict=True):
            parts = [xp.take(x, index[:, k], axis=axis) for k in range(index.shape[1])]
            if method == "nearest":
                x = parts[0]
                continue
            shape = (-1, *(1,) * (-axis - 1))
            x = sum(p * weight[:, k].reshape(shape) for k, p in enumerate(parts))
        return x

    return _compute(sample, images)


def resize_bilinear(
    images: _Tensor,
    size: _ShapeLike,
    align_corners: bool = False,
    name: str | None = None,
    half_pixel_centers: bool = False,
) -> _Any:
    """Resizes by linear interpolation between pixels, to float32.

    Args:
        images: `[batch, height, width, channels]`.
        size: New height and width.
        align_corners: Whether the middles of the corner pixels stay where they are.
        name: Its name in a model_fn.
        half_pixel_centers: Whether pixels have their middles at halves, as in tf.image.resize.

    Source: tf.compat.v1.image.resize_bilinear.
    """
    return _resize("bilinear", images, size, align_corners, half_pixel_centers)


def resize_nearest_neighbor(
    images: _Tensor,
    size: _ShapeLike,
    align_corners: bool = False,
    name: str | None = None,
    half_pixel_centers: bool = False,
) -> _Any:
    """Takes a pixel for each new one, of the same type; as `resize_bilinear`.

    Source: tf.compat.v1.image.resize_nearest_neighbor.
    """
    return _resize("nearest", images, size, align_corners, half_pixel_centers)


def resize_bicubic(
    images: _Tensor,
    size: _ShapeLike,
    align_corners: bool = False,
    name: str | None = None,
    half_pixel_centers: bool = False,
) -> _Any:
    """Resizes by cubic interpolation between pixels; as `resize_bilinear`.

    Source: tf.compat.v1.image.resize_bicubic.
    """
    return _resize("bicubic", images, size, align_corners, half_pixel_centers)


def resize_area(images: _Tensor, size: _ShapeLike, align_corners: bool = False, name: str | None = None) -> _Any:
    """Takes the mean of the pixels that each new one covers, as float32. Source: tf.compat.v1.image.resize_area."""
    if align_corners:
        raise _ArgumentError("Areas are those of whole images. Leave align_corners out.")
    return _importlib.import_module(_ROOT).resize(images, size, "area")


_METHODS = {
    **dict.fromkeys((ResizeMethod.BILINEAR, "bilinear"), resize_bilinear),
    **dict.fromkeys((ResizeMethod.NEAREST_NEIGHBOR, "nearest"), resize_nearest_neighbor),
    **dict.fromkeys((ResizeMethod.BICUBIC, "bicubic"), resize_bicubic),
    **dict.fromkeys((ResizeMethod.AREA, "area"), resize_area),
}


def resize_images(
    images: _Tensor,
    size: _ShapeLike,
    method: _Any = ResizeMethod.BILINEAR,
    align_corners: bool = False,
    preserve_aspect_ratio: bool = False,
    name: str | None = None,
) -> _Any:
    """Resizes an image or a batch, as TensorFlow 1 does; an image that has the size already stays as it is.

    Args:
        images: `[height, width, channels]`, or with a batch.
        size: New height and width.
        method: One of `ResizeMethod`, or "bilinear", "nearest", "bicubic", "area".
        align_corners: Whether the middles of the corner pixels stay where they are.
        preserve_aspect_ratio: Whether the size is a limit, and the image keeps its proportions.
        name: Its name in a model_fn.

    Raises:
        ArgumentError: If there is no such method.

    Source: tf.compat.v1.image.resize_images.
    """
    if method not in _METHODS:
        names = ", ".join(k for k in _METHODS if isinstance(k, str))
        raise _ArgumentError(f"method must be one of {names}, or of ResizeMethod. Received: {method!r}.")
    _, x = _check_image(images)
    height, width = _dispatch.to_shape(size)
    if preserve_aspect_ratio:
        scale = min(height / x.shape[-3], width / x.shape[-2])
        height, width = (round(n * scale) for n in (x.shape[-3], x.shape[-2]))
    if (height, width) == tuple(x.shape[-3:-1]):
        return images
    return _METHODS[method](images, (height, width), align_corners)


def extract_image_patches(
    images: _Tensor,
    ksizes: _Any = None,
    strides: _Any = None,
    rates: _Any = None,
    padding: str | None = None,
    name: str | None = None,
    sizes: _Any = None,
) -> _Any:
    """Returns windows as `tf.image.extract_patches` does. Source: tf.compat.v1.image.extract_image_patches."""
    return _extract_patches(images, ksizes if sizes is None else sizes, strides, rates, padding)


resize = resize_images
_other = _missing.getter(__name__)


def __getattr__(name: str) -> _Any:
    """Returns a name of tf.image."""
    image = _importlib.import_module(_ROOT)
    return getattr(image, name) if name in image.__all__ else _other(name)
