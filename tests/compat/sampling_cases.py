"""Losses by drawn classes, and images resized as by TensorFlow 1, with what TensorFlow 2.15.1 gives for them.

The file needs no TensorFlow; whoever has it writes sampling_expected.json again by running
`python -m tests.compat.sampling_cases` there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.compat.image_cases import grid
from tests.compat.op_cases import Case, write_expected

EXPECTED = Path(__file__).with_name("sampling_expected.json")

TABLE = [[(v - 8.0) / 9.0 for v in row] for row in grid(6, 3)]
BIAS = [0.1, -0.2, 0.3, 0.0, 0.5, -0.4]
ROWS = [[(v - 8.0) / 5.0 for v in row] for row in grid(2, 3)]
PICTURES = grid(2, 4, 5, 2)


def sampled(c: Any, true: int) -> Any:
    """Returns what a sampler of three classes could return."""
    expected = [[0.5, 0.25][:true], [0.125, 0.75][:true]]
    return c([4, 1, 2]), c(expected), c([0.9, 0.4, 0.2])


CASES: dict[str, Case] = {
    "nce_loss": lambda tf, c: tf.nn.nce_loss(
        c(TABLE), c(BIAS), c([[1], [3]]), c(ROWS), 3, 6, sampled_values=sampled(c, 1)
    ),
    "nce_loss_two": lambda tf, c: tf.nn.nce_loss(
        c(TABLE), c(BIAS), c([[1, 5], [3, 4]]), c(ROWS), 3, 6, 2, sampled(c, 2), remove_accidental_hits=True
    ),
    "sampled_softmax_loss": lambda tf, c: tf.nn.sampled_softmax_loss(
        c(TABLE), c(BIAS), c([[1], [3]]), c(ROWS), 3, 6, sampled_values=sampled(c, 1)
    ),
    "sampled_softmax_loss_hits": lambda tf, c: tf.nn.sampled_softmax_loss(
        c(TABLE), c(BIAS), c([[1, 5], [3, 4]]), c(ROWS), 3, 6, 2, sampled(c, 2), remove_accidental_hits=False
    ),
    "v1_resize": lambda tf, c: tf.compat.v1.image.resize(c(PICTURES), [7, 3]),
    "v1_resize_corners": lambda tf, c: tf.compat.v1.image.resize_images(c(PICTURES), [7, 3], align_corners=True),
    "v1_resize_one": lambda tf, c: tf.compat.v1.image.resize_images(c(PICTURES[0]), [8, 9], preserve_aspect_ratio=True),
    "v1_nearest": lambda tf, c: tf.compat.v1.image.resize_nearest_neighbor(c(PICTURES), [7, 3]),
    "v1_nearest_corners": lambda tf, c: tf.compat.v1.image.resize_nearest_neighbor(c(PICTURES), [7, 3], True),
    "v1_bicubic": lambda tf, c: tf.compat.v1.image.resize_bicubic(c(PICTURES), [7, 3]),
    "v1_bicubic_corners": lambda tf, c: tf.compat.v1.image.resize_bicubic(c(PICTURES), [7, 3], True),
    "v1_bilinear_half": lambda tf, c: tf.compat.v1.image.resize_bilinear(c(PICTURES), [7, 3], half_pixel_centers=True),
    "v1_area": lambda tf, c: tf.compat.v1.image.resize_area(c(PICTURES), [7, 3]),
}
VALUES_DECIDE: set[str] = set()

if __name__ == "__main__":
    write_expected(CASES, EXPECTED)
