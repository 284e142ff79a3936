"""Exports of an Estimator, and exporters in train_and_evaluate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep import estimator, saved_model
from lockstep.data import Dataset
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator import export
from tests.estimator.small import data, input_fn, line, model_fn

RECEIVER = export.build_raw_serving_input_receiver_fn({"x": np.zeros((1, 1), np.float32)})


def predict_classes(made: estimator.Estimator, rows: int) -> dict[str, np.ndarray]:
    found = list(made.predict(lambda: Dataset.from_tensor_slices(data(rows)).batch(rows)))
    return {key: np.stack([f[key] for f in found]) for key in found[0]}


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_an_export_predicts_the_same(tmp_path: Path, rows: int) -> None:
    made = line(tmp_path).train(input_fn(), steps=3)
    path = made.export_saved_model(tmp_path / "export", RECEIVER)
    assert isinstance(path, bytes) and os.path.basename(path).isdigit()
    loaded = saved_model.load(path)
    expected = predict_classes(made, rows)
    found = loaded(x=data(rows)[0]["x"])
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-6, atol=1e-6)


def test_an_earlier_checkpoint(tmp_path: Path) -> None:
    made = line(tmp_path).train(input_fn(), steps=3)
    first = str(tmp_path / "model.ckpt-0")
    path = made.export_saved_model(tmp_path / "export", RECEIVER, checkpoint_path=first)
    variables = saved_model.load(path).variables
    assert int(variables["global_step"]) == 0


def test_preprocessing_in_the_receiver_is_exported(tmp_path: Path) -> None:
    def receiver() -> Any:
        text = export.placeholder("int32", [None], name="number")
        return export.ServingInputReceiver({"x": text[:, None].astype("float32") / 10}, {"number": text})

    # With some initial weights a sum of two numbers is next to zero, where no rounding is small.
    made = line(tmp_path, estimator.RunConfig(tf_random_seed=1)).train(input_fn(), steps=1)
    found = saved_model.load(made.export_saved_model(tmp_path / "export", receiver))(number=np.array([5, -5], np.int32))
    by_hand = list(made.predict(lambda: Dataset.from_tensor_slices({"x": np.float32([[0.5], [-0.5]])}).batch(2)))
    np.testing.assert_allclose(found["y"], [p["y"] for p in by_hand], rtol=1e-6)


def test_evaluation_can_be_exported(tmp_path: Path) -> None:
    made = line(tmp_path).train(input_fn(), steps=1)
    spec = {"x": np.zeros((1, 1), np.float32)}
    labels = np.zeros((1, 1), np.float32)
    receivers = {
        "infer": RECEIVER,
        "eval": estimator.experimental.build_raw_supervised_input_receiver_fn(spec, labels),
    }
    path = made.experimental_export_all_saved_models(tmp_path / "export", receivers)
    assert saved_model.load(path).signatures.keys() == {"serving_default"}
    assert saved_model.load(path, tags="eval").signatures.keys() == {"eval"}


def test_training_cannot_be_exported(tmp_path: Path) -> None:
    made = line(tmp_path).train(input_fn(), steps=1)
    with pytest.raises(UnsupportedError, match="does not train"):
        made.export_saved_model(tmp_path / "export", RECEIVER, experimental_mode="train")


def test_an_export_needs_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="Couldn't find trained model at"):
        line(tmp_path).export_saved_model(tmp_path / "export", RECEIVER)


@pytest.mark.slow
def test_the_exporters_in_train_and_evaluate(tmp_path: Path) -> None:
    made = line(tmp_path, estimator.RunConfig(save_checkpoints_steps=10))
    exporters = [
        estimator.LatestExporter("latest", RECEIVER, exports_to_keep=2),
        estimator.FinalExporter("final", RECEIVER),
        estimator.BestExporter(serving_input_receiver_fn=RECEIVER),
    ]
    spec = estimator.EvalSpec(input_fn(8), steps=None, throttle_secs=0, exporters=exporters)
    metrics, exports = estimator.train_and_evaluate(made, estimator.TrainSpec(input_fn(160), max_steps=35), spec)
    assert metrics is not None and exports is not None
    kept = {name: sorted(os.listdir(tmp_path / "export" / name)) for name in ("latest", "final")}
    assert (len(kept["latest"]), len(kept["final"])) == (2, 1)
    assert os.path.basename(exports[1]).decode() == kept["final"][0]
    expected = predict_classes(made, 3)["y"]
    np.testing.assert_allclose(saved_model.load(exports[1])(x=data(3)[0]["x"])["y"], expected, rtol=1e-6)


def test_export_outputs_are_signatures(tmp_path: Path) -> None:
    def with_outputs(features: Any, labels: Any, mode: str) -> Any:
        spec = model_fn(features, labels, mode, {})
        if mode != estimator.ModeKeys.PREDICT:
            return spec
        outputs = {
            "serving_default": export.PredictOutput(spec.predictions),
            "regression": export.RegressionOutput(spec.predictions["y"]),
        }
        return estimator.EstimatorSpec(mode, predictions=spec.predictions, export_outputs=outputs)

    made = estimator.Estimator(with_outputs, str(tmp_path)).train(input_fn(), steps=1)
    loaded = saved_model.load(made.export_saved_model(tmp_path / "export", RECEIVER))
    assert set(loaded.signatures) == {"serving_default", "regression"}
    x = data(4)[0]["x"]
    np.testing.assert_allclose(loaded.signatures["regression"](x=x)["outputs"], loaded(x=x)["y"], rtol=1e-6)
