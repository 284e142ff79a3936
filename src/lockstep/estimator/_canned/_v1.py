"""TensorFlow 1's canned estimators, derived from TensorFlow 2's.

They have other defaults: losses are summed over a batch, and optimizers given by name are those of
`lockstep.estimator.train`.

Source: tf.compat.v1.estimator.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from lockstep._types import Optimizer
from lockstep.errors import ArgumentError
from lockstep.estimator import train
from lockstep.estimator._canned import _baseline, _combined, _dnn, _linear
from lockstep.estimator._canned._parts import divided_by
from lockstep.estimator._estimator import Estimator

__all__ = [
    "BaselineClassifier",
    "BaselineEstimator",
    "BaselineRegressor",
    "DNNClassifier",
    "DNNEstimator",
    "DNNLinearCombinedClassifier",
    "DNNLinearCombinedEstimator",
    "DNNLinearCombinedRegressor",
    "DNNRegressor",
    "LinearClassifier",
    "LinearEstimator",
    "LinearRegressor",
]

_Canned = TypeVar("_Canned", bound=type[Estimator])
_Arguments = dict[str, Any]
# The same names as in version 2, for other classes: `_OPTIMIZER_CLS_NAMES` of tensorflow_estimator's optimizers.py.
_BY_NAME = {
    "Adagrad": train.AdagradOptimizer,
    "Adam": train.AdamOptimizer,
    "Ftrl": train.FtrlOptimizer,
    "RMSProp": train.RMSPropOptimizer,
    "SGD": train.GradientDescentOptimizer,
}


def _optimizer(optimizer: Optimizer | str, learning_rate: float) -> Optimizer:
    """Returns a function that makes the named optimizer; an optimizer as it is."""
    if not isinstance(optimizer, str):
        return optimizer
    if optimizer not in _BY_NAME:
        raise ArgumentError(f"The names of optimizers are {', '.join(_BY_NAME)}. Received: {optimizer!r}.")
    # Made anew in each call of the model_fn, whose variables it owns.
    return functools.partial(_BY_NAME[optimizer], learning_rate)


# The learning rates are those of tf.compat.v1.estimator's model_fns, which differ from version 2's for DNNs.
def _set_baseline_optimizers(arguments: _Arguments) -> None:
    arguments["optimizer"] = _optimizer(arguments["optimizer"], 0.3)


def _set_dnn_optimizers(arguments: _Arguments) -> None:
    arguments["optimizer"] = _optimizer(arguments["optimizer"], 0.05)


def _set_linear_optimizers(arguments: _Arguments) -> None:
    # A list, since the columns are counted here and read again by the parent.
    columns = arguments["feature_columns"] = list(arguments["feature_columns"] or ())
    optimizer = arguments["optimizer"]
    # TensorFlow's linear model lowers the rate for the default only, unlike the combined one.
    rate = min(0.2, max(len(columns), 1) ** -0.5) if optimizer is None else 0.2
    arguments["optimizer"] = _optimizer("Ftrl" if optimizer is None else optimizer, rate)


def _set_combined_optimizers(arguments: _Arguments) -> None:
    columns = arguments["linear_feature_columns"] = list(arguments["linear_feature_columns"] or ())
    optimizer = arguments["linear_optimizer"]
    rate = min(0.005, max(len(columns), 1) ** -0.5)
    arguments["linear_optimizer"] = _optimizer("Ftrl" if optimizer is None else optimizer, rate)
    arguments["dnn_optimizer"] = _optimizer(arguments["dnn_optimizer"], 0.001)


def _v1_class(parent: _Canned, set_optimizers: Callable[[_Arguments], None], partitioner: str | None = None) -> _Canned:
    """Returns TensorFlow 1's form of a canned estimator.

    `set_optimizers` replaces names of optimizers in the arguments; `partitioner` is the name of the argument for
    partitioned variables.
    """
    name = parent.__name__
    # TensorFlow 1's default reduction: losses of a batch are summed.
    parameters = [
        p.replace(default="weighted_sum") if p.name == "loss_reduction" else p
        for p in inspect.signature(parent.__init__).parameters.values()
    ]
    if partitioner is not None:
        # Beside `config`, on the side where TensorFlow has it: programs may pass arguments by position.
        position = [p.name for p in parameters].index("config") + (partitioner == "partitioner")
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.insert(position, inspect.Parameter(partitioner, kind, default=None, annotation="None"))
    signature = inspect.Signature(parameters, return_annotation="None")

    def __init__(*args: Any, **kwargs: object) -> None:
        # Bound by hand, so that an error names this class and its arguments.
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}.__init__() {error}") from None
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        given = arguments.pop(partitioner) if partitioner is not None else None
        set_optimizers(arguments)
        parent.__init__(**arguments)
        core = args[0]._core
        core.model_fn = divided_by(str(partitioner), given, core.model_fn)

    __init__.__qualname__ = f"{name}.__init__"
    __init__.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    rule = f"; `{partitioner}` says into how many ranges of rows servers divide tables" if partitioner else ""
    doc = f"""TensorFlow 1's form of `lockstep.estimator.{name}`, which documents the arguments{rule}.

    Names of optimizers stand for those of `lockstep.estimator.train`.

    Source: tf.compat.v1.estimator.{name}.
    """
    # A subclass, so that isinstance and everything but the defaults is the parent's.
    members: dict[str, object] = {"__init__": __init__, "__doc__": doc, "__module__": __name__}
    return type(name, (parent,), members)  # pyright: ignore[reportReturnType]


# TensorFlow's linear models call the partitioner `partitioner`, those with layers `input_layer_partitioner`, and
# baselines have none.
LinearEstimator = _v1_class(_linear.LinearEstimator, _set_linear_optimizers, "partitioner")
LinearClassifier = _v1_class(_linear.LinearClassifier, _set_linear_optimizers, "partitioner")
LinearRegressor = _v1_class(_linear.LinearRegressor, _set_linear_optimizers, "partitioner")
DNNEstimator = _v1_class(_dnn.DNNEstimator, _set_dnn_optimizers, "input_layer_partitioner")
DNNClassifier = _v1_class(_dnn.DNNClassifier, _set_dnn_optimizers, "input_layer_partitioner")
DNNRegressor = _v1_class(_dnn.DNNRegressor, _set_dnn_optimizers, "input_layer_partitioner")
DNNLinearCombinedEstimator = _v1_class(
    _combined.DNNLinearCombinedEstimator, _set_combined_optimizers, "input_layer_partitioner"
)
DNNLinearCombinedClassifier = _v1_class(
    _combined.DNNLinearCombinedClassifier, _set_combined_optimizers, "input_layer_partitioner"
)
DNNLinearCombinedRegressor = _v1_class(
    _combined.DNNLinearCombinedRegressor, _set_combined_optimizers, "input_layer_partitioner"
)
BaselineEstimator = _v1_class(_baseline.BaselineEstimator, _set_baseline_optimizers)
BaselineClassifier = _v1_class(_baseline.BaselineClassifier, _set_baseline_optimizers)
BaselineRegressor = _v1_class(_baseline.BaselineRegressor, _set_baseline_optimizers)
