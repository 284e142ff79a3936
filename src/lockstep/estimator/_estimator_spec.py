"""EstimatorSpec: the result of a model_fn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax
import keras
import numpy as np

from lockstep._text import Words, is_text
from lockstep._types import Metric, PyTree, Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator import _checks
from lockstep.estimator._mode_keys import MODES, ModeKeys
from lockstep.estimator._model_fn.records import GroupOp, MetricOp, group
from lockstep.estimator._scaffold import Scaffold

DEFAULT_SIGNATURE = "serving_default"
# Names that evaluate() gives results of its own.
_RESERVED = ("loss", "global_step")


class _EstimatorSpec(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: GroupOp | None
    eval_metric_ops: dict[str, Any]
    export_outputs: dict[str, Any] | None
    training_chief_hooks: tuple[Any, ...]
    training_hooks: tuple[Any, ...]
    scaffold: Scaffold
    evaluation_hooks: tuple[Any, ...]
    prediction_hooks: tuple[Any, ...]


class EstimatorSpec(_EstimatorSpec):
    """The result of a model_fn. Training needs `loss` and `train_op`, evaluation `loss`, prediction `predictions`.

    Args:
        mode: The mode that the model_fn was called for, of `ModeKeys`.
        predictions: A tensor, or a dict of tensors, with a row for each example. Text may be among them.
        loss: One number, of shape () or (1,).
        train_op: The result of an optimizer's minimize or apply_gradients, or a tf.group of them.
        eval_metric_ops: Results of `lockstep.estimator.metrics`, keras.metrics.Metric objects that were updated, or
            pairs of value and update, by name.
        export_outputs: `lockstep.estimator.export.ExportOutput`s by the names of their signatures. One of several must
            be "serving_default". Default: all predictions.
        training_chief_hooks: `SessionRunHook`s for the chief while it trains.
        training_hooks: `SessionRunHook`s for every task that trains.
        scaffold: A `Scaffold`.
        evaluation_hooks: `SessionRunHook`s while it evaluates.
        prediction_hooks: `SessionRunHook`s while it predicts.

    Raises:
        ArgumentError: If a value that the mode needs is missing, or of another kind.

    Source: tf.estimator.EstimatorSpec.
    """

    __slots__ = ()

    def __new__(
        cls,
        mode: str,
        predictions: PyTree | None = None,
        loss: Tensor | None = None,
        train_op: object | None = None,
        eval_metric_ops: Mapping[str, Any] | None = None,
        export_outputs: Mapping[str, Any] | None = None,
        training_chief_hooks: Iterable[Any] | None = None,
        training_hooks: Iterable[Any] | None = None,
        scaffold: Scaffold | None = None,
        evaluation_hooks: Iterable[Any] | None = None,
        prediction_hooks: Iterable[Any] | None = None,
    ) -> EstimatorSpec:
        """Checks and makes one."""
        if mode not in MODES:
            raise ArgumentError(f"mode must be the one that the model_fn was called with. Received: {mode!r}.")
        checked = _predictions(predictions, mode)
        return super().__new__(
            cls,
            mode=mode,
            predictions=checked,
            loss=_loss(loss, mode),
            train_op=_train_op(train_op, mode),
            eval_metric_ops=_metrics(eval_metric_ops, mode),
            export_outputs=_export_outputs(export_outputs, checked, mode),
            training_chief_hooks=_checks.hooks(training_chief_hooks, "training_chief_hooks"),
            training_hooks=_checks.hooks(training_hooks, "training_hooks"),
            scaffold=_scaffold(scaffold),
            evaluation_hooks=_checks.hooks(evaluation_hooks, "evaluation_hooks"),
            prediction_hooks=_checks.hooks(prediction_hooks, "prediction_hooks"),
        )

    def _replace(self, **kwargs: Any) -> EstimatorSpec:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns a copy with other values; the mode stays.

        Raises:
            ArgumentError: There is no such field, or the mode would change.
        """
        unknown = [name for name in kwargs if name not in self._fields]
        if unknown or kwargs.get("mode", self.mode) != self.mode:
            raise ArgumentError(
                f"An EstimatorSpec of mode {self.mode!r} has {', '.join(self._fields)}, and keeps its mode. Received: "
                f"{kwargs!r}."
            )
        return EstimatorSpec(**{**self._asdict(), **kwargs})


def _loss(loss: Tensor, mode: str) -> Any:
    if loss is None:
        if mode != ModeKeys.PREDICT:
            raise ArgumentError(f"Missing loss: mode {mode!r} needs one. Pass loss= to EstimatorSpec.")
        return None
    array = _tensor(loss, "loss")
    if array.size != 1:
        raise ArgumentError(
            f"Loss must be scalar. Received: shape {tuple(array.shape)}. Take tf.reduce_mean of it, or divide its sum "
            "by the size of the batch."
        )
    return array.reshape(()) if array.shape else array


def _train_op(train_op: object, mode: str) -> GroupOp | None:
    if train_op is not None:
        return group(train_op)
    if mode == ModeKeys.TRAIN:
        raise ArgumentError(
            "Missing train_op: training needs one. Pass what optimizer.minimize(loss) returns as train_op= to "
            "EstimatorSpec."
        )
    return None


def _predictions(predictions: PyTree, mode: str) -> Any:
    if predictions is None:
        if mode == ModeKeys.PREDICT:
            raise ArgumentError("Missing predictions: pass a tensor or a dict of tensors to EstimatorSpec.")
        return {}
    if isinstance(predictions, Mapping):
        return {key: _tensor(value, f"predictions[{key!r}]") for key, value in predictions.items()}
    return _tensor(predictions, "predictions")


def _tensor(value: Tensor, name: str) -> Any:
    if isinstance(value, keras.Variable):
        return value.value
    if isinstance(value, (jax.Array, np.ndarray, np.generic, Words)) or is_text(value):
        return value
    raise ArgumentError(
        f"{name} must be a tensor. Received: {value!r}, a {type(value).__name__}. Make one with tf.convert_to_tensor "
        "or jax.numpy.asarray."
    )


def _metrics(metrics: Any, mode: str) -> dict[str, Any]:
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise ArgumentError(f"eval_metric_ops must be a dict of metrics by name, or None. Received: {metrics!r}.")
    for name, metric in metrics.items():
        _check_metric(name, metric)
        if name in _RESERVED and mode == ModeKeys.EVAL:
            raise ArgumentError(
                f"evaluate() has results named {' and '.join(_RESERVED)} of its own. Received: a metric {name!r} in "
                "eval_metric_ops. Give it another name."
            )
    return dict(metrics)


def _check_metric(name: object, metric: Metric) -> None:
    if not isinstance(name, str):
        raise ArgumentError(f"eval_metric_ops must have strings as names. Received: {name!r}.")
    if isinstance(metric, (keras.metrics.Metric, MetricOp)):
        return
    if not isinstance(metric, tuple) or len(metric) != 2:
        raise ArgumentError(
            f"eval_metric_ops[{name!r}] must be a result of lockstep.estimator.metrics, a keras.metrics.Metric, or a "
            f"pair (value, update). Received: {metric!r}. Example: tf.compat.v1.metrics.accuracy(labels, predictions)"
        )
    for position, value in enumerate(metric):
        _tensor(value, f"eval_metric_ops[{name!r}][{position}]")


def _export_outputs(outputs: Any, predictions: PyTree, mode: str) -> dict[str, Any] | None:
    """Checks export outputs in prediction only, as TensorFlow does."""
    if mode != ModeKeys.PREDICT:
        return outputs
    from lockstep.estimator._export.outputs import export_outputs_of

    return export_outputs_of(outputs, predictions)


def _scaffold(scaffold: object) -> Scaffold:
    if scaffold is None:
        return Scaffold()
    if not isinstance(scaffold, Scaffold):
        raise ArgumentError(
            f"scaffold must be a tf.compat.v1.train.Scaffold, or None. Received: {scaffold!r}. Example: "
            "Scaffold(init_fn=lambda scaffold, session: None)"
        )
    return scaffold
