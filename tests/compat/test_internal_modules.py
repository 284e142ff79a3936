"""tensorflow.python: internal modules' public names, and what is said of the others."""

from __future__ import annotations

import importlib

import pytest

import lockstep.compat.tensorflow as tf

ROOT = "lockstep.compat.tensorflow.python"


@pytest.mark.parametrize(
    ("module", "name", "public"),
    [
        ("framework.ops", "convert_to_tensor", tf.convert_to_tensor),
        ("framework.dtypes", "int32", tf.int32),
        ("ops.math_ops", "reduce_mean", tf.reduce_mean),
        ("ops.array_ops", "where_v2", tf.where),
        ("data.ops.dataset_ops", "DatasetV2", tf.data.Dataset),
        ("data.ops.dataset_ops", "AUTOTUNE", tf.data.AUTOTUNE),
        ("keras", "layers", tf.keras.layers),
        ("keras.layers", "Dense", tf.keras.layers.Dense),
        ("keras.layers.core", "Dense", tf.keras.layers.Dense),
        ("keras.engine.training", "Model", tf.keras.Model),
        ("keras.optimizer_v2.adam", "Adam", tf.keras.optimizers.Adam),
        ("distribute.mirrored_strategy", "MirroredStrategy", tf.distribute.MirroredStrategy),
        ("platform.gfile", "GFile", tf.io.gfile.GFile),
    ],
)
def test_what_is_public_elsewhere_is_found(module: str, name: str, public: object) -> None:
    assert getattr(importlib.import_module(f"{ROOT}.{module}"), name) is public


def test_modules_are_attributes_of_their_packages() -> None:
    python = importlib.import_module(ROOT)
    assert python.framework.ops.convert_to_tensor is tf.convert_to_tensor
    assert "convert_to_tensor" not in dir(python) and "Graph" in dir(python.framework.ops)


@pytest.mark.parametrize("line", ["from {}.no_such import thing", "from {}.eager.core import _x"])
def test_what_is_internal_is_said_to_be(line: str) -> None:
    with pytest.raises(ImportError, match=r"is internal to TensorFlow.*Use a public name"):
        exec(line.format(ROOT), {})


def test_what_is_public_and_missing_has_its_own_advice() -> None:
    with pytest.raises(ImportError, match=r"tf\.RegisterGradient is not available"):
        exec(f"from {ROOT}.framework.ops import RegisterGradient", {})
