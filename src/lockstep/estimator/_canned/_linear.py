"""Linear estimators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lockstep.estimator._canned._dnn import Columns, checked_units
from lockstep.estimator._canned._optimizers import optimizer_of
from lockstep.estimator._canned._parts import Weights, part
from lockstep.estimator._estimator import Estimator
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._heads import Head, RegressionHead
from lockstep.estimator._heads._multi_class import classifier_head
from lockstep.estimator._heads._reduction import SUM_OVER_BATCH_SIZE
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._run_config import RunConfig

# TensorFlow's: of an optimizer given by its name.
_LEARNING_RATE = 0.2


def linear_model_fn(head: Head, weights: Weights, optimizer: Any) -> Callable[..., EstimatorSpec]:
    """Returns the model_fn of a weighted sum under a head."""
    least = min(_LEARNING_RATE, len(weights.feature_columns) ** -0.5)
    given, rate = ("Ftrl", least) if optimizer is None else (optimizer, _LEARNING_RATE)

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        found = part("linear", lambda: weights.logits(features, head.logits_dimension))
        return head.create_estimator_spec(
            features=features,
            mode=mode,
            labels=labels,
            logits=found.logits,
            optimizer=optimizer_of(given, rate) if mode == ModeKeys.TRAIN else None,
            trainable_variables=found.variables,
        )

    return model_fn


class LinearEstimator(Estimator):
    """A linear model under a head.

    Args:
        head: One of `lockstep.estimator`'s, or one's own.
        feature_columns: Columns of numbers or categories.
        model_dir: Where checkpoints and event files are kept.
        optimizer: Its name ("Adagrad", "Adam", "Ftrl", "RMSProp", "SGD", with a learning rate of 0.2), an optimizer of
            Keras, lockstep.train or optax, or a function that returns such; `None` for Ftrl with the learning rate
            min(0.2, 1 / sqrt(number of columns)).
        config: A `RunConfig`.
        sparse_combiner: How the weights of several categories of a column become one: "sum", "mean" or "sqrtn".
        warm_start_from: A checkpoint, a directory of them, or `WarmStartSettings`.

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.estimator.LinearEstimator.
    """

    def __init__(
        self,
        head: Head,
        feature_columns: Columns,
        model_dir: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        sparse_combiner: str = "sum",
        warm_start_from: Any = None,
    ) -> None:
        model_fn = linear_model_fn(head, Weights.checked(feature_columns, sparse_combiner), optimizer)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class LinearClassifier(Estimator):
    """A linear model that tells classes.

    Args:
        feature_columns: Columns of numbers or categories.
        model_dir: Where checkpoints and event files are kept.
        n_classes: How many classes.
        weight_column: The name of the feature of weights, or a numeric column.
        label_vocabulary: The words that labels are, in the order of the classes; `None` for integers.
        optimizer: As of `LinearEstimator`.
        config: A `RunConfig`.
        warm_start_from: A checkpoint, a directory of them, or `WarmStartSettings`.
        loss_reduction: How the losses of examples become one.
        sparse_combiner: How the weights of several categories of a column become one: "sum", "mean" or "sqrtn".

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.estimator.LinearClassifier.
    """

    def __init__(
        self,
        feature_columns: Columns,
        model_dir: Any = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        sparse_combiner: str = "sum",
    ) -> None:
        head = classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        model_fn = linear_model_fn(head, Weights.checked(feature_columns, sparse_combiner), optimizer)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class LinearRegressor(Estimator):
    """A linear model that predicts numbers.

    Args:
        feature_columns: Columns of numbers or categories.
        model_dir: Where checkpoints and event files are kept.
        label_dimension: How many numbers for each example.
        weight_column: The name of the feature of weights, or a numeric column.
        optimizer: As of `LinearEstimator`.
        config: A `RunConfig`.
        warm_start_from: A checkpoint, a directory of them, or `WarmStartSettings`.
        loss_reduction: How the losses of examples become one.
        sparse_combiner: How the weights of several categories of a column become one: "sum", "mean" or "sqrtn".

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.estimator.LinearRegressor.
    """

    def __init__(
        self,
        feature_columns: Columns,
        model_dir: Any = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        sparse_combiner: str = "sum",
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        model_fn = linear_model_fn(head, Weights.checked(feature_columns, sparse_combiner), optimizer)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


def linear_logit_fn_builder(units: Any, feature_columns: Columns, sparse_combiner: str = "sum") -> Callable[[Any], Any]:
    """Returns a function of features that returns logits, (batch, units), for use inside of a model_fn.

    Args:
        units: How many logits.
        feature_columns: Columns of numbers or categories.
        sparse_combiner: How the weights of several categories of a column become one: "sum", "mean" or "sqrtn".

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.compat.v1.estimator.experimental.linear_logit_fn_builder.
    """
    count, weights = checked_units(units), Weights.checked(feature_columns, sparse_combiner)

    def logit_fn(features: Any) -> Any:
        return weights.logits(features, count)

    return logit_fn
