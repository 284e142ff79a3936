"""Models with the arguments of Keras 2 for compile, fit, evaluate and predict, and its methods."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
from keras.src import tree
from keras.src.legacy.preprocessing import image
from keras.src.trainers.compile_utils import CompileMetrics
from keras.src.trainers.trainer import Trainer

from lockstep._types import Model, PyTree, Tensor
from lockstep.compat.tensorflow._ops.model_seeds import give_seed
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.keras._alias import warn_once
from lockstep.compat.tensorflow.keras._compile import name_arguments
from lockstep.compat.tensorflow.keras._patches._patch import adds, is_ours, replaces, replaces_property
from lockstep.compat.tensorflow.keras._patches.loop import run_on_our_loop
from lockstep.compat.tensorflow.keras._patches.steps import adapt_steps
from lockstep.compat.tensorflow.keras._sparse_inputs import to_dense
from lockstep.compat.tensorflow.keras._text_inputs import prepare_data
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


# How a sequence is read: Keras 2's arguments and their defaults.
_READING = {"workers": 1, "use_multiprocessing": False, "max_queue_size": 10}
_STEPS = ("steps_per_epoch", "validation_steps", "steps")
# Keras 2's arguments by position.
_READ = ("steps", "callbacks", "max_queue_size", "workers", "use_multiprocessing", "verbose")
_POSITIONAL = {
    "fit": (
        *("steps_per_epoch", "epochs", "verbose", "callbacks", "validation_data", "validation_steps"),
        *("validation_freq", "class_weight", "max_queue_size", "workers", "use_multiprocessing", "shuffle"),
        "initial_epoch",
    ),
    "evaluate": _READ,
    "predict": _READ,
}


@replaces(Trainer, "compile")
def _compile(original: Callable[..., Any], self: Model, *args: Argument, **kwargs: Argument) -> Any:
    kwargs = name_arguments(args, kwargs)
    for name in _WITHOUT_EFFECT:
        kwargs.pop(name, None)
    for name, advice in _ADVICE.items():
        value = kwargs.pop(name, None)
        if value not in (None, 0):
            raise UnsupportedError(f"compile() has no {name} in Keras 3: received {value!r}. {advice}")
    weights, loss = kwargs.get("loss_weights"), kwargs.get("loss")
    if isinstance(weights, dict) and isinstance(loss, dict):
        # What has no weight in Keras 2 has 1.
        kwargs["loss_weights"] = {**dict.fromkeys(loss, 1.0), **weights}
    older = kwargs.pop("experimental_steps_per_execution", None)
    if older is not None:
        kwargs["steps_per_execution"] = older
    # None is Keras 2's default of these; Keras 3 refuses it.
    for name, default in (("steps_per_execution", 1), ("run_eagerly", False), ("jit_compile", "auto")):
        if name in kwargs and kwargs[name] is None:
            kwargs[name] = default
    run_on_our_loop()
    return original(self, **kwargs)


def _order_names(model: Model, names: Iterable[str]) -> list[str]:
    """Orders names of results as Keras 2: the loss, the outputs' losses, and their metrics, output by output."""
    outputs = [str(name) for name in getattr(model, "output_names", ()) or ()]

    def place(name: str) -> tuple[int, int]:
        if name == "loss":
            return 0, 0
        for at, output in enumerate(outputs if len(outputs) > 1 else ()):
            if name.startswith(f"{output}_"):
                return (1 if name == f"{output}_loss" else 2), at
        return (2, 0) if len(outputs) < 2 else (3, 0)

    # Stable: metrics of one output stay as they were given.
    return sorted(names, key=place)


@replaces(Trainer, "_flatten_metrics_in_order")
def _flatten_in_order(original: Callable[..., Any], self: Model, logs: dict[str, Any]) -> Any:
    """Returns results in the order of `metrics_names`."""
    # Keras 3's order is by the name of the output, and gives one twice that is a metric and a weighted one.
    known: list[str] = []
    _collect_names(self.get_metrics_result(), known)
    names = _order_names(self, dict.fromkeys([*known, *sorted(logs)]))
    results = [logs[name] for name in names if name in logs]
    return results[0] if len(results) == 1 else results


def _collect_names(results: Any, names: list[str]) -> None:
    for name, value in results.items():
        if isinstance(value, dict):
            _collect_names(value, names)
        else:
            names.append(name)


@replaces(CompileMetrics, "build")
def _build_for_each_output(original: Callable[..., None], self: Any, y_true: PyTree, y_pred: PyTree) -> None:
    """Builds the metrics of a flat list for each output, as Keras 2 does; Keras 3 has one for each output."""
    count = len(tree.flatten(y_pred))
    for name in ("_user_metrics", "_user_weighted_metrics"):
        given = getattr(self, name)
        is_flat = isinstance(given, (list, tuple)) and not any(isinstance(one, (list, tuple, dict)) for one in given)
        if not is_flat or count < 2 or not given:
            continue
        if isinstance(y_pred, dict):
            setattr(self, name, {key: _copy_metrics(given) for key in y_pred})
        else:
            setattr(self, name, [_copy_metrics(given) for _ in range(count)])
    original(self, y_true, y_pred)


def _copy_metrics(metrics: PyTree) -> list[Any]:
    # Each output has a state of its own.
    return [
        type(one).from_config(one.get_config()) if isinstance(one, keras.metrics.Metric) else one for one in metrics
    ]


@replaces_property(Trainer, "metrics_names")
def _metrics_names(original: Any, self: Model) -> list[str]:
    """Returns the names of what `evaluate` returns, in its order.

    The names of metrics that fit or evaluate has yet to build are those that were given to compile.
    """
    # Keras 3 builds compiled metrics on the first batch; until then only what the user gave is known.
    if all(metric.built for metric in self.metrics if isinstance(metric, CompileMetrics)):
        found: list[str] = []
        _collect_names(self.get_metrics_result(), found)
        ordered = self._flatten_metrics_in_order({name: name for name in found})
        return [ordered] if isinstance(ordered, str) else ordered
    names: list[str] = []
    for metric in self.metrics:
        compiled: Any = metric
        if isinstance(metric, CompileMetrics):
            given = [*_flatten(compiled._user_metrics), *_flatten(compiled._user_weighted_metrics)]
            names += [m if isinstance(m, str) else getattr(m, "name", None) or m.__name__ for m in given]
        else:
            names.append(metric.name)
    return names


def _flatten(metrics: PyTree) -> list[Any]:
    if isinstance(metrics, dict):
        metrics = list(metrics.values())
    if not isinstance(metrics, (list, tuple)):
        return [] if metrics is None else [metrics]
    return [metric for part in metrics for metric in _flatten(part)]


def _change_reading(name: str) -> None:
    """Lets a method take Keras 2's arguments of how a sequence is read, and adds its form for generators."""

    @functools.wraps(getattr(keras.Model, name))
    def method(self: Model, *args: Argument, **kwargs: Argument) -> Any:
        if is_ours(self):
            run_on_our_loop()
        # Looked up in each call: that, or the first scope of a strategy, replaces the base method.
        base = getattr(super(keras.Model, self), name)
        if not is_ours(self):
            return base(*args, **kwargs)
        give_seed(self)
        args, kwargs = _arrays_of_lists(*_dense_inputs(args, kwargs))
        asked = {key: kwargs.pop(key) for key in _READING if key in kwargs}
        # x is the first argument of all three methods.
        source = args[0] if args else kwargs.get("x")
        adapt_steps(self, source, kwargs.get("validation_data"))
        for data in (source, kwargs.get("validation_data")):
            if _is_sequence(data):
                _prepare_sequence(data, asked)
        if asked != {key: _READING[key] for key in asked} and not _is_sequence(source):
            warn_once(
                f"{', '.join(asked)} of {name}() set how a keras.utils.Sequence is read; data of type "
                f"{type(source).__name__} is read ahead by one thread."
            )
        # `fit` has prepared what it evaluates on after an epoch.
        if not kwargs.get("_use_cached_eval_dataset"):
            args, kwargs = _prepare_text(self, name, args, kwargs)
        for steps in _STEPS:
            # Keras 2 goes on while the number of steps is below it.
            if isinstance(kwargs.get(steps), float):
                kwargs[steps] = math.ceil(kwargs[steps])
        return _order_results(self, base(*args, **kwargs))

    def generator_form(self: Model, generator: Any, *args: Argument, **kwargs: Argument) -> Any:
        arguments = {**dict(zip(_POSITIONAL[name], args, strict=False)), **kwargs}
        if name == "fit" and not _is_sequence(generator):
            arguments["shuffle"] = False  # A generator's order is its own; saying so spares a warning.
        return getattr(self, name)(generator, **arguments)

    setattr(keras.Model, name, method)
    adds(keras.Model, f"{name}_generator")(generator_form)
    generator_form.__name__ = f"{name}_generator"
    generator_form.__doc__ = f"Keras 2's older form of `{name}` for generators and sequences; `{name}` does the same."


def _dense_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments with dense inputs in place of sparse tensors, also in datasets."""
    if args:
        args = (to_dense(args[0]), *args[1:])
    elif "x" in kwargs:
        kwargs = {**kwargs, "x": to_dense(kwargs["x"])}
    return args, kwargs


def _arrays_of_lists(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments with arrays in place of lists of numbers, which Keras 3 refuses: `predict([100.0])`."""

    def convert(value: Any) -> Any:
        if not isinstance(value, (list, tuple)) or not value:
            return value
        leaves = tree.flatten(value)
        return np.asarray(value) if all(type(leaf) in (int, float) for leaf in leaves) else value

    # x, and the targets of fit and evaluate.
    return tuple(convert(a) if i < 2 else a for i, a in enumerate(args)), {
        key: convert(value) if key in ("x", "y", "sample_weight") else value for key, value in kwargs.items()
    }


def _order_results(model: Model, result: Any) -> Any:
    """Orders the values of a History or of `evaluate(return_dict=True)` as Keras 2: the loss, and metrics as given."""
    logs = result.history if isinstance(result, keras.callbacks.History) else result
    if isinstance(logs, dict):
        names = _order_names(model, [key for key in logs if not key.startswith("val_")])
        given = model.metrics_names
        names = sorted(names, key=lambda name: given.index(name) if name in given else len(given))

        def place(key: str) -> tuple[bool, int]:
            name = key.removeprefix("val_")
            return key.startswith("val_") and key not in names, names.index(name) if name in names else len(names)

        ordered = {key: logs[key] for key in sorted(logs, key=place)}
        # In place: callbacks may hold it.
        logs.clear()
        logs.update(ordered)
    return result


def _prepare_text(
    model: Model, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a method with the host's part of the model computed for its data."""
    if args:
        args = (prepare_data(model, args[0], name), *args[1:])
    elif "x" in kwargs:
        kwargs["x"] = prepare_data(model, kwargs["x"], name)
    held_out = kwargs.get("validation_data")
    if isinstance(held_out, tuple):
        kwargs["validation_data"] = (prepare_data(model, held_out[0], name), *held_out[1:])
    elif held_out is not None:
        kwargs["validation_data"] = prepare_data(model, held_out, name)
    return args, kwargs


def _is_sequence(data: Tensor) -> bool:
    return isinstance(data, keras.utils.PyDataset)


def _prepare_sequence(sequence: Any, asked: dict[str, Any]) -> None:
    """Sets how a sequence is read."""
    # A sequence written for Keras 2 has not called super().__init__(), which Keras 3 demands.
    if not hasattr(sequence, "_workers"):
        keras.utils.PyDataset.__init__(sequence)
    for name, value in asked.items():
        setattr(sequence, name, max(value, 1) if name == "workers" else value)


for _name in ("fit", "evaluate", "predict"):
    _change_reading(_name)


@adds(keras.Model, "state_updates")
@adds(keras.Model, "updates")
@property
def _no_updates(self: Model) -> list[Any]:
    """Returns what Keras 2 returns outside of graphs: updates are made as they come."""
    return []


@adds(keras.Model, "get_updates_for")
def _get_updates_for(self: Model, inputs: Tensor) -> list[Any]:
    """Returns no updates, as `updates`."""
    return []


@adds(keras.Model, "get_losses_for")
def _get_losses_for(self: Model, inputs: Tensor) -> list[Any]:
    """Returns all penalties for `None`, and none for inputs, so that both together are those of the model."""
    return list(self.losses) if inputs is None else []


@adds(keras.Sequential, "predict_proba")
def _predict_proba(
    self: Model, x: Tensor, batch_size: int | None = None, verbose: Argument = 0, steps: int | None = None
) -> Any:
    """Returns `predict`, whose older name it is."""
    return self.predict(x, batch_size=batch_size, verbose=verbose, steps=steps)


@adds(keras.Sequential, "predict_classes")
def _predict_classes(
    self: Model, x: Tensor, batch_size: int | None = None, verbose: Argument = 0, steps: int | None = None
) -> np.ndarray:
    """Returns the most probable class of each example; of a single output, whether it exceeds one half."""
    probabilities = np.asarray(self.predict(x, batch_size=batch_size, verbose=verbose, steps=steps))
    return probabilities.argmax(axis=-1) if probabilities.shape[-1] > 1 else (probabilities > 0.5).astype("int32")


class _SciPy:
    """Stands for SciPy in the module of `ImageDataGenerator`, which uses the names that SciPy 2 has moved."""

    @property
    def ndimage(self) -> Any:
        """`scipy.ndimage`, whose content was also in `scipy.ndimage.interpolation`."""
        return SimpleNamespace(interpolation=importlib.import_module("scipy.ndimage"))


# Keras' functions read this global of their module. SciPy itself is imported at the first call.
_module: Any = image
_module.scipy = _SciPy()
