"""EstimatorSpec, the result of a model_fn, and Scaffold, its additions to the start of training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import keras
import numpy as np

from lockstep._text import Words, is_text
from lockstep._types import PyTree, Tensor
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._arguments import check_hooks
from lockstep.estimator._mode_keys import MODES, ModeKeys
from lockstep.estimator._model_fn.records import GroupOp, MetricOp, group
from lockstep.estimator._model_fn.scope import current

# tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY.
DEFAULT_SIGNATURE = "serving_default"
# Names that evaluate() gives results of its own.
_RESERVED = ("loss", "global_step")


_ADVICE = {
    "saver": "RunConfig says which checkpoints are kept, WarmStartSettings where values come from.",
    "summary_op": "All summaries of the model_fn are written; leave it out.",
    "init_op": "Variables have their value from the start; use init_fn, or WarmStartSettings.",
    "local_init_op": "Tables and local variables are ready from the start; use init_fn for what is left.",
}
_DEFAULT_ADVICE = "Variables are ready when training begins; use init_fn for what else is to happen."


class Scaffold:
    """A model_fn's additions to the start of training.

    Args:
        init_op: Must be `None`, or something that does nothing, such as tf.compat.v1.global_variables_initializer().
        init_feed_dict: Must be `None`.
        init_fn: A function of this object and the session, called once the variables have their first values, unless
            those come from a checkpoint.
        ready_op: See `init_op`.
        ready_for_local_init_op: See `init_op`.
        local_init_op: See `init_op`.
        summary_op: See `init_op`: all summaries are written.
        saver: Must be `None`: `RunConfig` decides which checkpoints are kept.
        copy_from_scaffold: A Scaffold whose `init_fn` is used without `init_fn`.
        local_init_feed_dict: Must be `None`.

    Raises:
        UnsupportedError: For arguments that concern a graph.
        ArgumentError: If `init_fn` is no function, or `copy_from_scaffold` no Scaffold.

    Source: tf.compat.v1.train.Scaffold.
    """

    def __init__(
        self,
        init_op: object | None = None,
        init_feed_dict: object | None = None,
        init_fn: Callable[[Scaffold, Any], Any] | None = None,
        ready_op: object | None = None,
        ready_for_local_init_op: object | None = None,
        local_init_op: object | None = None,
        summary_op: PyTree | None = None,
        saver: object | None = None,
        copy_from_scaffold: Scaffold | None = None,
        local_init_feed_dict: object | None = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "init_fn", "__class__")}
        for name, value in arguments.items():
            # Programs of TensorFlow pass tf.compat.v1.global_variables_initializer() and the like, which are () here.
            does_nothing = value is None or (isinstance(value, tuple) and not value)
            if name != "copy_from_scaffold" and not does_nothing:
                raise UnsupportedError(
                    f"Scaffold.{name} must be None: there is no graph that it could act on. Received: {value!r}. "
                    f"{_ADVICE.get(name, _DEFAULT_ADVICE)}"
                )
        if init_fn is not None and not callable(init_fn):
            raise ArgumentError(
                f"init_fn must be a function of the scaffold and the session, or None. Received: {init_fn!r}."
            )
        if init_fn is None and copy_from_scaffold is not None:
            if not isinstance(copy_from_scaffold, Scaffold):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ArgumentError(
                    f"copy_from_scaffold must be a Scaffold, or None. Received: {copy_from_scaffold!r}."
                )
            init_fn = copy_from_scaffold._init_fn
        self._init_fn = init_fn

    @property
    def init_fn(self) -> Callable[[Any], Any] | None:
        """Returns the function of the session, or `None`."""
        function = self._init_fn
        return None if function is None else lambda session: function(self, session)


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
        mode: The mode that the model_fn was called for, of `ModeKeys`; `None` for that of this call.
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
        mode: str | None,
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
        if mode is None:
            # TensorFlow's takes it from a model_fn that has no argument `mode`.
            mode = _mode_of_call()
        if mode not in MODES:
            raise ArgumentError(f"mode must be the one that the model_fn was called with. Received: {mode!r}.")
        checked, checked_loss = _check_predictions(predictions, mode), _check_loss(loss, mode)
        if train_op is None and mode == ModeKeys.TRAIN:
            raise ArgumentError(
                "Missing train_op: training needs one. Pass what optimizer.minimize(loss) returns as train_op= to "
                "EstimatorSpec."
            )
        if scaffold is not None and not isinstance(scaffold, Scaffold):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"scaffold must be a tf.compat.v1.train.Scaffold, or None. Received: {scaffold!r}. Example: "
                "Scaffold(init_fn=lambda scaffold, session: None)"
            )
        # TensorFlow checks export outputs in prediction only: heads compute them there alone.
        if mode == ModeKeys.PREDICT:
            from lockstep.estimator._export.outputs import export_outputs_of

            export_outputs = export_outputs_of(export_outputs, checked)
        return super().__new__(
            cls,
            mode=mode,
            predictions=checked,
            loss=checked_loss,
            train_op=None if train_op is None else _check_train_op(train_op),
            eval_metric_ops=_check_metrics(eval_metric_ops, mode),
            export_outputs=export_outputs,  # pyright: ignore[reportArgumentType]
            training_chief_hooks=check_hooks(training_chief_hooks, "training_chief_hooks"),
            training_hooks=check_hooks(training_hooks, "training_hooks"),
            scaffold=Scaffold() if scaffold is None else scaffold,
            evaluation_hooks=check_hooks(evaluation_hooks, "evaluation_hooks"),
            prediction_hooks=check_hooks(prediction_hooks, "prediction_hooks"),
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
        # Checked again, unlike a NamedTuple's own.
        return EstimatorSpec(**{**self._asdict(), **kwargs})


def _mode_of_call() -> str | None:
    from lockstep.estimator._model_fn.scope import current

    scope = current()
    return None if scope is None else scope.mode


def _check_loss(loss: Tensor, mode: str) -> Any:
    if loss is None:
        if mode != ModeKeys.PREDICT:
            raise ArgumentError(f"Missing loss: mode {mode!r} needs one. Pass loss= to EstimatorSpec.")
        return None
    array = _check_tensor(loss, "loss")
    if array.size != 1:
        raise ArgumentError(
            f"Loss must be scalar. Received: shape {tuple(array.shape)}. Take tf.reduce_mean of it, or divide its sum "
            "by the size of the batch."
        )
    # TensorFlow takes (1,), too; hooks and averages expect a scalar.
    return array.reshape(()) if array.shape else array


def _check_predictions(predictions: PyTree, mode: str) -> Any:
    if predictions is None:
        if mode == ModeKeys.PREDICT:
            raise ArgumentError("Missing predictions: pass a tensor or a dict of tensors to EstimatorSpec.")
        return {}
    if isinstance(predictions, Mapping):
        return {key: _check_tensor(value, f"predictions[{key!r}]") for key, value in predictions.items()}
    return _check_tensor(predictions, "predictions")


def _check_train_op(train_op: object) -> GroupOp:
    # What assigns a variable was carried out where it was written: a tensor has nothing left to do.
    is_tensor = isinstance(train_op, (keras.Variable, jax.Array, np.ndarray, np.generic))
    return group() if is_tensor else group(train_op)


def _check_tensor(value: Tensor, name: str) -> Any:
    if isinstance(value, keras.Variable):
        return value.value
    if isinstance(value, (jax.Array, np.ndarray, np.generic, Words)) or is_text(value):
        return value
    raise ArgumentError(
        f"{name} must be a tensor. Received: {value!r}, a {type(value).__name__}. Make one with tf.convert_to_tensor "
        "or jax.numpy.asarray."
    )


def _check_leaves(value: PyTree, name: str) -> None:
    """Checks a tensor, or tuples, lists and dicts of such."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)) and not isinstance(value, GroupOp):
        for number, part in enumerate(value):
            _check_leaves(part, f"{name}[{number}]")
    elif not isinstance(value, GroupOp):
        _check_tensor(value, name)


def _check_updated(metric: keras.metrics.Metric) -> None:
    """Refuses a metric that has seen no batch, and would report its first value."""
    scope = current()
    # A call that is traced for its values alone notes no updates.
    if scope is None or scope.is_read_only or scope.mode != ModeKeys.EVAL or not metric.variables:
        return
    if not scope.assigned & {scope.key_of(variable) for variable in metric.variables}:
        raise ArgumentError(
            f"Please call update_state(...) on the {metric.name!r} metric before you return it in eval_metric_ops. "
            "Received: a metric without an update in this model_fn."
        )


def _check_metrics(metrics: Any, mode: str) -> dict[str, Any]:
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise ArgumentError(f"eval_metric_ops must be a dict of metrics by name, or None. Received: {metrics!r}.")
    for name, metric in metrics.items():
        if not isinstance(name, str):
            raise ArgumentError(f"eval_metric_ops must have strings as names. Received: {name!r}.")
        if not isinstance(metric, (keras.metrics.Metric, MetricOp)):
            if not isinstance(metric, tuple) or len(metric) != 2:
                raise ArgumentError(
                    f"eval_metric_ops[{name!r}] must be a result of lockstep.estimator.metrics, a "
                    f"keras.metrics.Metric, or a pair (value, update). Received: {metric!r}. Example: "
                    "tf.compat.v1.metrics.accuracy(labels, predictions)"
                )
            _check_leaves(metric[0], f"eval_metric_ops[{name!r}][0]")
            # Done where it was written: a tf.group or tf.no_op is an update as good as any.
            if not isinstance(metric[1], GroupOp):
                _check_leaves(metric[1], f"eval_metric_ops[{name!r}][1]")
        elif isinstance(metric, keras.metrics.Metric):
            _check_updated(metric)
        # Heads make the same metrics in training, where these names are free, as in TensorFlow.
        if name in _RESERVED and mode == ModeKeys.EVAL:
            raise ArgumentError(
                f"evaluate() has results named {' and '.join(_RESERVED)} of its own. Received: a metric {name!r} in "
                "eval_metric_ops. Give it another name."
            )
    return dict(metrics)
