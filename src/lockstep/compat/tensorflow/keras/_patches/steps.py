"""Models with steps of Keras 2: `train_step(self, data)`, `test_step(self, data)` and `predict_step(self, data)`.

Keras 3's steps on JAX are functions of a state. Here the state of such a step are the values of the model's variables:
they stand for the variables while the step runs, and what it has assigned is the state after it.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from jax.core import Tracer
from keras import ops
from keras.src import backend, tree
from keras.src.backend.common.stateless_scope import StatelessScope
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.trainer import Trainer

from lockstep._types import Batch, Model, PyTree, Tensor, Variable
from lockstep.compat.tensorflow._ops.model_seeds import put_aside
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._patches._patch import adds, replaces
from lockstep.data import Dataset
from lockstep.distribute.internal import whole_batch

_NAMES = ("train_step", "test_step", "predict_step")
# Read where a strategy builds a model: a step is traced on a first batch, to find what it makes and assigns.
_UNSEEN = "_lockstep_steps_unseen"
# Whether the step that was traced last has counted a loss in the model's metric.
_COUNTS = "_lockstep_counts_loss"
_running = threading.local()


def adapt_steps(model: Model, data: Any = None, validation_data: Any = None) -> None:
    """Makes steps of Keras 2 those that Keras 3 calls; models without such steps stay as they are.

    Args:
        model: The model.
        data: What it is trained, evaluated or asked with.
        validation_data: What it is evaluated with after an epoch.
    """
    for name in _NAMES:
        step = getattr(type(model), name)
        if name in vars(model) or step is getattr(keras.Model, name) or _arguments_of(step) != 1:
            continue
        # Not by setattr: Keras tracks what is assigned.
        vars(model)[name] = _Step(model, name, getattr(model, name))
        vars(model)[_UNSEEN] = True
    for name in _NAMES:
        step = vars(model).get(name)
        if isinstance(step, _Step):
            step.is_single = _is_single(data if name != "test_step" or validation_data is None else validation_data)


def _is_single(data: Any) -> bool:
    # Keras 3 gets a tuple of one of a dataset without targets, and Keras 2 hands the element itself to the step.
    return isinstance(data, Dataset) and not isinstance(data.element_spec, tuple)


def _arguments_of(step: Any) -> int:
    function = getattr(step, "python_function", step)
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return sum(p.kind in kinds for p in inspect.signature(function).parameters.values()) - 1


class _Step:
    """A step of the user's, as Keras 3 calls it, with a state, and as the user's own code does, without."""

    def __init__(self, model: Model, name: str, step: Callable[[Any], Any]) -> None:
        self._model = model
        self._step = step
        self.__name__ = name
        self.is_single = False

    def __call__(self, *args: Any) -> Any:
        if len(args) == 1:
            return self._step(*args)
        state, data = args
        groups = [variables for variables, _ in zip(_groups(self._model, self.__name__), state, strict=True)]
        pairs = [pair for group, values in zip(groups, state, strict=True) for pair in zip(group, values, strict=True)]
        with StatelessScope(state_mapping=pairs) as scope:
            logs = self.on(data)
        after = [
            [_value_after(scope, v, was) for v, was in zip(group, values, strict=True)]
            for group, values in zip(groups, state, strict=True)
        ]
        return logs, after[1] if self.__name__ == "predict_step" else tuple(after)

    def on(self, data: Batch) -> Any:
        """Runs the user's step."""
        if self.is_single and isinstance(data, tuple) and len(data) == 1:
            data = data[0]
        before = getattr(_running, "model", None)
        _running.model = self._model
        vars(self._model)[_COUNTS] = False
        try:
            with whole_batch():
                return self._step(data)
        finally:
            _running.model = before


def _value_after(scope: StatelessScope, variable: Variable, before: Tensor) -> Any:
    value = scope.get_current_value(variable)
    return before if value is None else value


def _groups(model: Model, name: str) -> list[list[Variable]]:
    """Returns the variables of a step's state, in Keras 3's groups."""
    groups = [model.trainable_variables, model.non_trainable_variables]
    if name == "train_step":
        groups.append([] if model.optimizer is None else model.optimizer.variables)
    return groups if name == "predict_step" else [*groups, model.metrics_variables]


# ---- What a step makes and assigns ----


@replaces(Trainer, "_symbolic_build")
def _symbolic_build(
    original: Callable[..., None], self: Model, iterator: Any = None, data_batch: PyTree = None
) -> None:
    """Builds a model by its own step, on shapes, where it has one of Keras 2: such a model may have no `call`."""
    steps = [vars(self)[name] for name in ("train_step", "test_step") if name in vars(self)]
    if not steps:
        original(self, iterator, data_batch)
        return
    if vars(self).get(_UNSEEN):
        if data_batch is None:
            data_batch = _first_batch(iterator)
        inputs = tree.map_structure(_symbolic, data_batch)
        # A model that is evaluated first is trained afterwards, if at all.
        step = steps[0] if self.optimizer is not None else steps[-1]
        backend.compute_output_spec(step.on, inputs)
        self.built = True
        _carry_variables(self)
        vars(self)[_UNSEEN] = False
    if self.optimizer is not None and not self.optimizer.built:
        self.optimizer.build(self.trainable_variables)
    self._post_build()


def _first_batch(iterator: Any) -> Any:
    for _, _, data in iterator:
        return data[0] if isinstance(data, (list, tuple)) else next(data)
    return ()


def _symbolic(value: Any) -> Any:
    return None if value is None else keras.KerasTensor(value.shape, backend.standardize_dtype(value.dtype))


class _Carried:
    """Variables of a step that are neither weights nor metrics: of a second optimizer."""

    def __init__(self, variable: Variable) -> None:
        self.state = variable


def _carry_variables(model: Model) -> None:
    """Makes variables of optimizers besides the model's own a part of its state."""
    known = {id(v) for v in model.variables}
    if model.optimizer is not None:
        known |= {id(v) for v in model.optimizer.variables}
    was_locked = model._tracker.locked
    model._tracker.unlock()
    for optimizer in _optimizers(model):
        for variable in optimizer.variables:
            if id(variable) not in known:
                known.add(id(variable))
                # Beside the seeds: state of a step that is not saved with the weights.
                model._seed_generators.append(_Carried(variable))
                put_aside(variable)
    if was_locked:
        model._lock_state()


def _optimizers(model: Model) -> Iterator[Any]:
    for layer in model._flatten_layers(include_self=True, recursive=True):
        for value in list(vars(layer).values()):
            parts = (
                value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
            )
            yield from (part for part in parts if isinstance(part, BaseOptimizer))


# ---- What a step of Keras 2 calls ----


def _build_parts(model: Model, name: str, data: Batch) -> None:
    """Builds what Keras' own step reads, where that is not built."""
    x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
    outputs = model(x) if not model.built else None
    if name == "predict_step":
        return
    metrics, losses = model._compile_metrics, model._compile_loss
    if not all(part is None or part.built for part in (metrics, losses)):
        outputs = model(x) if outputs is None else outputs
        model.compute_metrics(x, y, outputs, weights)
        model._compute_loss(x, y, outputs, weights)
    if name == "train_step" and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def _change_base(name: str) -> None:
    @replaces(keras.Model, name)
    def step(original: Callable[..., Any], self: Model, *args: Any) -> Any:
        """Takes a batch alone, too, from a step of the user's that calls `super()`: it assigns to the variables."""
        if len(args) != 1:
            return original(self, *args)
        # Keras' step has a loss tracker of its own to update.
        before = getattr(_running, "model", None)
        _running.model = None
        try:
            _build_parts(self, name, *args)
            vars(self)[_COUNTS] = True
            groups = _groups(self, name)
            logs, after = original(self, tuple([v.value for v in group] for group in groups), *args)
        finally:
            _running.model = before
        if name == "predict_step":
            groups, after = groups[1:], (after,)
        for group, values in zip(groups, after, strict=True):
            for variable, value in zip(group, values, strict=True):
                variable.assign(value)
        return logs


for _name in _NAMES:
    _change_base(_name)


@replaces(Trainer, "get_metrics_result")
def _get_metrics_result(original: Callable[..., Any], self: Model) -> Any:
    """Leaves the metric `loss` out where a step of Keras 2 has not counted one: what the step returns is shown then.

    In Keras 2 there is no such metric before the compiled loss is called; in Keras 3 it is there, and 0.
    """
    results, tracker = original(self), self._loss_tracker
    if tracker is None or _COUNTS not in vars(self):
        return results
    count = tracker.count.value
    counts = vars(self)[_COUNTS] if isinstance(count, Tracer) else bool(np.asarray(count) != 0)
    return results if counts else {name: value for name, value in results.items() if name != tracker.name}


@replaces(Trainer, "compute_loss")
def _compute_loss(original: Callable[..., Any], self: Model, *args: Argument, **kwargs: Argument) -> Any:
    """Gives targets the rank of outputs; counts the loss in the model's metric `loss`, in a step of Keras 2."""
    args, kwargs = _with_ranks(args, kwargs)
    loss = original(self, *args, **kwargs)
    if getattr(_running, "model", None) is self:
        _track(self, loss, kwargs.get("y_pred", args[2] if len(args) > 2 else None))
    return loss


@replaces(Trainer, "compute_metrics")
def _compute_metrics(original: Callable[..., Any], self: Model, *args: Argument, **kwargs: Argument) -> Any:
    """Gives targets the rank of outputs."""
    args, kwargs = _with_ranks(args, kwargs)
    return original(self, *args, **kwargs)


def _with_ranks(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Makes columns of targets and weights of one dimension, for outputs of two, as Keras 2 does.

    Source: `match_dtype_and_rank` of keras/src/engine/compile_utils.py, 2.15.
    """
    given = dict(zip(("x", "y", "y_pred", "sample_weight"), args, strict=False)) | kwargs
    y, outputs, weights = (given.get(name) for name in ("y", "y_pred", "sample_weight"))
    try:
        keras.tree.assert_same_structure(y, outputs)
    except (TypeError, ValueError):
        return args, kwargs
    # With one output Keras 3 does so by itself.
    is_flat = keras.tree.map_structure(
        lambda t, p: len(getattr(t, "shape", ())) == 1 and len(getattr(p, "shape", ())) == 2 and p.shape[1] != 1,
        y,
        outputs,
    )
    if not any(keras.tree.flatten(is_flat)):
        return args, kwargs
    given["y"] = keras.tree.map_structure(lambda t, is_one: ops.expand_dims(t, -1) if is_one else t, y, is_flat)
    if weights is not None and len(getattr(weights, "shape", ())) == 1 and is_flat is True:
        given["sample_weight"] = ops.expand_dims(weights, -1)
    return (), given


def _track(model: Model, loss: Tensor, outputs: PyTree) -> None:
    leaves = [leaf for leaf in tree.flatten(outputs) if leaf is not None]
    vars(model)[_COUNTS] = True
    model._loss_tracker.update_state(loss, sample_weight=leaves[0].shape[0] if leaves else None)


class _CompiledLoss:
    """The losses that a model was compiled with. Source: `Model.compiled_loss` of Keras 2."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __call__(
        self, y_true: PyTree, y_pred: PyTree, sample_weight: PyTree = None, regularization_losses: PyTree = None
    ) -> Any:
        """Returns the loss of a batch, and counts it in the model's metric `loss`."""
        model = self._model
        loss = 0.0 if model._compile_loss is None else model._compile_loss(y_true, y_pred, sample_weight)
        loss = sum(regularization_losses or [], loss)
        _track(model, loss, y_pred)
        return loss

    @property
    def metrics(self) -> list[Any]:
        """Returns the metric that counts the loss, and those of single outputs."""
        parts = self._model._compile_loss
        return [self._model._loss_tracker, *(() if parts is None else parts.metrics)]


class _CompiledMetrics:
    """The metrics that a model was compiled with. Source: `Model.compiled_metrics` of Keras 2."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def update_state(self, y_true: PyTree, y_pred: PyTree, sample_weight: PyTree = None) -> None:
        """Counts a batch."""
        metrics = self._model._compile_metrics
        if metrics is not None:
            metrics.update_state(y_true, y_pred, sample_weight)

    @property
    def metrics(self) -> list[Any]:
        """Returns the metrics."""
        metrics = self._model._compile_metrics
        return [] if metrics is None else metrics.metrics

    def reset_state(self) -> None:
        """Forgets what was counted."""
        for metric in self.metrics:
            metric.reset_state()

    reset_states = reset_state


@adds(Trainer, "compiled_loss")
@property
def _compiled_loss(self: Model) -> _CompiledLoss:
    return _CompiledLoss(self)


@adds(Trainer, "compiled_metrics")
@property
def _compiled_metrics(self: Model) -> _CompiledMetrics:
    return _CompiledMetrics(self)
