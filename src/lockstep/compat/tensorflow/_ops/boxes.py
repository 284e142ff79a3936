"""Boxes in images, `[top, left, bottom, right]` in parts of height and width: cut out, drawn, and taken at random."""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.make import compute
from lockstep.compat.tensorflow._ops.random import stateless_uniform, uniform
from lockstep.compat.tensorflow._types import Library, Seed, ShapeLike
from lockstep.errors import ArgumentError

__all__ = ["crop_and_resize", "draw_bounding_boxes", "sample_distorted_bounding_box"]
__all__ += ["stateless_sample_distorted_bounding_box"]

# TensorFlow's colours of boxes, in turn: yellow, blue, red, lime, purple, olive, maroon, navy, aqua, fuchsia.
_COLOURS = np.array(
    [
        *([1, 1, 0, 1], [0, 0, 1, 1], [1, 0, 0, 1], [0, 1, 0, 1], [0.5, 0, 0.5, 1]),
        *([0.5, 0.5, 0, 1], [0.5, 0, 0, 1], [0, 0, 0.5, 1], [0, 1, 1, 1], [1, 0, 1, 1]),
    ],
    np.float32,
)


def crop_and_resize(
    image: Tensor,
    boxes: Tensor,
    box_indices: Tensor,
    crop_size: ShapeLike,
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
    name: str | None = None,
) -> Tensor:
    """Cuts boxes out of images, and resizes each to one size.

    Args:
        image: `[batch, height, width, channels]`.
        boxes: `[n, 4]`: top, left, bottom, right, of which 0 and 1 are the middles of the first and last pixel. A box
            may be turned around, and reach beyond the image.
        box_indices: `[n]`: the image of each box.
        crop_size: Height and width.
        method: "bilinear" or "nearest".
        extrapolation_value: What is beyond the image.
        name: Its name in a model_fn.

    Returns:
        float32 `[n, crop height, crop width, channels]`.

    Source: tf.image.crop_and_resize.
    """
    if method not in ("bilinear", "nearest"):
        raise ArgumentError(f'method must be "bilinear" or "nearest". Received: {method!r}.')
    height, width = dispatch.to_shape(crop_size)

    def crop(xp: Library, x: Tensor, b: Tensor, number: Tensor) -> Any:
        x, b, which = x.astype("float32"), b.astype("float32"), number[:, None, None]
        (ys, in_rows), (xs, in_columns) = (
            _points(xp, b[:, axis], b[:, axis + 2], x.shape[axis + 1], size) for axis, size in ((0, height), (1, width))
        )
        if method == "nearest":
            rows, columns = (xp.floor(v + 0.5).astype("int32") for v in (ys, xs))
            found = x[which, rows[:, :, None], columns[:, None, :]]
        else:
            top, left = xp.floor(ys), xp.floor(xs)
            down, right = (ys - top)[:, :, None, None], (xs - left)[:, None, :, None]
            rows, columns = (
                [v.astype("int32") for v in (low, xp.ceil(points))] for low, points in ((top, ys), (left, xs))
            )
            corner = [[x[which, r[:, :, None], c[:, None, :]] for c in columns] for r in rows]
            upper, lower = (one + (other - one) * right for one, other in corner)
            found = upper + (lower - upper) * down
        inside = in_rows[:, :, None, None] & in_columns[:, None, :, None]
        return xp.where(inside, found, xp.asarray(extrapolation_value, "float32"))

    return compute(crop, image, boxes, box_indices)


def _points(xp: Library, first: Tensor, last: Tensor, size: int, count: int) -> tuple[Any, Any]:
    """Returns where along a dimension to take values, limited to the image, and which of them are in it."""
    if count > 1:
        steps = xp.asarray(np.arange(count, dtype=np.float32))
        points = (first * (size - 1))[:, None] + steps * ((last - first) * (size - 1) / (count - 1))[:, None]
    else:
        points = (0.5 * (first + last) * (size - 1))[:, None]
    return xp.clip(points, 0, size - 1), (points >= 0) & (points <= size - 1)


def draw_bounding_boxes(images: Tensor, boxes: Tensor, colors: Tensor, name: str | None = None) -> Tensor:
    """Returns images with the borders of boxes drawn on them, one pixel wide.

    Args:
        images: Floating-point numbers `[batch, height, width, 1, 3 or 4 channels]`.
        boxes: `[batch, n, 4]`: top, left, bottom, right in parts of the image.
        colors: `[m, channels]`, taken in turn; `None` for ten colours of TensorFlow's.
        name: Its name in a model_fn.

    Source: tf.image.draw_bounding_boxes.
    """

    def draw(xp: Library, x: Tensor, b: Tensor) -> Any:
        height, width, channels = x.shape[1:]
        # Of grey images TensorFlow's own colours are all white.
        palette = _COLOURS[:, :channels] if channels > 1 else np.ones((1, 1), np.float32)
        palette = palette if colors is None else np.asarray(colors, np.float32).reshape(-1, np.shape(colors)[-1])
        rows, columns = np.arange(height)[:, None], np.arange(width)[None, :]
        for number in range(b.shape[1]):
            # Truncated, as TensorFlow does.
            top, bottom = ((b[:, number, k] * (height - 1)).astype("int32")[:, None, None] for k in (0, 2))
            left, right = ((b[:, number, k] * (width - 1)).astype("int32")[:, None, None] for k in (1, 3))
            in_rows, in_columns = (rows >= top) & (rows <= bottom), (columns >= left) & (columns <= right)
            border = in_columns & ((rows == top) | (rows == bottom)) | in_rows & (
                (columns == left) | (columns == right)
            )
            colour = xp.asarray(palette[number % len(palette)][:channels], x.dtype)
            x = xp.where(border[..., None], colour, x)
        return x

    return compute(draw, images, boxes)


def sample_distorted_bounding_box(
    image_size: Tensor,
    bounding_boxes: Tensor,
    seed: Seed = 0,
    min_object_covered: float = 0.1,
    aspect_ratio_range: Any = None,
    area_range: Any = None,
    max_attempts: int | None = None,
    use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draws a part of an image at random that has enough of one of its boxes in it; else it is the whole image.

    Args:
        image_size: Height, width and channels.
        bounding_boxes: `[1, n, 4]`: top, left, bottom, right in parts of the image.
        seed: As of `tf.random.uniform`; 0 for none.
        min_object_covered: How much of a box must be in it.
        aspect_ratio_range: Width by height, from and to; default: 0.75 to 1.33.
        area_range: Part of the image, from and to; default: 0.05 to 1.
        max_attempts: How many parts are tried; default: 100.
        use_image_if_no_bounding_boxes: Whether no boxes mean the whole image; else they are an error.
        name: Its name in a model_fn.

    Returns:
        Begin and size of the part, for `tf.slice`, and the part as a box `[1, 1, 4]`.

    Source: tf.image.sample_distorted_bounding_box.
    """
    count = 100 if max_attempts is None else max_attempts
    draws = uniform((count, 4), seed=seed or None)
    use_image = bool(use_image_if_no_bounding_boxes)
    return _sample(image_size, bounding_boxes, draws, min_object_covered, aspect_ratio_range, area_range, use_image)


def stateless_sample_distorted_bounding_box(
    image_size: Tensor,
    bounding_boxes: Tensor,
    seed: Seed,
    min_object_covered: float = 0.1,
    aspect_ratio_range: Any = None,
    area_range: Any = None,
    max_attempts: int | None = None,
    use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draws a part of an image as `sample_distorted_bounding_box`, by a seed of two integers.

    Source: tf.image.stateless_sample_distorted_bounding_box.
    """
    draws = stateless_uniform((100 if max_attempts is None else max_attempts, 4), seed)
    use_image = bool(use_image_if_no_bounding_boxes)
    return _sample(image_size, bounding_boxes, draws, min_object_covered, aspect_ratio_range, area_range, use_image)


def _sample(
    image_size: Tensor, boxes: Tensor, draws: Tensor, covered: float, ratios: Any, areas: Any, use_image: bool
) -> tuple[Tensor, Tensor, Tensor]:
    height, width, _ = dispatch.to_static(image_size)
    xp, u, b = dispatch.pick(draws, boxes)
    b = b.reshape(-1, 4)
    if not b.shape[0]:
        if not use_image:
            raise ArgumentError(
                "There must be a bounding box. Received none. use_image_if_no_bounding_boxes=True takes the image."
            )
        b = xp.asarray([[0.0, 0.0, 1.0, 1.0]], "float32")
    low, high = (0.75, 1.33) if ratios is None else ratios
    least, most = (np.float32(part * height * width) for part in ((0.05, 1.0) if areas is None else areas))
    ratio = low + u[:, 0] * (high - low)
    # The heights at which a part has the least and the greatest area, and fits into the image.
    first = xp.round(xp.sqrt(least / ratio))
    last = xp.minimum(xp.minimum(xp.round(xp.sqrt(most / ratio)), xp.floor((width + 0.5 - 1e-7) / ratio)), height)
    first = xp.minimum(first, last)
    rows = first + xp.floor(u[:, 1] * (last - first + 1))
    # Rounding moves the area: a row more or less brings it back.
    area = rows * xp.round(rows * ratio)
    rows = rows + (area < least) - (area > most)
    columns = xp.round(rows * ratio)
    area = rows * columns
    fits = (area >= least) & (area <= most) & (columns <= width) & (rows <= height) & (columns > 0) & (rows > 0)
    top, left = xp.floor(u[:, 2] * xp.maximum(height - rows, 1)), xp.floor(u[:, 3] * xp.maximum(width - columns, 1))
    scale = np.array([height, width, height, width], np.float32)
    # Edges of the boxes in pixels, each beside all attempts.
    upper, first_column, lower, last_column = ((b * scale)[:, edge, None] for edge in range(4))
    shared = xp.maximum(xp.minimum(lower, top + rows) - xp.maximum(upper, top), 0)
    shared = shared * xp.maximum(xp.minimum(last_column, left + columns) - xp.maximum(first_column, left), 0)
    fits = fits & xp.any(shared >= covered * (lower - upper) * (last_column - first_column), axis=0)
    chosen, found = xp.argmax(fits), xp.any(fits)

    def pick(values: Tensor, whole: int) -> Any:
        return xp.where(found, values[chosen], whole).astype("int32")

    y, x, h, w = pick(top, 0), pick(left, 0), pick(rows, height), pick(columns, width)
    box = xp.stack([y / height, x / width, (y + h) / height, (x + w) / width]).astype("float32")
    begin, size = xp.stack([y, x, xp.zeros_like(y)]), xp.stack([h, w, xp.full_like(h, -1)])
    return dispatch.give(xp, begin), dispatch.give(xp, size), dispatch.give(xp, box.reshape(1, 1, 4))


named.record_names(globals())
