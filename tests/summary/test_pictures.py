"""Images as TensorFlow shows them: what it wrote for the same arrays."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.summary._protos import as_bytes

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0, 1, 2, 4], [0, 63, 127, 255]),
        ([-1, 0, 2, 3.9], [95, 128, 193, 255]),
        ([-4, 0, 1], [1, 128, 159]),
        ([0, 0, 0], [0, 0, 0]),
        ([NAN, 1, 2], [255, 127, 255]),
        ([INF, -1, 2], [255, 64, 255]),
        ([NAN, INF], [255, 255]),
        ([1e-8, 2e-8], [0, 0]),
        ([-1e-8, 2e-8], [128, 128]),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_grey(values: list[float], shown: list[int], dtype: str) -> None:
    (picture,) = as_bytes(np.array(values, dtype).reshape(1, 1, -1, 1))
    assert picture.dtype == np.uint8
    assert picture.shape == (1, len(values), 1)
    assert picture.ravel().tolist() == shown


@pytest.mark.parametrize(
    ("values", "channels", "shown"),
    [
        ([NAN, 3, 255, 1, 1, 1], 3, [255, 0, 0, 255, 255, 255]),
        ([NAN, 3, 255, 1, 1, 1, 1, 1], 4, [255, 0, 0, 255, 255, 255, 255, 255]),
        ([0.1, 3, 255, 1, 1, 1, 0, 0], 4, [0, 3, 255, 1, 1, 1, 0, 0]),
    ],
)
def test_colours(values: list[float], channels: int, shown: list[int]) -> None:
    (picture,) = as_bytes(np.array(values, "float32").reshape(1, 1, -1, channels))
    assert picture.ravel().tolist() == shown


def test_each_image_by_itself() -> None:
    images = np.array([[0, 1], [0, 100]], "float32").reshape(2, 1, 2, 1)
    assert [picture.ravel().tolist() for picture in as_bytes(images)] == [[0, 255], [0, 255]]


def test_bytes_as_they_are() -> None:
    images = np.array([0, 3, 200], "uint8").reshape(1, 1, 3, 1)
    assert as_bytes(images)[0].ravel().tolist() == [0, 3, 200]
