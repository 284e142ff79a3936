"""A compiled Keras model as an Estimator."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Mapping
from typing import Any

import keras
from keras.src.trainers.compile_utils import CompileLoss, CompileMetrics

from lockstep._types import Model, PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._estimator import Estimator
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._run_config import RunConfig


def model_to_estimator(
    keras_model: Model | None = None,
    keras_model_path: str | os.PathLike[str] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    model_dir: str | os.PathLike[str] | None = None,
    config: RunConfig | None = None,
    checkpoint_format: str = "checkpoint",
    metric_names_map: Mapping[str, str] | None = None,
    export_outputs: Mapping[str, Any] | None = None,
) -> Estimator:
    """Returns an Estimator of a compiled Keras model, starting from its weights.

    The model itself does not change: the Estimator's variables are in its checkpoints.

    Args:
        keras_model: The model; or
        keras_model_path: A file of `model.save`.
        custom_objects: For loading the file.
        model_dir: See `Estimator`.
        config: See `Estimator`.
        checkpoint_format: "checkpoint" or "saver", for TensorFlow's sake: there is one format.
        metric_names_map: Other names for metrics.
        export_outputs: `EstimatorSpec.export_outputs`, in place of all outputs.

    Raises:
        ArgumentError: If no model, or both are given, or the model is not compiled, or neither built nor
            restorable from its configuration.

    Source: tf.keras.estimator.model_to_estimator.
    """
    if (keras_model is None) == (keras_model_path is None):
        raise ArgumentError("Exactly one of keras_model and keras_model_path must be given. Received: none, or both.")
    if checkpoint_format not in ("checkpoint", "saver"):
        raise ArgumentError(f'checkpoint_format must be "checkpoint" or "saver". Received: {checkpoint_format!r}.')
    if keras_model is None:
        keras_model = keras.saving.load_model(os.fspath(keras_model_path or ""), custom_objects=custom_objects)
    if not getattr(keras_model, "compiled", False):
        raise ArgumentError(
            f"The Keras model must be compiled: the Estimator needs its loss and optimizer. Received: {keras_model!r}. "
            "Call model.compile(optimizer, loss) first."
        )
    model_fn = _model_fn(keras_model, dict(metric_names_map or {}), export_outputs)
    # The model's own weights are those to begin with, which can be exported before any training.
    setattr(model_fn, "has_weights", True)  # noqa: B010
    return Estimator(model_fn, model_dir=model_dir, config=config)


def _model_fn(model: Model, names: dict[str, str], export_outputs: Mapping[str, Any] | None) -> Callable[..., Any]:
    from lockstep.estimator.train import minimize

    # Read here, as plain values: in a model_fn an optimizer's variables, such as its learning rate, are tracers.
    compiled = model.get_compile_config()

    def model_fn(features: PyTree, labels: PyTree, mode: str) -> EstimatorSpec:
        this = _model_of_call(model, compiled)
        features, weights = _split_weights(features)
        inputs = features
        # A single feature fits a model of one input under any name, as dicts from input_fns have names of their own.
        if isinstance(features, dict) and len(features) == 1 and len(getattr(this, "inputs", None) or [0]) == 1:
            inputs = next(iter(features.values()))
        outputs = this(inputs, training=mode == ModeKeys.TRAIN)
        predictions = _predictions(this, outputs)
        labels = _labels_of(labels, predictions, outputs)
        if mode == ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions=predictions, export_outputs=export_outputs)
        with _fresh_loss_averages(this):
            is_training = mode == ModeKeys.TRAIN
            loss = this.compute_loss(inputs, labels, outputs, sample_weight=weights, training=is_training)
        if mode == ModeKeys.TRAIN:
            # The optimizer's rule is used, with slots of the Estimator's.
            train_op = minimize(loss, model.optimizer, var_list=this.trainable_variables)
            return EstimatorSpec(mode, predictions=predictions, loss=loss, train_op=train_op)
        metrics = _metrics(compiled, this, labels, outputs, weights)
        if names:
            metrics = _rename(metrics, names)
        return EstimatorSpec(mode, predictions=predictions, loss=loss, eval_metric_ops=metrics)

    return model_fn


def _model_of_call(model: Model, compiled: dict[str, Any]) -> Any:
    """Returns the model itself if it is built, else this call's copy, whose variables the call creates."""
    # Its weights are the first values: the scope registers variables from outside with the values that they have.
    if model.built and model.weights:
        return model
    try:
        fresh = type(model).from_config(model.get_config())
        fresh.compile_from_config(compiled)
    except Exception as error:
        raise ArgumentError(
            f"A Keras model must be built, or one that can be made from its configuration. Received: {model!r} "
            f"({error}). Call it on a batch first."
        ) from error
    return fresh


def _predictions(model: Model, outputs: PyTree) -> dict[str, Any]:
    """Returns the outputs by the names of their layers, as TensorFlow does; a subclass of Model has none."""
    if isinstance(outputs, dict):
        return outputs
    flat = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if isinstance(model, keras.Sequential):
        names = [model.layers[-1].name]
    else:
        names = getattr(model, "output_names", None) or [f"output_{i}" for i in range(1, len(flat) + 1)]
    return dict(zip(names, flat, strict=True))


@contextlib.contextmanager
def _fresh_loss_averages(model: Model) -> Generator[None]:
    """Gives Keras new averages of the outputs' losses, within the context: they belong to this call."""
    # The model's own are variables from outside, which would become ones of the model_fn and lie in checkpoints.
    original = model._compile_loss
    if original is not None:
        names = original.output_names
        model._compile_loss = CompileLoss(original._user_loss, original._user_loss_weights, output_names=names)
    try:
        yield
    finally:
        model._compile_loss = original


def _metrics(
    compiled: dict[str, Any], model: Model, labels: PyTree, outputs: PyTree, weights: PyTree
) -> dict[str, Any]:
    """Returns new copies of the compiled metrics, whose counts belong to this evaluation."""
    # Deserialized anew: those of the model were compiled with variables of its own.
    metric_lists = [
        keras.saving.deserialize_keras_object(compiled.get(kind)) for kind in ("metrics", "weighted_metrics")
    ]
    if not any(metric_lists):
        return {}
    metrics: Any = CompileMetrics(*metric_lists, output_names=getattr(model, "output_names", None))
    metrics.update_state(labels, outputs, sample_weight=weights)
    # Named as `fit` names them: with several outputs, `output_metric`. Keras' own `metrics` drops the outputs' names,
    # which TensorFlow's results carry.
    by_name: dict[str, Any] = {}
    for group in filter(None, [*metrics._flat_metrics, *metrics._flat_weighted_metrics]):
        for metric in group.metrics:
            name = f"{group.output_name}_{metric.name}" if group.output_name else str(metric.name)
            by_name[name] = metric
    return by_name


def _rename(metrics: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    unknown, extra = sorted(set(metrics) - set(names)), sorted(set(names) - set(metrics))
    if unknown or extra:
        raise ArgumentError(
            f"Invalid `metric_names_map`: it has a name for each metric, and no others. Received: {dict(names)}; "
            f"metrics without a name are {unknown}, and there are no metrics {extra}."
        )
    return {names[name]: metric for name, metric in metrics.items()}


def _split_weights(features: PyTree) -> tuple[Any, Any]:
    """Returns the features, and the weights of examples, which TensorFlow takes beside them in a dict."""
    if isinstance(features, dict) and set(features) == {"features", "sample_weights"}:
        return features["features"], features["sample_weights"]
    return features, None


def _labels_of(labels: PyTree, predictions: Mapping[str, Any], outputs: PyTree) -> Any:
    """Returns labels in the structure of the outputs: a dict of them has the outputs' names."""
    if not isinstance(labels, dict) or isinstance(outputs, dict) or set(labels) != set(predictions):
        # One label for one output needs no name, as one feature for one input needs none.
        is_one = isinstance(labels, dict) and len(labels) == 1 and not isinstance(outputs, (dict, list, tuple))
        return next(iter(labels.values())) if is_one else labels
    ordered = [labels[name] for name in predictions]
    return ordered if isinstance(outputs, (list, tuple)) else ordered[0]
