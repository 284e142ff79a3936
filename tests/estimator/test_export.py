"""Receivers, placeholders, outputs and signatures: what an exported Estimator takes and gives."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

from lockstep import saved_model
from lockstep._text import words
from lockstep.data import TensorSpec
from lockstep.data._example.features import FixedLenFeature, VarLenFeature
from lockstep.errors import ArgumentError
from lockstep.estimator import _export as export
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._model_fn.function import Data, ModelFunction
from lockstep.estimator._model_fn.records import MetricOp
from lockstep.estimator._model_fn.variables import Variables
from lockstep.saved_model import VocabularyIds
from tests.saved_model.test_text import example

ONE = np.ones(1, np.float32)
FEATURES = {"feature0": ONE, "feature1": jnp.ones(1), 42: ONE}
RECEIVER = {"example0": np.array(["test0"], object), "example1": ONE}


def test_receivers_take_tensors_by_name() -> None:
    receiver = export.ServingInputReceiver(FEATURES, RECEIVER)
    assert set(receiver.features) == {"feature0", "feature1", 42}
    assert set(receiver.receiver_tensors) == {"example0", "example1"}
    assert receiver.receiver_tensors_alternatives is None
    assert set(export.UnsupervisedInputReceiver(FEATURES, RECEIVER).features) == set(FEATURES)


def test_single_tensors_get_names() -> None:
    receiver = export.ServingInputReceiver(ONE, ONE, {"other": ONE})
    assert list(receiver.features) == ["feature"]
    assert list(receiver.receiver_tensors) == ["input"]
    assert list(receiver.receiver_tensors_alternatives or {}) == ["other"]
    assert list((receiver.receiver_tensors_alternatives or {})["other"]) == ["input"]


def test_a_tensor_receiver_keeps_its_feature_as_it_is() -> None:
    receiver = export.TensorServingInputReceiver(ONE, ONE)
    assert receiver.features is ONE
    assert list(receiver.receiver_tensors) == ["input"]


@pytest.mark.parametrize(
    ("features", "receiver", "message"),
    [
        (None, RECEIVER, "features must be defined"),
        ({42.2: ONE}, RECEIVER, "feature keys must be strings or ints: 42.2"),
        ({"feature1": [1]}, RECEIVER, "feature feature1 must be a Tensor, SparseTensor, or RaggedTensor"),
        ("not a tensor", RECEIVER, "feature feature must be a Tensor"),
        (FEATURES, None, "receiver_tensors must be defined"),
        (FEATURES, {1: ONE}, "receiver_tensor keys must be strings: 1"),
        (FEATURES, {"example1": [1]}, "receiver_tensor example1 must be a Tensor"),
        (FEATURES, "not a tensor", "receiver_tensor input must be a Tensor"),
    ],
)
def test_what_is_no_receiver(features: Any, receiver: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        export.ServingInputReceiver(features, receiver)
    with pytest.raises(ArgumentError, match=message):
        export.SupervisedInputReceiver(features, ONE, receiver)


def test_what_is_no_receiver_with_alternatives_labels_or_one_feature() -> None:
    with pytest.raises(ArgumentError, match="alternatives must be a dict"):
        export.ServingInputReceiver(ONE, ONE, [ONE])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match="receiver_tensors_alternative keys must be strings"):
        export.ServingInputReceiver(ONE, ONE, {"a": {1: ONE}})
    with pytest.raises(ArgumentError, match="label keys must be strings or ints"):
        export.SupervisedInputReceiver(ONE, {1.5: ONE}, ONE)
    with pytest.raises(ArgumentError, match="label label must be a Tensor"):
        export.SupervisedInputReceiver(ONE, 100, ONE)
    for features in (None, {"x": ONE}, [1]):
        with pytest.raises(ArgumentError, match="must be"):
            export.TensorServingInputReceiver(features, ONE)


def test_placeholders_outside_of_a_receiver_function_only_say_what_they_look_like() -> None:
    x = export.placeholder(np.float32, [None, 2], "x")
    assert (x.shape, x.dtype, x.name) == ((None, 2), np.float32, "x")
    assert export.placeholder("string").shape is None
    with pytest.raises(ArgumentError, match="has a value only inside of a receiver function"):
        jnp.asarray(x)


@pytest.mark.parametrize("size", [None, 7])
def test_raw_features_may_be_arrays_specifications_or_placeholders(size: int | None) -> None:
    features = {
        "array": np.zeros((3, 4), np.int64),
        "jax": jnp.zeros((3, 4)),
        "spec": TensorSpec([None, 2, 2], np.float32),
        "placeholder": export.placeholder(np.float32, [32]),
        "text": np.array(["hello"]),
        "scalar": np.float32(1),
    }
    receiver = export.build_raw_serving_input_receiver_fn(features, size)()
    assert isinstance(receiver, export.ServingInputReceiver)
    assert receiver.features == receiver.receiver_tensors
    shapes = {name: (value.shape, value.dtype.name) for name, value in receiver.features.items()}
    assert shapes == {
        "array": ((size, 4), "int64"),
        "jax": ((size, 4), "float32"),
        "spec": ((size, 2, 2), "float32"),
        "placeholder": ((size,), "float32"),
        "text": ((size,), "object"),
        "scalar": ((size,), "float32"),
    }
    inputs = export.receiver_of(export.build_raw_serving_input_receiver_fn(features, size)).inputs
    assert {name: (spec.shape, spec.dtype.name) for name, spec in inputs.items()} == shapes


def test_raw_features_without_a_shape_are_refused_when_they_are_exported() -> None:
    receiver_fn = export.build_raw_serving_input_receiver_fn({"x": export.placeholder(np.float32)})
    assert receiver_fn().receiver_tensors["x"].shape is None
    with pytest.raises(ArgumentError, match="needs a number of dimensions"):
        export.receiver_of(receiver_fn)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: export.build_raw_serving_input_receiver_fn([ONE]), "features are a dict"),  # pyright: ignore
        (lambda: export.build_raw_serving_input_receiver_fn({}), "features are a dict"),
        (
            lambda: export.build_raw_serving_input_receiver_fn({"x": [1]}),
            "features 'x' is an array, or a specification",
        ),
        (lambda: export.build_raw_serving_input_receiver_fn({"x": ONE}, 0), "default_batch_size is a number"),
        (lambda: export.build_parsing_serving_input_receiver_fn({}), "feature_spec describes"),
        (lambda: export.build_parsing_serving_input_receiver_fn({"x": ONE}), "described by FixedLenFeature"),
        (lambda: export.build_raw_supervised_input_receiver_fn({"a": ONE}, {"a": ONE}), "Found overlapping keys"),
        (lambda: export.receiver_of(None), "a function without arguments"),  # pyright: ignore
        (lambda: export.receiver_of(lambda: (ONE, ONE)), "returns a ServingInputReceiver"),
        (lambda: export.receiver_of(lambda: export.ServingInputReceiver(ONE, ONE)), "Received for 'input': a tensor"),
    ],
)
def test_wrong_receiver_functions(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_supervised_receivers() -> None:
    receiver = export.build_raw_supervised_input_receiver_fn({"a": ONE}, ONE)()
    assert list(receiver.receiver_tensors) == ["a", "label"]
    assert receiver.features["a"].shape == (None,)
    assert receiver.labels.shape == (None,)
    receiver = export.build_raw_supervised_input_receiver_fn(ONE, {"l": ONE}, 3)()
    assert list(receiver.receiver_tensors) == ["input", "l"]
    assert receiver.features.shape == (3,)


def test_a_parsing_receiver_outside_of_an_export() -> None:
    spec = {"a": VarLenFeature(np.int64), "b": FixedLenFeature([2], np.float32)}
    receiver = export.build_parsing_serving_input_receiver_fn(spec)()
    assert list(receiver.receiver_tensors) == ["examples"]
    assert receiver.features["a"].shape == (None, None)
    assert receiver.features["b"].shape == (None, 2)


OUTPUTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: export.PredictOutput({1: ONE}), "Prediction output key must be a string; got 1"),
    (lambda: export.PredictOutput({"a": 1.0}), "Prediction output value must be a Tensor; got 1.0"),
    (lambda: export.PredictOutput("x"), "Prediction output value must be a Tensor"),
    (lambda: export.ClassificationOutput(), "has scores, classes or both"),
    (lambda: export.ClassificationOutput(scores="x"), "Classification scores must be a float32 Tensor; got 'x'"),
    (lambda: export.ClassificationOutput(scores=np.ones(1, np.int32)), "Classification scores must be a float32"),
    (lambda: export.ClassificationOutput(classes=ONE), "Classification classes must be a string Tensor"),
    (lambda: export.ClassificationOutput(ONE, np.ones(1, np.int32)), "Classification classes must be a string Tensor"),
    (lambda: export.RegressionOutput(None), "Regression output value must be a float32 Tensor; got None"),
    (lambda: export.RegressionOutput(np.ones(1, np.int64)), "Regression output value must be a float32 Tensor"),
    (lambda: export.EvalOutput(loss="x"), "loss output value must be a Tensor; got 'x'"),
    (lambda: export.EvalOutput(ONE, {2: ONE}), "predictions output key must be a string; got 2"),
    (lambda: export.EvalOutput(ONE, ONE, {"acc": ONE}), "metrics/acc output value must be a Tensor, and its update"),
    (lambda: export.EvalOutput(ONE, ONE, {"acc": (ONE, "x")}), "metrics/acc output value must be a Tensor"),
    (lambda: export.ExportOutput().tensors(), "Derive from one of them"),
]


@pytest.mark.parametrize(("make", "message"), OUTPUTS)
def test_what_is_no_output(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_outputs_have_tensorflows_names() -> None:
    label = words(np.zeros(1, np.int32), ["a"])
    assert export.PredictOutput(ONE).outputs == {"output": ONE}
    assert set(export.PredictOutput({("head", "x"): ONE, "y": label}).outputs) == {"head/x", "y"}
    assert set(export.ClassificationOutput(ONE, label).tensors()) == {"scores", "classes"}
    assert set(export.ClassificationOutput(classes=label).tensors()) == {"classes"}
    assert export.RegressionOutput(ONE).tensors() == {"outputs": ONE}
    metrics = {"acc": (ONE, ONE), ("metrics_a", "b"): MetricOp(ONE, ONE, None), "mean": keras.metrics.Mean()}
    output = export.EvalOutput({"loss": ONE, "my": ONE}, {"predictions": ONE, "x": ONE}, metrics)
    assert set(output.loss or {}) == {"loss", "loss/my"}
    assert set(output.predictions or {}) == {"predictions", "predictions/x"}
    names = {f"{n}/{p}" for n in ("metrics/acc", "metrics_a/b", "metrics/mean") for p in ("value", "update_op")}
    assert set(output.metrics or {}) == names
    assert set(export.TrainOutput(loss=ONE).tensors()) == {"loss"}


def test_what_a_model_exports_by_default() -> None:
    predictions = export.PredictOutput(ONE)
    assert export.export_outputs_of(None, {"a": ONE})["serving_default"].tensors() == {"a": ONE}
    found = export.export_outputs_of({"mine": predictions}, None)
    assert found == {"mine": predictions, "serving_default": predictions}
    with pytest.raises(ArgumentError, match="none of them are specified as the default"):
        export.export_outputs_of({"a": predictions, "b": predictions}, None)
    for wrong in ([predictions], {"a": ONE}):
        with pytest.raises(ArgumentError, match="`export_outputs` must be dict"):
            export.export_outputs_of(wrong, None)


Values = dict[str, Any]
WEIGHTS = {"w": np.array([[1.0], [10.0]], np.float32)}


def _exported(tmp_path: Path, receiver_fn: Callable[[], Any], call: Callable[..., Any]) -> saved_model.LoadedModel:
    """Exports a function of variables and features, as Estimator does."""
    receiver = export.receiver_of(receiver_fn)
    found: list[Any] = []

    def look(*data: Any) -> None:
        found.append(call(WEIGHTS, *data))

    structs = {n: jax.ShapeDtypeStruct(tuple(s or 2 for s in i.shape), i.dtype) for n, i in receiver.inputs.items()}
    if any(i.dtype == object for i in receiver.inputs.values()):
        outputs = call.outputs  # pyright: ignore[reportFunctionMemberAccess]
    else:
        jax.eval_shape(lambda given: look(*receiver.feed.data(given)), structs)
        outputs = found[0]
    functions = export.signatures_of(export.export_outputs_of(outputs, None), receiver, call)
    saved_model.write(tmp_path / "e", functions, WEIGHTS)
    return saved_model.load(tmp_path / "e")


def _weighted(variables: Values, features: Any) -> Any:
    return {"mine": export.PredictOutput({"y": features["x"] @ variables["w"]})}


def test_what_a_receiver_function_computes_is_part_of_the_program(tmp_path: Path) -> None:
    def receiver_fn() -> export.ServingInputReceiver:
        pixels = export.placeholder(np.uint8, [None, 1, 2], "pixels")
        shift = export.placeholder(np.float32, [None], "shift")
        scaled = jnp.reshape(pixels.astype(np.float32) / 2, (-1, 2)) + shift[:, None]
        return export.ServingInputReceiver({"x": scaled}, {"pixels": pixels, "shift": shift})

    model = _exported(tmp_path, receiver_fn, _weighted)
    assert set(model.signatures) == {"mine", "serving_default"}
    found = model(pixels=np.array([[[2, 4]], [[0, 2]], [[1, 1]]], np.uint8), shift=[0.0, 1.0, 2.0])
    np.testing.assert_array_equal(found["y"], [[21], [21], [27.5]])


def test_a_receiver_function_that_needs_sizes_is_run_with_some(tmp_path: Path) -> None:
    """Only its first run: in the program the sizes stay open."""

    def receiver_fn() -> export.ServingInputReceiver:
        a, b = export.placeholder(np.float32, [None, None]), export.placeholder(np.float32, [None, None])
        return export.ServingInputReceiver({"x": (a + b)[:, :2]}, {"a": a, "b": b})

    model = _exported(tmp_path, receiver_fn, lambda v, f: {"s": export.PredictOutput(f["x"].sum(1))})
    np.testing.assert_array_equal(
        model(a=np.ones((3, 4), np.float32), b=np.ones((3, 4), np.float32))["output"], [4] * 3
    )


def test_a_receiver_function_that_changes_is_refused(tmp_path: Path) -> None:
    runs: list[int] = []

    def receiver_fn() -> export.ServingInputReceiver:
        runs.append(1)
        made = {str(i): export.placeholder(np.float32, [None]) for i in range(len(runs))}
        return export.ServingInputReceiver({"x": made["0"]}, made)

    receiver = export.receiver_of(receiver_fn)
    with pytest.raises(ArgumentError, match="must make the same placeholders in each call"):
        receiver.features({"0": ONE})


def test_placeholders_that_nobody_can_give_are_refused() -> None:
    def receiver_fn() -> export.ServingInputReceiver:
        given, other = export.placeholder(np.float32, [None]), export.placeholder(np.float32, [None], "rate")
        return export.ServingInputReceiver({"x": given * other}, {"given": given})

    with pytest.raises(ArgumentError, match="Received: rate, which is not among the receiver tensors"):
        export.receiver_of(receiver_fn)


SPEC = {"x": FixedLenFeature([2], np.float32), "word": VarLenFeature("string")}


def _classified(variables: Values, features: Any) -> Any:
    scores = features["x"] * variables["w"][0]
    found = features["word"].ids(VocabularyIds(["a", "b"])).max(1)
    classes = words(jnp.stack([jnp.zeros_like(found), found % 2], 1), ["no", "yes"])
    classification = export.ClassificationOutput(scores, classes)
    return {
        "serving_default": classification,
        "classification": classification,
        "regression": export.RegressionOutput(scores[:, 0]),
        "predict": export.PredictOutput({"scores": scores, "count": found}),
    }


_label = words(np.zeros(1, np.int32), ["no"])
_default = export.ClassificationOutput(ONE, _label)
_classified.outputs = {  # pyright: ignore[reportFunctionMemberAccess]
    "serving_default": _default,
    "classification": _default,
    "regression": export.RegressionOutput(ONE),
    "predict": export.PredictOutput(ONE),
}


@pytest.mark.slow
def test_signatures_of_serialised_examples(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lockstep"):
        model = _exported(tmp_path, export.build_parsing_serving_input_receiver_fn(SPEC), _classified)
    assert "Signatures INCLUDED in export for Classify: ['serving_default', 'classification']" in caplog.messages
    assert "Signatures INCLUDED in export for Regress: ['regression']" in caplog.messages
    assert "Signatures INCLUDED in export for Predict: ['predict']" in caplog.messages
    assert "Signatures INCLUDED in export for Train: None" in caplog.messages
    inputs = {name: list(signature.inputs) for name, signature in model.signatures.items()}
    assert inputs == {
        "serving_default": ["inputs"],
        "classification": ["inputs"],
        "regression": ["inputs"],
        "predict": ["examples"],
    }
    assert model.signatures["classification"].method_name == "tensorflow/serving/classify"
    # The default is the classification: one program for both.
    assert len(list((tmp_path / "e" / "programs").iterdir())) == 3
    examples = [example(x=[1.0, 2.0], word=[b"b"]), example(x=[0.0, 5.0], word=[b"a", b"?"]), example(x=[1.0, 1.0])]
    found = model(inputs=examples)
    np.testing.assert_array_equal(found["scores"], [[1, 2], [0, 5], [1, 1]])
    assert found["classes"].tolist() == [[b"no", b"yes"], [b"no", b"no"], [b"no", b"yes"]]
    np.testing.assert_array_equal(model.signatures["regression"](inputs=examples)["outputs"], [1, 0, 1])
    np.testing.assert_array_equal(model.signatures["predict"](examples=examples)["count"], [1, 0, -1])


def test_a_classification_of_raw_features(tmp_path: Path) -> None:
    """TensorFlow leaves it out, because its server takes serialised examples for classifications only."""

    def call(variables: Values, features: Any) -> Any:
        return {"serving_default": export.ClassificationOutput(features["x"] @ variables["w"])}

    model = _exported(tmp_path, export.build_raw_serving_input_receiver_fn({"x": np.zeros((1, 2), np.float32)}), call)
    np.testing.assert_array_equal(model(x=np.ones((3, 2), np.float32))["scores"], [[11]] * 3)


@pytest.mark.slow
def test_alternatives_make_further_signatures(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def receiver_fn() -> export.ServingInputReceiver:
        examples = export.placeholder("string", [None])
        features = export.parse_example(examples, SPEC)
        other = {"raw": features, "half": {"x": features["x"]}, "computed": features["x"] * 2}
        return export.ServingInputReceiver(features, {"examples": examples}, other)

    with caplog.at_level(logging.INFO, "lockstep"):
        model = _exported(tmp_path, receiver_fn, _classified)
    names = ["serving_default", "classification", "regression", "predict"]
    assert set(model.signatures) == {*names, *(f"raw:{name}" for name in names)}
    found = model.signatures["raw:predict"](x=np.ones((2, 2), np.float32), word=[["a", ""], ["a", "b"]])
    np.testing.assert_array_equal(found["count"], [0, 1])
    np.testing.assert_array_equal(found["scores"], np.ones((2, 2)))
    why = [message for message in caplog.messages if message.startswith("'half:predict' : ")]
    assert "Received: word, which is not among the receiver tensors" in why[0]
    assert any(message.startswith("'computed:predict' : ") for message in caplog.messages)


def test_text_is_parsed_once() -> None:
    def receiver_fn() -> export.ServingInputReceiver:
        examples = export.placeholder("string", [None])
        features = {**export.parse_example(examples, SPEC), **examples.parse_example(SPEC)}
        return export.ServingInputReceiver(features, {"examples": examples})

    with pytest.raises(ArgumentError, match="parses each placeholder of text once"):
        export.receiver_of(receiver_fn)


def test_a_single_feature_reaches_the_model_as_it_is(tmp_path: Path) -> None:
    def receiver_fn() -> export.TensorServingInputReceiver:
        x = export.placeholder(np.float32, [None, 2])
        return export.TensorServingInputReceiver(x, x)

    model = _exported(tmp_path, receiver_fn, lambda v, f: {"s": export.PredictOutput(f @ v["w"])})
    np.testing.assert_array_equal(model(input=np.ones((2, 2), np.float32))["output"], [[11], [11]])


def test_an_evaluation(tmp_path: Path) -> None:
    receiver = export.receiver_of(
        export.build_raw_supervised_input_receiver_fn({"x": np.zeros((1, 2), np.float32)}, ONE)
    )

    def call(variables: Values, features: Any, labels: Any) -> Any:
        predictions = (features["x"] @ variables["w"])[:, 0]
        error = jnp.square(predictions - labels).mean()
        return {"eval": export.EvalOutput(error, predictions, {"mse": (error, error)})}

    kinds = {"eval": export.EvalOutput(ONE)}
    functions = export.signatures_of(kinds, receiver, call, ("eval",))
    saved_model.write(tmp_path / "e", functions, WEIGHTS)
    found = saved_model.load(tmp_path / "e", "eval")(x=np.ones((2, 2), np.float32), label=[11.0, 9.0])
    assert set(found) == {"loss", "predictions", "metrics/mse/value", "metrics/mse/update_op"}
    assert found["loss"] == found["metrics/mse/value"] == 2


def _model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
    hidden = keras.layers.Dense(4, "relu")(features["x"])
    hidden = keras.layers.BatchNormalization()(hidden, training=mode == "train")
    hidden = keras.layers.Dropout(0.5)(hidden, training=mode == "train")
    logits = keras.layers.Dense(2)(hidden)
    return EstimatorSpec(mode, predictions={"p": jax.nn.softmax(logits), "class": jnp.argmax(logits, -1)})


@pytest.mark.slow
def test_a_model_fn(tmp_path: Path) -> None:
    """As Estimator exports one: its variables are learnt in a first call, and then given."""
    receiver = export.receiver_of(export.build_raw_serving_input_receiver_fn({"x": np.zeros((1, 3), np.float32)}))
    model_fn = ModelFunction(_model_fn, "infer", Variables(seed=1), 1, frozenset())
    specs: list[EstimatorSpec] = []

    def call(values: Values, features: Any) -> Any:
        made = model_fn(values, Data(features))
        model_fn.finish(made)
        specs.append(made.spec)
        return made.spec.export_outputs

    jax.eval_shape(lambda x: call({}, receiver.features({"x": x})) and None, jax.ShapeDtypeStruct((2, 3), np.float32))
    variables = model_fn.variables.initial_values()
    saved_model.write(tmp_path / "e", export.signatures_of(specs[0].export_outputs or {}, receiver, call), variables)
    model = saved_model.load(tmp_path / "e")
    assert set(model.variables) == set(variables)
    for count in (1, 7, 1000):
        x = np.random.default_rng(count).normal(size=(count, 3)).astype(np.float32)
        expected = jax.jit(lambda v, x: call(v, {"x": x})["serving_default"].tensors())(variables, x)
        found = model(x=x)
        np.testing.assert_allclose(found["p"], expected["p"], atol=1e-6)
        np.testing.assert_array_equal(found["class"], expected["class"])
