"""Models with the arguments of Keras 2 for compile, fit, evaluate and predict, and its methods."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
from keras.src.legacy.preprocessing import image
from keras.src.trainers.compile_utils import CompileMetrics
from keras.src.trainers.trainer import Trainer

from lockstep._types import Model, PyTree, Tensor
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._warn import warn_once
from lockstep.errors import UnsupportedError

# Arguments of Keras 2 that would change the result: an error instead of another result.
_ADVICE = {
    "sample_weight_mode": "Give fit a sample_weight of shape (batch, time) instead.",
    "target_tensors": "Give fit the targets as y.",
    "distribute": "Create and compile the model under strategy.scope().",
    "pss_evaluation_shards": "Leave it out.",
}
# Switches of TensorFlow's own machinery.
_WITHOUT_EFFECT = ("experimental_run_tf_function", "is_legacy_optimizer", "from_serialized")


def install() -> None:
    """Changes `keras.Model`, and the globals of `ImageDataGenerator`."""
    _install_compile()
    _install_reading()
    _install_methods()
    _install_scipy()


def _install_compile() -> None:
    trainer: Any = Trainer
    trainer.compile = _with_keras2_arguments(trainer.compile)
    trainer.metrics_names = property(_metrics_names)


def _with_keras2_arguments(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def compile(self: Model, *args: Argument, **kwargs: Argument) -> Any:
        _drop_arguments(kwargs)
        older = kwargs.pop("experimental_steps_per_execution", None)
        if older is not None:
            kwargs["steps_per_execution"] = older
        # None is Keras 2's default of these; Keras 3 refuses it.
        for name, default in (("steps_per_execution", 1), ("run_eagerly", False), ("jit_compile", "auto")):
            if name in kwargs and kwargs[name] is None:
                kwargs[name] = default
        return original(self, *args, **kwargs)

    return compile


def _drop_arguments(kwargs: dict[str, Any]) -> None:
    for name in _WITHOUT_EFFECT:
        kwargs.pop(name, None)
    for name, advice in _ADVICE.items():
        value = kwargs.pop(name, None)
        if value not in (None, 0):
            raise UnsupportedError(f"compile() has no {name} in Keras 3: received {value!r}. {advice}")


def _metrics_names(self: Model) -> list[str]:
    """Returns the names of what `evaluate` returns, in its order.

    The names of metrics that fit or evaluate has yet to build are those that were given to compile.
    """
    # Keras 3 builds compiled metrics on the first batch; until then only what the user gave is known.
    if all(metric.built for metric in self.metrics if isinstance(metric, CompileMetrics)):
        ordered = self._flatten_metrics_in_order({name: name for name in self.get_metrics_result()})
        return [ordered] if isinstance(ordered, str) else ordered
    names: list[str] = []
    for metric in self.metrics:
        names += _user_names(metric) if isinstance(metric, CompileMetrics) else [metric.name]
    return names


def _user_names(metrics: Any) -> list[str]:
    compiled: Any = [metrics._user_metrics, metrics._user_weighted_metrics]
    return [_metric_name(one) for some in compiled for one in _flatten(some)]


def _flatten(metrics: PyTree) -> list[Any]:
    if isinstance(metrics, dict):
        metrics = list(metrics.values())
    if not isinstance(metrics, (list, tuple)):
        return [] if metrics is None else [metrics]
    return [metric for part in metrics for metric in _flatten(part)]


def _metric_name(metric: str | Callable[..., Any]) -> str:
    return metric if isinstance(metric, str) else getattr(metric, "name", None) or metric.__name__


_READING = {"workers": 1, "use_multiprocessing": False, "max_queue_size": 10}


def _install_reading() -> None:
    model: Any = keras.Model
    for name in ("fit", "evaluate", "predict"):
        setattr(model, name, _with_reading_arguments(name))
    model.fit_generator = _make_generator_form("fit")
    model.evaluate_generator = _make_generator_form("evaluate")
    model.predict_generator = _make_generator_form("predict")


def _with_reading_arguments(name: str) -> Callable[..., Any]:
    original = getattr(keras.Model, name)

    @functools.wraps(original)
    def method(self: Model, *args: Argument, **kwargs: Argument) -> Any:
        asked = {key: kwargs.pop(key) for key in _READING if key in kwargs}
        # x is the first argument of all three methods.
        source = args[0] if args else kwargs.get("x")
        for data in (source, kwargs.get("validation_data")):
            _prepare_sequence(data, asked)
        if asked != {key: _READING[key] for key in asked} and not _is_sequence(source):
            warn_once(
                f"{', '.join(asked)} of {name}() set how a keras.utils.Sequence is read; data of type "
                f"{type(source).__name__} is read ahead by one thread."
            )
        # Looked up in each call: a strategy replaces the base method when its first scope is opened.
        return getattr(super(keras.Model, self), name)(*args, **kwargs)

    return method


def _is_sequence(data: Tensor) -> bool:
    return isinstance(data, keras.utils.PyDataset)


def _prepare_sequence(data: Tensor, asked: dict[str, Any]) -> None:
    """Sets how a sequence is read."""
    if not _is_sequence(data):
        return
    # A sequence written for Keras 2 has not called super().__init__(), which Keras 3 demands.
    if not hasattr(data, "_workers"):
        keras.utils.PyDataset.__init__(data)
    for name, value in asked.items():
        setattr(data, name, max(value, 1) if name == "workers" else value)


def _make_generator_form(name: str) -> Callable[..., Any]:
    def method(self: Model, generator: Any, *args: Argument, **kwargs: Argument) -> Any:
        arguments = dict(zip(_POSITIONAL[name], args, strict=False))
        arguments |= kwargs
        if name == "fit" and not _is_sequence(generator):
            arguments["shuffle"] = False  # A generator's order is its own; saying so spares a warning.
        return getattr(self, name)(generator, **arguments)

    method.__name__ = f"{name}_generator"
    method.__doc__ = f"Keras 2's older form of `{name}` for generators and sequences; `{name}` does the same."
    return method


_POSITIONAL = {
    "fit": (
        "steps_per_epoch",
        "epochs",
        "verbose",
        "callbacks",
        "validation_data",
        "validation_steps",
        "validation_freq",
        "class_weight",
        "max_queue_size",
        "workers",
        "use_multiprocessing",
        "shuffle",
        "initial_epoch",
    ),
    "evaluate": ("steps", "callbacks", "max_queue_size", "workers", "use_multiprocessing", "verbose"),
    "predict": ("steps", "callbacks", "max_queue_size", "workers", "use_multiprocessing", "verbose"),
}


def _install_methods() -> None:
    model: Any = keras.Model
    model.state_updates = property(_no_updates)
    model.updates = property(_no_updates)
    model.get_updates_for = lambda self, inputs: []
    model.get_losses_for = _losses_for
    sequential: Any = keras.Sequential
    sequential.predict_proba = _predict_proba
    sequential.predict_classes = _predict_classes


def _no_updates(self: Model) -> list[Any]:
    """Returns what Keras 2 returns outside of graphs: updates are made as they come."""
    return []


def _losses_for(self: Model, inputs: Tensor) -> list[Any]:
    """Returns all penalties for `None`, and none for inputs, so that both together are those of the model."""
    return list(self.losses) if inputs is None else []


def _predict_proba(
    self: Model, x: Tensor, batch_size: int | None = None, verbose: Argument = 0, steps: int | None = None
) -> Any:
    """Returns `predict`, whose older name it is."""
    return self.predict(x, batch_size=batch_size, verbose=verbose, steps=steps)


def _predict_classes(
    self: Model, x: Tensor, batch_size: int | None = None, verbose: Argument = 0, steps: int | None = None
) -> np.ndarray:
    """Returns the most probable class of each example; of a single output, whether it exceeds one half."""
    probabilities = np.asarray(self.predict(x, batch_size=batch_size, verbose=verbose, steps=steps))
    return probabilities.argmax(axis=-1) if probabilities.shape[-1] > 1 else (probabilities > 0.5).astype("int32")


def _install_scipy() -> None:
    """Lets `ImageDataGenerator` find the functions that SciPy has moved."""
    module: Any = image
    # Keras' module calls scipy.ndimage.interpolation through this global. SciPy itself is imported at the first call.
    module.scipy = _SciPy()


class _SciPy:
    @property
    def ndimage(self) -> Any:
        """`scipy.ndimage`, whose content was also in `scipy.ndimage.interpolation`."""
        return SimpleNamespace(interpolation=importlib.import_module("scipy.ndimage"))
