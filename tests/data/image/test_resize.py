from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.data._image import formats
from lockstep.data._image.resize import METHODS, ResizeMethod, resize
from lockstep.data._image.weights import taps
from lockstep.errors import ArgumentError, UnsupportedError

# Images, and what tf.image.resize of TensorFlow 2.15 makes of them: "o<image>_<method>_<antialias>".
TENSORFLOW = np.load(Path(__file__).with_name("tensorflow.npz"))
COMPILED = "02"  # shrinks a little, and a lot; compiling each would take long
RESIZED = [name for name in TENSORFLOW.files if name.startswith("o")]


@pytest.mark.parametrize("name", RESIZED)
def test_pixels_are_those_of_tensorflow(name: str) -> None:
    image_name, method, antialias = name[1:].split("_")
    image, expected = TENSORFLOW[f"i{image_name}"], TENSORFLOW[name]

    def resized(pixels: Any) -> Any:
        return resize(pixels, expected.shape[:2], method, antialias=antialias == "1")

    check_close(resized(image), expected)
    if image_name in COMPILED:
        check_close(np.asarray(jax.jit(resized)(image)), expected)


def check_close(found: Any, expected: Any) -> None:
    assert isinstance(found, np.ndarray) and found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=255e-5)


def between_pixels(image: Any, axis: int, new_size: int) -> Any:
    """Resizes along an axis, in float64."""
    size = image.shape[axis]
    where = (np.arange(new_size) + 0.5) * (size / new_size) - 0.5
    below = np.floor(where)
    share = (where - below).reshape(-1, *[1] * (2 - axis))
    lower, upper = (np.clip(below + step, 0, size - 1).astype(int) for step in (0, 1))
    image = image.astype(np.float64)
    return image.take(lower, axis) * (1 - share) + image.take(upper, axis) * share


def check_bilinear(image: Any, size: tuple[int, int], values: float = 256) -> None:
    found = resize(image, size)
    assert found.dtype == np.float32 and found.flags.c_contiguous
    expected = between_pixels(between_pixels(image, 0, size[0]), 1, size[1])
    # Like TensorFlow, OpenCV counts pixels in float32: the 2000th is rounded by up to 6e-5 of a pixel.
    np.testing.assert_allclose(
        found, expected, rtol=0, atol=0.02 * values / 256 if max(image.shape) > 200 else 1e-5 * values
    )


VIEWS = {
    "as it is": lambda image: image,
    "mirrored": lambda image: image[:, ::-1],
    "upside down, channels in reverse": lambda image: image[::-1, :, ::-1],
    "transposed": lambda image: image.transpose(1, 0, 2),
    "every second": lambda image: image[::2, 1::2] if min(image.shape[:2]) > 1 else image,
    "of bytes in the other order": lambda image: image.astype(image.dtype.newbyteorder()),
    "the same pixel": lambda image: np.broadcast_to(image[:1, :1], image.shape),
    "columns first in memory": np.asfortranarray,
}


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(
    st.tuples(st.integers(1, 60), st.integers(1, 60), st.integers(1, 6)),
    st.tuples(st.integers(1, 60), st.integers(1, 60)),
    st.sampled_from(["u1", "u2", "i2", "i4", "i8", "f2", "f4", "f8"]),
    st.sampled_from(sorted(VIEWS)),
    st.integers(0, 2**32 - 1),
)
def test_bilinear(shape: tuple[int, int, int], size: tuple[int, int], dtype: str, view: str, seed: int) -> None:
    image = VIEWS[view](np.random.default_rng(seed).integers(0, 256, shape).astype(dtype))
    image.flags.writeable = False
    kept = image.copy()
    check_bilinear(image, size)
    np.testing.assert_array_equal(image, kept)
    np.testing.assert_array_equal(resize(image, image.shape[:2]), image.astype(np.float32))


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((3, 3), (224, 224)),
        ((375, 500), (224, 224)),
        ((900, 1200), (224, 224)),
        ((2000, 30), (5, 40)),
        ((30, 2000), (40, 5)),
        ((2000, 1), (1, 7)),
        ((1, 2000), (9, 1)),
        ((1, 1), (300, 1)),
        ((2, 500), (500, 2)),
        ((256, 256), (128, 64)),
        ((255, 257), (256, 256)),
    ],
)
def test_bilinear_far_from_the_old_size(shape: tuple[int, int], size: tuple[int, int], channels: int) -> None:
    check_bilinear(np.random.default_rng(0).integers(0, 256, (*shape, channels), np.uint8), size)


@pytest.mark.parametrize("dtype", ["u2", "i4", "f4", "f8"])
def test_bilinear_of_large_values(dtype: str) -> None:
    check_bilinear(np.random.default_rng(0).integers(0, 65536, (40, 31, 3)).astype(dtype), (17, 60), 65536)


def test_bilinear_of_no_images() -> None:
    assert resize(np.zeros((0, 3, 4, 3), np.uint8), (2, 2)).shape == (0, 2, 2, 3)
    assert resize(np.zeros((2, 3, 4, 0), np.uint8), (2, 2)).shape == (2, 2, 2, 0)


def test_threads() -> None:
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, (*random.integers(1, 300, 2), 3), np.uint8) for _ in range(60)]
    expected = [resize(image, (30, 40)) for image in images]
    with ThreadPoolExecutor(4) as pool:
        for found, one in zip(pool.map(lambda image: resize(image, (30, 40)), images * 3), expected * 3, strict=True):
            np.testing.assert_array_equal(found, one)


def test_without_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    formats.opencv.cache_clear()
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(UnsupportedError, match=r'pip install "lockstep\[images\]"'):
        resize(TENSORFLOW["i0"], (5, 7))
    assert resize(TENSORFLOW["i0"], (5, 7), "area").shape == (5, 7, 3)


def test_arrays_on_a_device_stay_there() -> None:
    found = resize(jax.numpy.asarray(TENSORFLOW["i0"]), (5, 7))
    assert isinstance(found, jax.Array)
    check_close(np.asarray(found), TENSORFLOW["o0_bilinear_0"])


@pytest.mark.parametrize("method", METHODS)
def test_batches_are_their_images(method: str) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 9, 8, 3), np.uint8)
    each = np.stack([resize(image, (5, 12), method) for image in images])
    np.testing.assert_array_equal(resize(images, (5, 12), method), each)
    traced = jax.vmap(lambda image: resize(image, (5, 12), method))(images)
    np.testing.assert_allclose(np.asarray(traced), each, rtol=0, atol=255e-6)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(METHODS), st.booleans(), st.integers(1, 40), st.integers(1, 40))
def test_a_flat_image_stays_flat(method: str, antialias: bool, size: int, new_size: int) -> None:
    found = taps(method, antialias, size, new_size)
    assert found.index.min() >= 0 and found.index.max() < size
    np.testing.assert_allclose(found.weight.sum(axis=0), 1, atol=1e-5)


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "i8", "f2", "f4", "f8", "?"])
def test_any_number_type(dtype: str) -> None:
    image = np.arange(12).reshape(3, 4, 1).astype(dtype)
    np.testing.assert_allclose(resize(image, (3, 4)), image.astype(np.float32))
    assert resize(image, (2, 2)).dtype == np.float32
    assert resize(image, (2, 2), "nearest").dtype == image.dtype


def test_views_and_threads_do_not_mix() -> None:
    image = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    first = resize(image[::2, ::-1], (7, 7))
    kept = first.copy()
    np.testing.assert_array_equal(first, resize(np.ascontiguousarray(image[::2, ::-1]), (7, 7)))
    resize(image, (9, 9))
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize(
    ("shape", "size", "expected"),
    [((100, 33), (50, 50), (50, 16)), ((375, 500), (224, 224), (168, 224)), ((3, 1000), (10, 10), (1, 10))],
)
def test_preserving_the_aspect_ratio(shape: tuple[int, int], size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert resize(np.zeros((*shape, 1)), size, preserve_aspect_ratio=True).shape == (*expected, 1)


def test_methods_have_tensorflows_names() -> None:
    names = {name: value for name, value in vars(ResizeMethod).items() if name.isupper()}
    assert names["NEAREST_NEIGHBOR"] == "nearest" and sorted(names.values()) == sorted(METHODS)


@pytest.mark.parametrize(
    ("shape", "size", "method"),
    [
        ((3, 3), (2, 2), "bilinear"),
        ((0, 3, 1), (2, 2), "bilinear"),
        ((3, 3, 1), (2,), "bilinear"),
        ((3, 3, 1), 2, "bilinear"),
        ((3, 3, 1), (0, 2), "bilinear"),
        ((3, 3, 1), (2, 2), "linear"),
    ],
)
def test_wrong_arguments(shape: tuple[int, ...], size: Any, method: str) -> None:
    with pytest.raises(ArgumentError):
        resize(np.zeros(shape), size, method)


def test_text_is_no_image() -> None:
    with pytest.raises(ArgumentError, match="Decode"):
        resize(np.full((1, 1, 1), b"", object), (1, 1))
