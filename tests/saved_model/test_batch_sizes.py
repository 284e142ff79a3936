"""Programs for any number of examples: of layers, of code that looks at that number, of code that is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

from lockstep import saved_model
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.saved_model import SignatureFunction
from tests.saved_model.models import of_keras, spec

_LAYERS: dict[str, tuple[tuple[int, ...], Callable[[], list[keras.Layer]]]] = {
    "convolutions": (
        (8, 8, 3),
        lambda: [
            keras.layers.Conv2D(4, 3, padding="same", strides=2),
            keras.layers.BatchNormalization(),
            keras.layers.DepthwiseConv2D(2),
            keras.layers.MaxPooling2D(2, padding="same"),
            keras.layers.Dropout(0.5),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ],
    ),
    "pictures": (
        (6, 6, 3),
        lambda: [
            keras.layers.Rescaling(1 / 255),
            keras.layers.RandomFlip(),
            keras.layers.RandomRotation(0.1),
            keras.layers.Resizing(5, 4),
            keras.layers.Conv2DTranspose(2, 2, strides=2),
            keras.layers.GroupNormalization(2),
            keras.layers.GlobalAveragePooling2D(),
        ],
    ),
    "sequences": (
        (5, 3),
        lambda: [
            keras.layers.Masking(),
            keras.layers.Bidirectional(keras.layers.LSTM(3, return_sequences=True)),
            keras.layers.LayerNormalization(),
            keras.layers.TimeDistributed(keras.layers.Dense(2)),
        ],
    ),
    "shapes": (
        (4, 6),
        lambda: [
            keras.layers.Reshape((2, -1)),
            keras.layers.Permute((2, 1)),
            keras.layers.Conv1D(3, 2, padding="causal"),
            keras.layers.AveragePooling1D(2),
            keras.layers.EinsumDense("abc,cd->abd", (None, 2), bias_axes="d"),
            keras.layers.Flatten(),
            keras.layers.RepeatVector(2),
            keras.layers.Softmax(),
        ],
    ),
}


def _check(tmp_path: Path, model: keras.Model, make: Callable[[int], np.ndarray]) -> None:
    function, variables = of_keras(model)
    saved_model.write(tmp_path / "e", {"serving_default": function}, variables)
    loaded = saved_model.load(tmp_path / "e")
    for count in (1, 7):
        x = make(count)
        expected = jax.jit(function.function)(variables, {"x": x})["output"]
        np.testing.assert_allclose(loaded(x=x)["output"], expected, atol=1e-6, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", _LAYERS)
def test_layers(tmp_path: Path, name: str) -> None:
    shape, layers = _LAYERS[name]
    model = keras.Sequential([keras.Input(shape), *layers()])
    _check(tmp_path, model, lambda n: np.random.default_rng(n).normal(size=(n, *shape)).astype(np.float32))


@pytest.mark.slow
def test_attention_over_embeddings(tmp_path: Path) -> None:
    ids = keras.Input((6,), dtype="int32")
    embedded = keras.layers.Embedding(9, 8, mask_zero=True)(ids)
    attended = keras.layers.MultiHeadAttention(2, 4)(embedded, embedded, use_causal_mask=True)
    model = keras.Model(ids, keras.layers.GlobalAveragePooling1D()(attended))
    _check(tmp_path, model, lambda n: np.random.default_rng(n).integers(0, 9, (n, 6)).astype(np.int32))


def _exported(tmp_path: Path, function: Callable[[Any], Any], *shape: int | None) -> saved_model.LoadedModel:
    signature = SignatureFunction(lambda v, i: {"y": function(i["x"])}, {"x": spec(*shape)})
    saved_model.write(tmp_path / "e", {"serving_default": signature}, {})
    return saved_model.load(tmp_path / "e")


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x - x.mean(0),
        lambda x: x / x.shape[0],
        lambda x: x + jnp.arange(x.shape[0])[:, None],
        lambda x: jnp.zeros(x.shape[0]),
        lambda x: x.sum(),
        lambda x: x[: x.shape[0] // 2 + 1],
        lambda x: x[::-1],
        lambda x: x.reshape(-1),
    ],
    ids=["mean", "count", "place", "zeros", "sum", "half", "reversed", "joined"],
)
def test_what_looks_at_all_examples_is_the_same_function(tmp_path: Path, function: Callable[[Any], Any]) -> None:
    model = _exported(tmp_path, function, None, 2)
    for count in (1, 2, 7):
        x = np.random.default_rng(count).normal(size=(count, 2)).astype(np.float32)
        np.testing.assert_allclose(model(x=x)["y"], function(jnp.asarray(x)), rtol=1e-6, atol=1e-6)


def test_one_example_may_be_another_case_than_more(tmp_path: Path) -> None:
    model = _exported(tmp_path, lambda x: x - x.mean(0) if x.shape[0] > 1 else x, None, 2)
    one, three = np.ones((1, 2), np.float32), np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(model(x=one)["y"], one)
    np.testing.assert_array_equal(model(x=three)["y"], 0 * three)
    description = json.loads((tmp_path / "e" / "saved_model.json").read_text())
    programs = description["signatures"]["serving_default"]["programs"]
    assert [(p["least"], p["most"]) for p in programs] == [(1, 1), (2, None)]


@pytest.mark.parametrize(
    "function",
    [lambda x: x * int(x.shape[0]), lambda x: jnp.stack([r * 2 for r in x]), lambda x: x * np.ones((x.shape[0], 1))],
    ids=["int", "loop", "numpy"],
)
def test_what_needs_the_number_of_examples_is_refused_with_advice(
    tmp_path: Path, function: Callable[[Any], Any]
) -> None:
    with pytest.raises(UnsupportedError, match="without knowing their number") as caught:
        _exported(tmp_path, function, None, 2)
    assert "default_batch_size=n" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_function_is_the_functions_own(tmp_path: Path) -> None:
    def broken(x: Any) -> Any:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        _exported(tmp_path, broken, None, 2)
    with pytest.raises(TypeError, match="dot_general requires contracting dimensions"):
        _exported(tmp_path, lambda x: x @ jnp.ones((3, 3)), None, 2)


def test_open_lengths(tmp_path: Path) -> None:
    model = _exported(tmp_path, lambda x: x.sum(1), None, None)
    for count, length in ((1, 1), (2, 5), (7, 2)):
        x = np.ones((count, length), np.float32)
        np.testing.assert_array_equal(model(x=x)["y"], np.full(count, length, np.float32))
    with pytest.raises(ArgumentError, match=r"where . is at least 1"):
        model(x=np.ones((2, 0), np.float32))


def test_open_lengths_that_belong_together(tmp_path: Path) -> None:
    inputs = {"tokens": spec(None, None), "mask": spec(None, None), "x": spec(None, 2)}
    masked = SignatureFunction(lambda v, i: {"y": (i["tokens"] * i["mask"]).sum(1) + i["x"].sum(1)}, inputs)
    saved_model.write(tmp_path / "e", {"serving_default": masked}, {})
    model = saved_model.load(tmp_path / "e")
    ones = np.ones((2, 5), np.float32)
    np.testing.assert_array_equal(model(tokens=ones, mask=ones, x=ones[:, :2])["y"], [7, 7])
    with pytest.raises(ArgumentError, match=r"of the same length. Received: shape \[2, 5\] of 'tokens' and \[2, 4\]"):
        model(tokens=ones, mask=ones[:, :4], x=ones[:, :2])


def test_an_input_without_a_known_rank_is_refused(tmp_path: Path) -> None:
    class Unknown:
        shape = None
        dtype = np.float32

    with pytest.raises(ArgumentError, match=r"needs a number of dimensions. Received: 'x'"):
        saved_model.write(tmp_path / "e", {"s": SignatureFunction(lambda v, i: {}, {"x": Unknown()})}, {})


def test_a_platform_that_cannot_run_it_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jax import export

    theirs = export.export

    def without_tpu(function: Any, *, platforms: Any) -> Any:
        if "tpu" in platforms:
            raise NotImplementedError("no such operation on tpu")
        return theirs(function, platforms=platforms)

    monkeypatch.setattr("jax.export.export", without_tpu)
    _exported(tmp_path, lambda x: x * 2, None)
    description = json.loads((tmp_path / "e" / "saved_model.json").read_text())
    program = description["signatures"]["serving_default"]["programs"][0]
    assert program["platforms"] == ["cpu", "cuda"]
    assert program["left_out"] == {"tpu": "NotImplementedError: no such operation on tpu"}
