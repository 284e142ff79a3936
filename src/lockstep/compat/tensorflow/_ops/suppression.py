"""Boxes that overlap better ones are left out: non-maximum suppression."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._types import Tensor
from lockstep.compat.tensorflow._ops import dispatch, named
from lockstep.compat.tensorflow._ops.indexing import read_values
from lockstep.compat.tensorflow._tensor import as_host
from lockstep.compat.tensorflow._types import SizeLike

__all__ = ["combined_non_max_suppression", "non_max_suppression", "non_max_suppression_overlaps"]
__all__ += ["non_max_suppression_padded", "non_max_suppression_with_scores"]

_NONE = float("-inf")


class CombinedNonMaxSuppression(NamedTuple):
    """Boxes, scores and classes of a batch, and how many of each example are there."""

    nmsed_boxes: Any
    nmsed_scores: Any
    nmsed_classes: Any
    valid_detections: Any


def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_size: SizeLike,
    iou_threshold: float = 0.5,
    score_threshold: float = _NONE,
    name: str | None = None,
) -> Tensor:
    """Returns the numbers of boxes, from the best score on, that overlap no better one by more than a limit.

    How many there are depends on values, so that it is computed on the host. `non_max_suppression_padded` compiles.

    Args:
        boxes: `[n, 4]`: two opposite corners, as y, x, y, x.
        scores: `[n]`.
        max_output_size: How many numbers at most.
        iou_threshold: Area in common by area together.
        score_threshold: Scores that are not greater are left out.
        name: Its name in a model_fn.

    Returns:
        int32 of one dimension.

    Source: tf.image.non_max_suppression.
    """
    return non_max_suppression_with_scores(boxes, scores, max_output_size, iou_threshold, score_threshold)[0]


def non_max_suppression_with_scores(
    boxes: Tensor,
    scores: Tensor,
    max_output_size: SizeLike,
    iou_threshold: float = 0.5,
    score_threshold: float = _NONE,
    soft_nms_sigma: float = 0.0,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns numbers as `non_max_suppression`, and their scores.

    With `soft_nms_sigma` above 0 overlaps lower a score by a Gaussian of that width, instead of leaving the box out.

    Source: tf.image.non_max_suppression_with_scores.
    """
    corners = read_values("tf.image.non_max_suppression", dispatch.pick(boxes)[1]).astype(np.float32)
    values = read_values("tf.image.non_max_suppression", dispatch.pick(scores)[1])
    overlap = _overlaps(np, *_corners(np, corners))
    return _select(
        lambda one, other: overlap[one, other], values, max_output_size, iou_threshold, score_threshold, soft_nms_sigma
    )


def non_max_suppression_overlaps(
    overlaps: Tensor,
    scores: Tensor,
    max_output_size: SizeLike,
    overlap_threshold: float = 0.5,
    score_threshold: float = _NONE,
    name: str | None = None,
) -> Tensor:
    """Returns numbers as `non_max_suppression`, by overlaps `[n, n]` that are given.

    Source: tf.image.non_max_suppression_overlaps.
    """
    matrix = read_values("tf.image.non_max_suppression_overlaps", dispatch.pick(overlaps)[1])
    values = read_values("tf.image.non_max_suppression_overlaps", dispatch.pick(scores)[1])
    return _select(
        lambda one, other: matrix[one, other], values, max_output_size, overlap_threshold, score_threshold, 0.0
    )[0]


def _select(
    overlap: Callable[[int, int], float],
    scores: np.ndarray[Any, Any],
    most: SizeLike,
    limit: float,
    least: float,
    sigma: float,
) -> tuple[Tensor, Tensor]:
    """Returns the chosen numbers, from the best score on, and their scores."""
    count, scale = int(dispatch.to_static(most)), -0.5 / float(sigma) if sigma > 0 else 0.0
    # Of equal scores the first one; each with how many chosen ones it has been compared with.
    queue = [(-score, number, 0) for number, score in enumerate(scores.astype(np.float32).tolist()) if score > least]
    heapq.heapify(queue)
    chosen: list[int] = []
    found: list[float] = []
    while queue and len(chosen) < count:
        negative, number, compared = heapq.heappop(queue)
        score = -negative
        is_out = False
        for other in reversed(chosen[compared:]):
            shared = float(overlap(number, other))
            if sigma <= 0 and shared > limit:
                is_out = True
                break
            score = float(np.float32(score) * np.float32(np.exp(np.float32(scale * shared * shared))))
            if score <= least:
                break
        if is_out:
            continue
        if score == -negative:
            chosen.append(number)
            found.append(score)
        elif score > least:
            heapq.heappush(queue, (-score, number, len(chosen)))
    return as_host(np.array(chosen, np.int32)), as_host(np.array(found, scores.dtype))


def _corners(xp: Any, boxes: Tensor) -> tuple[Any, Any]:
    """Returns the least and the greatest y and x of each box."""
    return xp.minimum(boxes[:, :2], boxes[:, 2:]), xp.maximum(boxes[:, :2], boxes[:, 2:])


def _corners_in_order(xp: Any, boxes: Tensor) -> tuple[Any, Any]:
    """Returns two corners of each box, in the order of the first box's: TensorFlow's for padded suppression."""
    first, last = boxes[:, :2], boxes[:, 2:]
    in_order = first[0] <= last[0]
    return xp.where(in_order, first, last), xp.where(in_order, last, first)


def _overlaps(xp: Any, low: Tensor, high: Tensor) -> Any:
    """Returns the area that each two boxes have in common, by that which they have together."""
    area = xp.prod(high - low, axis=1)
    shared = xp.minimum(high[:, None], high[None]) - xp.maximum(low[:, None], low[None])
    common = xp.prod(xp.maximum(shared, 0), axis=-1)
    together = area[:, None] + area[None] - common
    is_box = (area[:, None] > 0) & (area[None] > 0)
    return xp.where(is_box, common / xp.where(is_box, together, 1), 0)


def non_max_suppression_padded(
    boxes: Tensor,
    scores: Tensor,
    max_output_size: SizeLike,
    iou_threshold: float = 0.5,
    score_threshold: float = _NONE,
    pad_to_max_output_size: bool = False,
    name: str | None = None,
    sorted_input: bool = False,
    canonicalized_coordinates: bool = False,
    tile_size: int = 512,
) -> tuple[Tensor, Tensor]:
    """Returns numbers as `non_max_suppression`, and how many there are.

    With `pad_to_max_output_size` zeros follow up to `max_output_size`, so that JAX compiles it; boxes may then be a
    batch `[batch, n, 4]`. `sorted_input`, `canonicalized_coordinates` and `tile_size` say how TensorFlow computes it,
    and do not change what it gives.

    Source: tf.image.non_max_suppression_padded.
    """
    del sorted_input, canonicalized_coordinates, tile_size
    xp, b, s = dispatch.pick(boxes, scores)
    if not pad_to_max_output_size:
        b, s = (read_values("tf.image.non_max_suppression_padded without pad_to_max_output_size", v) for v in (b, s))
        xp = dispatch.HOST
    count = int(dispatch.to_static(max_output_size))

    def suppress(corners: Tensor, values: Tensor) -> Any:
        overlap = _overlaps(xp, *_corners_in_order(xp, corners.astype("float32")))
        return _suppress(xp, overlap, values, count, iou_threshold, score_threshold)

    if len(b.shape) == 2:
        numbers, valid = suppress(b, s)
        if not pad_to_max_output_size:
            numbers = numbers[: int(valid)]
    elif xp is dispatch.HOST:
        numbers, valid = map(np.stack, zip(*map(suppress, b, s), strict=True))
    else:
        numbers, valid = jax.vmap(suppress)(b, s)
    return dispatch.give(xp, xp.maximum(numbers, 0)), dispatch.give(xp, valid)


def _suppress(xp: Any, overlap: Tensor, scores: Tensor, count: int, limit: float, least: float) -> tuple[Any, Any]:
    """Returns `count` numbers, -1 behind the last one, and how many are valid."""
    if xp is dispatch.HOST:
        chosen = np.asarray(_select(lambda one, other: overlap[one, other], scores, count, limit, least, 0.0)[0])
        return np.pad(chosen, (0, count - len(chosen)), constant_values=-1), np.int32(len(chosen))
    size = scores.shape[0]

    def step(at: Tensor, state: Any) -> Any:
        live, numbers = state
        # The first of the best ones.
        best = jnp.argmax(jnp.where(live, scores, -jnp.inf))
        is_one = jnp.any(live)
        numbers = numbers.at[at].set(jnp.where(is_one, best, -1).astype(jnp.int32))
        stays = live & (overlap[best] <= limit) & (jnp.arange(size) != best)
        return jnp.where(is_one, stays, live), numbers

    start = scores > least, jnp.full((count,), -1, jnp.int32)
    _, numbers = jax.lax.fori_loop(0, count, step, start)
    return numbers, jnp.sum(numbers >= 0, dtype=jnp.int32)


def combined_non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_size_per_class: SizeLike,
    max_total_size: SizeLike,
    iou_threshold: float = 0.5,
    score_threshold: float = _NONE,
    pad_per_class: bool = False,
    clip_boxes: bool = True,
    name: str | None = None,
) -> CombinedNonMaxSuppression:
    """Suppresses boxes of each class by themselves, and returns the best of all classes.

    Args:
        boxes: `[batch, n, 1 or classes, 4]`.
        scores: `[batch, n, classes]`.
        max_output_size_per_class: How many boxes of a class at most.
        max_total_size: How many boxes of an example at most; zeros follow up to it.
        iou_threshold: As of `non_max_suppression`.
        score_threshold: As of `non_max_suppression`.
        pad_per_class: Whether there are no more than `max_output_size_per_class` for each class.
        clip_boxes: Whether corners are limited to [0, 1].
        name: Its name in a model_fn.

    Source: tf.image.combined_non_max_suppression.
    """
    xp, b, s = dispatch.pick(boxes, scores)
    each, total = int(dispatch.to_static(max_output_size_per_class)), int(dispatch.to_static(max_total_size))
    total = min(total, each * s.shape[2]) if pad_per_class else total

    def of_class(corners: Tensor, values: Tensor) -> Any:
        overlap = _overlaps(xp, *_corners(xp, corners.astype("float32")))
        numbers, _ = _suppress(xp, overlap, values, each, iou_threshold, score_threshold)
        return corners[numbers], xp.where(numbers >= 0, values[numbers], -np.inf)

    def of_example(corners: Tensor, values: Tensor) -> Any:
        classes = values.shape[1]
        corners = xp.broadcast_to(corners, (corners.shape[0], classes, 4))
        parts = [of_class(corners[:, number], values[:, number]) for number in range(classes)]
        short = max(total - each * classes, 0)
        found = xp.pad(xp.concatenate([part[0] for part in parts]), [(0, short), (0, 0)])
        best = xp.pad(xp.concatenate([part[1] for part in parts]), (0, short), constant_values=-np.inf)
        kinds = np.pad(np.repeat(np.arange(classes, dtype=np.float32), each), (0, short))
        order = xp.argsort(-best, stable=True)[:total]
        is_one = best[order] > -np.inf
        found = xp.clip(found[order], 0, 1) if clip_boxes else found[order]
        parts = xp.where(is_one[:, None], found, 0), xp.where(is_one, best[order], 0)
        return *parts, xp.where(is_one, xp.asarray(kinds)[order], 0), xp.sum(is_one)

    if xp is dispatch.HOST:
        results: Any = [np.stack(part) for part in zip(*map(of_example, b, s), strict=True)]
    else:
        results = jax.vmap(of_example)(b, s)
    floats = [dispatch.give(xp, part.astype("float32")) for part in results[:3]]
    found, best, kinds = floats
    return CombinedNonMaxSuppression(found, best, kinds, dispatch.give(xp, results[3].astype("int32")))


named.record_names(globals())
