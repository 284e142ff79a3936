"""Pictures that are turned, zoomed, moved or sheared: the pixels that jax finds, each fetched once."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from lockstep._cpu.lowerings import resampling, unit_axes
from lockstep._engine.step import backends
from tests.cpu.lowerings.both import assert_same, both, differs, lowered, random
from tests.support.exhaustive import always

MODES = ("constant", "nearest", "wrap", "mirror", "reflect")
ORDERS = ("nearest", "bilinear")
SHAPE = (3, 7, 5, 3)
_Row = tuple[float, float, float]


def transform(interpolation: str = "bilinear", mode: str = "reflect", fill: Any = 0.0) -> Callable[..., jax.Array]:
    """Returns a function of pictures and their transforms."""

    def compute(images: Any, transforms: Any) -> Any:
        return keras.ops.image.affine_transform(images, transforms, interpolation, mode, fill)

    return compute


def make_transforms(count: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Returns transforms that turn, stretch and move pictures, some of them beyond their margins."""
    numbers = np.random.default_rng(seed).normal(0, 0.7, (count, 8))
    numbers[:, [2, 5]] *= 4
    numbers[:, 6:] = 0
    return numbers.astype(dtype)


def pictures(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Returns pictures of a type, integers of all sizes."""
    if dtype.startswith(("int", "uint", "bool")):
        limit = 2 if dtype == "bool" else 200
        return np.random.default_rng(1).integers(0, limit, shape).astype(dtype)
    return random(shape, dtype, 1)


@pytest.fixture
def without_the_original() -> Iterator[None]:
    """Has what runs where the rule cannot know better give wrong numbers."""
    wrong = lambda self, images, *_: images * 0 - 7  # noqa: E731
    with mock.patch.object(resampling.Transform, "original", wrong):
        yield


def assert_transforms(f: Callable[..., Any], images: np.ndarray, transforms: np.ndarray, exact: bool = False) -> None:
    assert differs(f, images, transforms)
    assert_same(f, images, transforms, exact=exact)


@pytest.mark.slow
@pytest.mark.usefixtures("without_the_original")
@pytest.mark.parametrize("mode,interpolation", [("reflect", "bilinear"), ("constant", "nearest")])
def test_pixels_are_those_of_jax(mode: str, interpolation: str) -> None:
    assert_transforms(transform(interpolation, mode, 3.5), pictures(SHAPE, "float32"), make_transforms(3))


@pytest.mark.slow
@pytest.mark.usefixtures("without_the_original")
@pytest.mark.parametrize(
    ("shape", "interpolation", "mode"),
    always(
        itertools.product([SHAPE, (1, 1, 1, 1), (2, 1, 6, 4), (1, 4, 1, 1), (5, 2, 3, 2)], ORDERS, MODES),
        lambda case: case[0] == SHAPE or case[1:] in (("bilinear", "reflect"), ("nearest", "constant")),
    ),
)
def test_any_shape_mode_and_order(shape: tuple[int, ...], interpolation: str, mode: str) -> None:
    f = transform(interpolation, mode, -2)
    assert_transforms(f, pictures(shape, "float32"), make_transforms(shape[0]))


@pytest.mark.slow
@pytest.mark.usefixtures("without_the_original")
@pytest.mark.parametrize(
    ("dtype", "mode", "interpolation"),
    always(
        itertools.product(
            ["uint8", "int32", "float16", "bfloat16", "float64"],
            ["constant", "reflect", "wrap"],
            ["bilinear", "nearest"],
        ),
        lambda case: case[1:] == ("constant", "bilinear") or case == ("uint8", "reflect", "nearest"),
    ),
)
def test_any_type(dtype: str, mode: str, interpolation: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        transforms = make_transforms(3, "float64" if dtype == "float64" else "float32")
        is_exact = dtype in ("uint8", "int32")
        assert_transforms(transform(interpolation, mode, 4), pictures(SHAPE, dtype), transforms, is_exact)


@pytest.mark.slow
@pytest.mark.usefixtures("without_the_original")
def test_bytes_are_rounded_as_by_jax() -> None:
    assert_transforms(transform("bilinear", "constant", 9), pictures(SHAPE, "uint8"), make_transforms(3), exact=True)


@pytest.mark.slow
@pytest.mark.usefixtures("without_the_original")
def test_half_a_pixel_is_rounded_as_by_jax() -> None:
    transforms = np.tile(np.asarray([1, 0, 0.5, 0, 1, -0.5, 0, 0], "float32"), (3, 1))
    assert_transforms(transform("nearest"), pictures(SHAPE, "float32"), transforms)
    assert_transforms(transform("bilinear"), pictures(SHAPE, "uint8"), transforms, exact=True)


@functools.cache
def _programs(mode: str, interpolation: str) -> tuple[Any, Any]:
    f = transform(interpolation, mode)
    arguments = pictures((1, 7, 5, 3), "float32"), make_transforms(1)
    return tuple(lowered(f, *arguments, ours=ours).compile() for ours in (False, True))


# Sums of these are exact: coordinates must not be rounded in two ways, of which one is the next pixel.
factors = st.integers(-160, 160).map(lambda n: n / 4)
offsets = st.floats(-40, 40, width=32) | st.floats(width=32) | st.sampled_from([0.0, 0.5, 1e9, -3e9])
rows = st.tuples(factors, factors, offsets)


@pytest.mark.slow
@given(rows, rows)
def test_any_transform(x: _Row, y: _Row) -> None:
    _assert_equal_everywhere(x, y, "reflect", "bilinear")


@pytest.mark.slow
@settings(max_examples=50)
@given(rows, rows, st.sampled_from(MODES), st.sampled_from(ORDERS))
def test_any_transform_mode_and_order(x: _Row, y: _Row, mode: str, interpolation: str) -> None:
    _assert_equal_everywhere(x, y, mode, interpolation)


def _assert_equal_everywhere(x: _Row, y: _Row, mode: str, interpolation: str) -> None:
    own, ours = _programs(mode, interpolation)
    arguments = pictures((1, 7, 5, 3), "float32"), np.asarray([[*x, *y, 0, 0]], "float32")
    np.testing.assert_allclose(ours(*arguments), own(*arguments), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_what_is_no_affine_transform_is_computed_as_ever() -> None:
    transforms = make_transforms(3)
    transforms[:, 6:] = [[1e-3, 0], [0, -0.5], [0, 0]]
    assert_transforms(transform(), pictures(SHAPE, "float32"), transforms)


def test_pixels_that_are_not_finite() -> None:
    images = pictures(SHAPE, "float32")
    images[1, 2, 3, 1] = np.inf
    images[2, 3, 2, 0] = np.nan
    assert_transforms(transform(), images, make_transforms(3))


def assert_layer_makes_the_same(layer: Any, images: np.ndarray) -> None:
    def augment(images: Any) -> Any:
        state = [v.value for v in layer.non_trainable_variables]
        return layer.stateless_call([], state, images, training=True)[0]

    layer.build(images.shape)
    # In its place would be the original, which is patched away.
    assert "_map_coordinates" not in lowered(augment, images, ours=True).as_text()
    assert_same(augment, images)


@pytest.mark.slow
@pytest.mark.usefixtures("without_the_original")
def test_a_layer_makes_the_same_pictures() -> None:
    assert_layer_makes_the_same(keras.layers.RandomRotation(0.3, seed=3), pictures((3, 9, 8, 3), "float32"))


@pytest.mark.slow
@pytest.mark.usefixtures("without_the_original")
@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(keras.layers.RandomZoom(0.4, fill_mode="wrap", seed=3), id="zoom"),
        pytest.param(keras.layers.RandomTranslation(0.3, 0.4, "constant", seed=3), id="translation"),
        pytest.param(keras.layers.RandomShear(0.4, 0.3, seed=3), id="shear"),
        pytest.param(keras.layers.RandomRotation(0.3, data_format="channels_first", seed=3), id="channels first"),
        pytest.param(keras.layers.RandomRotation(0.3, dtype="mixed_bfloat16", seed=3), id="mixed precision"),
    ],
)
def test_layers_make_the_same_pictures(layer: Any) -> None:
    assert_layer_makes_the_same(layer, pictures((3, 9, 8, 3), "float32"))


@pytest.mark.slow
@pytest.mark.usefixtures("without_the_original")
def test_a_picture_alone() -> None:
    assert_transforms(transform(), pictures(SHAPE[1:], "float32"), make_transforms(1)[0])


@pytest.mark.slow
def test_in_a_loop_of_steps() -> None:
    def steps(images: Any, transforms: Any) -> Any:
        return jax.lax.scan(lambda carry, t: (transform()(carry, t), None), images, transforms)[0]

    assert_transforms(steps, pictures(SHAPE, "float32"), np.stack([make_transforms(3, seed=seed) for seed in range(3)]))


@pytest.mark.slow
def test_gradients_are_the_same() -> None:
    def loss(images: Any, transforms: Any) -> Any:
        return jnp.sum(jnp.sin(transform()(images, transforms)))

    assert_same(jax.grad(loss, (0, 1)), pictures(SHAPE, "float32"), make_transforms(3))


def test_coordinates_that_are_given_are_left_alone() -> None:
    def sample(images: Any, coordinates: Any) -> Any:
        return jax.vmap(lambda x, c: jax.scipy.ndimage.map_coordinates(x, c, 1))(images, coordinates)

    # Its arrays have more than four axes, some of one element: another lowering's.
    with mock.patch.object(unit_axes, "_MOST_AXES", 99):
        assert not differs(sample, pictures(SHAPE, "float32"), random((3, 3, *SHAPE[1:]), "float32", 2))


def test_another_function_of_the_same_shapes_is_left_alone() -> None:
    images, transforms = pictures(SHAPE, "float32"), make_transforms(3)
    with mock.patch("jax.scipy.ndimage.map_coordinates", lambda x, c, *_, **__: jax.jit(_nearly)(x, c)):
        jaxpr = jax.make_jaxpr(transform())(images, transforms)
    assert any(map(resampling.may_sample, jaxpr.jaxpr.eqns))
    assert resampling.resample(jaxpr) is jaxpr


def _nearly(image: jax.Array, coordinates: jax.Array) -> jax.Array:
    return jnp.sum(jnp.floor(coordinates), 0) + image


@pytest.mark.slow
@pytest.mark.usefixtures("without_the_original")
def test_when_xla_divides_the_batch() -> None:
    mesh = jax.make_mesh((2,), ("replica",), axis_types=(AxisType.Auto,), devices=jax.local_devices()[:2])
    sharding = NamedSharding(mesh, PartitionSpec("replica"))
    images, transforms = pictures((4, 7, 5, 3), "float32"), make_transforms(4)
    divided = jax.jit(backends.apply_passes("cpu", transform(), (), True), in_shardings=sharding)
    program = divided.lower(images, transforms).compile()
    expected, _ = both(transform(), images, transforms)
    found = program(*(jax.device_put(v, sharding) for v in (images, transforms)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert found.sharding.is_equivalent_to(sharding, 4)
    # No picture leaves its device: what is agreed upon is which branch to take.
    assert not re.search(r"(all-gather|all-to-all|collective-permute)(-start)?\(", str(program.as_text()))
