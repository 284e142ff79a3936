"""Steps of models with layers that Keras does not compile, and JAX can trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep._engine.keras.compiled_models import is_compiled


class OwnRotation(keras.layers.RandomRotation):
    """Stands for a class whose own part may be for the host."""


class OnHost(keras.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.supports_jit = False

    def call(self, inputs: Any) -> Any:
        return inputs


_LAYERS = {
    "rotation": lambda: keras.layers.RandomRotation(0.2, seed=1),
    "zoom": lambda: keras.layers.RandomZoom(0.2, seed=1),
    "translation": lambda: keras.layers.RandomTranslation(0.2, 0.2, seed=1),
    "shear": lambda: keras.layers.RandomShear(0.2, 0.2, seed=1),
    "perspective": lambda: keras.layers.RandomPerspective(seed=1),
}


def _model(*layers: keras.layers.Layer, **options: Any) -> Any:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((9, 7, 3)), *layers, keras.layers.Flatten(), keras.layers.Dense(2)])
    model.compile("sgd", "mse", **options)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("layer", _LAYERS.values(), ids=_LAYERS)
def test_layers_that_change_pictures_are_compiled(layer: Any) -> None:
    """They train as Keras trains them, operation by operation."""
    x, y = np.random.default_rng(0).random((8, 9, 7, 3), np.float32), np.ones((8, 2), np.float32)
    with ls.distribute.OneDeviceStrategy("/cpu:0").scope():
        ours = _model(layer())
    plain = _model(layer())
    assert is_compiled(ours) and not plain.jit_compile
    for model in (ours, plain):
        model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    for value, expected in zip(ours.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.filterwarnings("ignore:Model doesn't support `jit_compile=True`:UserWarning")
@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, True), ({"jit_compile": True}, True), ({"jit_compile": False}, False), ({"run_eagerly": True}, False)],
    ids=str,
)
def test_the_program_decides(options: dict[str, Any], expected: bool) -> None:
    with ls.distribute.MirroredStrategy().scope():
        model = _model(keras.layers.RandomZoom(0.1))
        assert is_compiled(model)
        model.compile("sgd", "mse", **options)
    assert is_compiled(model) is expected


def test_a_model_that_was_saved_is_compiled_again(tmp_path: Path) -> None:
    with ls.distribute.MirroredStrategy().scope():
        _model(keras.layers.RandomZoom(0.1)).save(tmp_path / "a.keras")
        loaded: Any = keras.saving.load_model(tmp_path / "a.keras")
        assert is_compiled(loaded)
    plain: Any = keras.saving.load_model(tmp_path / "a.keras")
    assert not plain.jit_compile and not plain.run_eagerly


@pytest.mark.parametrize("layer", [lambda: OwnRotation(0.1), OnHost, lambda: keras.layers.RandomCrop(4, 4)])
def test_other_layers_run_as_they_are(layer: Any) -> None:
    with ls.distribute.MirroredStrategy().scope():
        assert not is_compiled(_model(layer()))
