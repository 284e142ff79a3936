"""Calls of TensorFlow's functions of images, each with what TensorFlow 2.15.1 gives for it in image_expected.json.

A case gets the package and a function that makes a tensor of numbers. The file needs no TensorFlow; whoever has it
writes the expected values again by running `python -m tests.compat.image_cases` there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.compat.op_cases import Case, write_expected

EXPECTED = Path(__file__).with_name("image_expected.json")


def grid(*shape: int, modulus: int = 17) -> list:
    """Returns numbers of a shape in no order."""
    return ((np.arange(int(np.prod(shape))) * 7 % modulus).astype(np.float32)).reshape(shape).tolist()


X = grid(2, 5, 6, 2)
BOXES = [[0.1, 0.2, 0.8, 0.9], [0.7, 0.6, 0.2, 0.1], [-0.2, 0.0, 1.3, 1.0]]
OVERLAPPING = [
    [0.0, 0.0, 1.0, 1.0],
    [0.0, 0.1, 1.0, 1.1],
    [1.0, 0.9, 0.0, -0.1],
    [0.0, 10.0, 1.0, 11.0],
    [0.0, 10.1, 1.0, 11.1],
    [0.0, 100.0, 1.0, 101.0],
]
SCORES = [0.9, 0.75, 0.6, 0.95, 0.5, 0.3]
BATCH = [[[[0.0, 0.0, 1.0, 1.0]], [[0.0, 0.1, 1.0, 1.1]], [[0.0, -0.1, 1.0, 0.9]], [[0.0, 0.5, 1.0, 1.5]]]]
CLASSES = [[[0.9, 0.1], [0.75, 0.2], [0.6, 0.8], [0.95, 0.05]]]
UNIT = [[[[v / 16 for v in pixel] for pixel in row] for row in image] for image in grid(1, 6, 7, 3)]

CASES: dict[str, Case] = {
    "crop_and_resize": lambda tf, c: tf.image.crop_and_resize(c(X), c(BOXES), c([0, 1, 0]), [3, 4]),
    "crop_and_resize_nearest": lambda tf, c: tf.image.crop_and_resize(
        c(X), c([[0.11, 0.2, 0.83, 0.91], BOXES[2]]), c([0, 1]), [3, 4], "nearest", -1.0
    ),
    "crop_and_resize_one": lambda tf, c: tf.image.crop_and_resize(c(X), c(BOXES), c([1, 1, 0]), [1, 2]),
    "extract_patches": lambda tf, c: tf.image.extract_patches(c(X), [1, 2, 3, 1], [1, 2, 1, 1], [1, 1, 1, 1], "VALID"),
    "extract_patches_rates": lambda tf, c: tf.image.extract_patches(
        c(X), [1, 3, 2, 1], [1, 2, 2, 1], [1, 1, 2, 1], "SAME"
    ),
    "extract_volume_patches": lambda tf, c: tf.extract_volume_patches(
        c(grid(1, 4, 3, 3, 2)), [1, 2, 2, 2, 1], [1, 2, 1, 1, 1], "SAME"
    ),
    "sobel_edges": lambda tf, c: tf.image.sobel_edges(c(X)),
    "dilation2d": lambda tf, c: tf.nn.dilation2d(c(X), c(grid(2, 3, 2)), [1, 2, 1, 1], "SAME", "NHWC", [1, 1, 2, 1]),
    "erosion2d": lambda tf, c: tf.nn.erosion2d(c(X), c(grid(2, 3, 2)), [1, 1, 1, 1], "VALID", "NHWC", [1, 1, 1, 1]),
    "max_pool_with_argmax": lambda tf, c: tf.nn.max_pool_with_argmax(c(X), 2, 2, "SAME"),
    "max_pool_with_argmax_batch": lambda tf, c: tf.nn.max_pool_with_argmax(
        c(X), [1, 3, 2, 1], [1, 1, 2, 1], "VALID", include_batch_in_index=True
    ),
    "draw_bounding_boxes": lambda tf, c: tf.image.draw_bounding_boxes(
        c(grid(2, 5, 6, 1)), c([BOXES[:2], [[0.0, 0.0, 0.5, 0.5], [-0.5, 0.2, 0.5, 2.0]]]), [[1.5], [3.5]]
    ),
    "draw_bounding_boxes_colours": lambda tf, c: tf.image.draw_bounding_boxes(c(UNIT), c([BOXES]), None),
    "rgb_to_yiq": lambda tf, c: tf.image.rgb_to_yiq(c(UNIT)),
    "yiq_to_rgb": lambda tf, c: tf.image.yiq_to_rgb(c(UNIT)),
    "rgb_to_yuv": lambda tf, c: tf.image.rgb_to_yuv(c(UNIT)),
    "yuv_to_rgb": lambda tf, c: tf.image.yuv_to_rgb(c(UNIT)),
    "ssim_multiscale": lambda tf, c: tf.image.ssim_multiscale(
        c(grid(2, 18, 21, 2)), c(grid(2, 18, 21, 2)) * 0.8 + 1.0, 17.0, (0.3, 0.4, 0.3), filter_size=4
    ),
    "ssim_index_map": lambda tf, c: tf.image.ssim(c(X), c(X) * 0.8, 17.0, filter_size=3, return_index_map=True),
    "nms_padded": lambda tf, c: tf.image.non_max_suppression_padded(
        c(OVERLAPPING), c(SCORES), 5, score_threshold=0.4, pad_to_max_output_size=True
    ),
    "combined_nms": lambda tf, c: tuple(tf.image.combined_non_max_suppression(c(BATCH), c(CLASSES), 3, 5, 0.5, 0.1)),
    "combined_nms_per_class": lambda tf, c: tuple(
        tf.image.combined_non_max_suppression(
            c(BATCH), c(CLASSES), 1, 5, 0.5, 0.1, pad_per_class=True, clip_boxes=False
        )
    ),
    "nms": lambda tf, c: tf.image.non_max_suppression(c(OVERLAPPING), c(SCORES), 3),
    "nms_all": lambda tf, c: tf.image.non_max_suppression(c(OVERLAPPING), c(SCORES), 9, 0.5, 0.4),
    "nms_soft": lambda tf, c: tf.image.non_max_suppression_with_scores(
        c(OVERLAPPING), c(SCORES), 6, iou_threshold=1.0, score_threshold=0.0, soft_nms_sigma=0.5
    ),
    "nms_overlaps": lambda tf, c: tf.image.non_max_suppression_overlaps(
        c([[1.0, 0.6, 0.1], [0.6, 1.0, 0.7], [0.1, 0.7, 1.0]]), c([0.5, 0.9, 0.3]), 3
    ),
    "nms_not_padded": lambda tf, c: tf.image.non_max_suppression_padded(c(OVERLAPPING), c(SCORES), 5),
}
# What they return has as many elements as values say.
VALUES_DECIDE = {"nms", "nms_all", "nms_soft", "nms_overlaps", "nms_not_padded"}

if __name__ == "__main__":
    write_expected(CASES, EXPECTED)
