"""Arguments of Keras 2's `compile` as Keras 3's: their order, single metrics, TensorFlow 1's optimizers."""

from __future__ import annotations

import inspect
import re
from typing import Any

import keras

from lockstep._types import PyTree
from lockstep.errors import ArgumentError, UnsupportedError

# Keras 2's order. Keras 3 has `loss_weights` in the place of the metrics.
_POSITIONAL = (
    *("optimizer", "loss", "metrics", "loss_weights", "weighted_metrics", "run_eagerly", "steps_per_execution"),
    "jit_compile",
)


def name_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of compile by name.

    Raises:
        TypeError: If one is given twice, or there are too many.
    """
    twice = [name for name in _POSITIONAL[: len(args)] if name in kwargs]
    if len(args) > len(_POSITIONAL) or twice:
        raise TypeError(f"compile() takes {_POSITIONAL}, each once. Received {len(args)} by position, and {twice}.")
    named = {**dict(zip(_POSITIONAL, args, strict=False)), **kwargs}
    for name in ("metrics", "weighted_metrics"):
        if named.get(name) is not None:
            named[name] = _to_metrics(named[name])
    if "optimizer" in named:
        named["optimizer"] = _to_optimizer(named["optimizer"])
    return named


def _to_metrics(given: PyTree) -> Any:
    """Returns metrics in a list or a dict; those named as a class have the class' own name, as in Keras 2."""
    if isinstance(given, dict):
        return {key: value if value is None else _to_metric(value) for key, value in given.items()}
    if isinstance(given, (list, tuple)):
        return [_to_metric(value) for value in given]
    return [_to_metric(given)]


def _to_metric(given: PyTree) -> Any:
    if isinstance(given, (list, tuple)):
        return [_to_metric(value) for value in given]
    if isinstance(given, str) and inspect.isclass(getattr(keras.metrics, given, None)):
        # Keras 3 names the metric "AUC"; Keras 2 makes one, whose name is "auc".
        metric = getattr(keras.metrics, given)()
        # The names of Keras 3's objects are counted; that of a metric given as text is the same in every model.
        metric.name = re.sub(r"_\d+$", "", metric.name)
        return metric
    return given


def _to_optimizer(given: Any) -> Any:
    """Returns an optimizer of Keras for one of TensorFlow 1, and for the name of one with another rate in Keras 2."""
    if isinstance(given, str) and given.lower() == "lion":
        return keras.optimizers.Lion(1e-4)
    home = type(given).__module__
    if not home.startswith("lockstep.estimator.train"):
        return given
    name = type(given).__name__
    held = {key: value for key, value in vars(given).items() if not callable(value)}
    try:
        if name == "GradientDescentOptimizer":
            return keras.optimizers.SGD(held["_learning_rate"])
        if name == "MomentumOptimizer":
            # With a constant rate it is the same whether momentum holds the rate.
            return keras.optimizers.SGD(held["_learning_rate"], held["_momentum"], nesterov=held["_use_nesterov"])
        if name == "AdagradOptimizer":
            return keras.optimizers.Adagrad(held["_learning_rate"], held["_initial_accumulator_value"], epsilon=0.0)
        if name == "AdamOptimizer":
            return keras.optimizers.Adam(held["_lr"], held["_beta1"], held["_beta2"], held["_epsilon"])
    except KeyError as error:
        raise ArgumentError(
            f"In compile() numbers of {name} are constants. Received a function for {error}. Use an optimizer of "
            "tf.keras.optimizers with a schedule."
        ) from error
    raise UnsupportedError(
        f"compile() takes optimizers of Keras, and GradientDescent, Momentum, Adagrad and Adam of TensorFlow 1. "
        f"Received: {name}. Use the one of that name in tf.keras.optimizers."
    )
