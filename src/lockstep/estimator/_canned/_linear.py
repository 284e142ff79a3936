"""Canned linear estimators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lockstep._types import Tensor
from lockstep.estimator._canned._parts import (
    Columns,
    Features,
    LinearModel,
    OptimizerLike,
    Path,
    WarmStart,
    WeightColumn,
    check_units,
    part_model_fn,
)
from lockstep.estimator._estimator import Estimator
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._heads import Head, RegressionHead
from lockstep.estimator._heads._classifiers import classifier_head
from lockstep.estimator._heads._loss_head import SUM_OVER_BATCH_SIZE
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._run_config import RunConfig


def linear_model_fn(
    head: Head, feature_columns: Columns, sparse_combiner: str, optimizer: OptimizerLike
) -> Callable[..., EstimatorSpec]:
    """Returns the model_fn of a linear model with a head."""
    linear = LinearModel.create(feature_columns, sparse_combiner)
    # TensorFlow's learning rate of an optimizer given by name. It is lowered with the number of columns, whose steps
    # add up, for the default optimizer only.
    rate = 0.2
    if optimizer is None:
        optimizer, rate = "Ftrl", min(rate, len(linear.feature_columns) ** -0.5)
    return part_model_fn("linear", head, linear.logits, optimizer, rate)


class LinearEstimator(Estimator):
    """A linear model with a head.

    Args:
        head: A head of `lockstep.estimator`, or a custom one.
        feature_columns: Dense or categorical feature columns.
        model_dir: The directory of checkpoints and event files.
        optimizer: An optimizer's name ("Adagrad", "Adam", "Ftrl", "RMSProp", "SGD", with a learning rate of 0.2), an
            optimizer of Keras, lockstep.estimator.train or optax, or a function that returns one; `None` for Ftrl with
            the learning rate min(0.2, 1 / sqrt(number of columns)).
        config: A `RunConfig`.
        sparse_combiner: The combiner of the weights of a column's categories: "sum", "mean" or "sqrtn".
        warm_start_from: A checkpoint, a directory of checkpoints, or `WarmStartSettings`.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.LinearEstimator.
    """

    def __init__(
        self,
        head: Head,
        feature_columns: Columns,
        model_dir: Path | None = None,
        optimizer: OptimizerLike = "Ftrl",
        config: RunConfig | None = None,
        sparse_combiner: str = "sum",
        warm_start_from: WarmStart | None = None,
    ) -> None:
        model_fn = linear_model_fn(head, feature_columns, sparse_combiner, optimizer)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class LinearClassifier(Estimator):
    """A linear classifier.

    Args:
        feature_columns: Dense or categorical feature columns.
        model_dir: The directory of checkpoints and event files.
        n_classes: Number of classes.
        weight_column: The feature of example weights: its name, or a numeric column.
        label_vocabulary: Labels as text, in the order of the classes; `None` for integer labels.
        optimizer: See `LinearEstimator`.
        config: A `RunConfig`.
        warm_start_from: A checkpoint, a directory of checkpoints, or `WarmStartSettings`.
        loss_reduction: The reduction of the examples' losses.
        sparse_combiner: The combiner of the weights of a column's categories: "sum", "mean" or "sqrtn".

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.LinearClassifier.
    """

    def __init__(
        self,
        feature_columns: Columns,
        model_dir: Path | None = None,
        n_classes: int = 2,
        weight_column: WeightColumn | None = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        optimizer: OptimizerLike = "Ftrl",
        config: RunConfig | None = None,
        warm_start_from: WarmStart | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        sparse_combiner: str = "sum",
    ) -> None:
        head = classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        model_fn = linear_model_fn(head, feature_columns, sparse_combiner, optimizer)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


class LinearRegressor(Estimator):
    """A linear regressor.

    Args:
        feature_columns: Dense or categorical feature columns.
        model_dir: The directory of checkpoints and event files.
        label_dimension: Number of labels per example.
        weight_column: The feature of example weights: its name, or a numeric column.
        optimizer: See `LinearEstimator`.
        config: A `RunConfig`.
        warm_start_from: A checkpoint, a directory of checkpoints, or `WarmStartSettings`.
        loss_reduction: The reduction of the examples' losses.
        sparse_combiner: The combiner of the weights of a column's categories: "sum", "mean" or "sqrtn".

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.LinearRegressor.
    """

    def __init__(
        self,
        feature_columns: Columns,
        model_dir: Path | None = None,
        label_dimension: int = 1,
        weight_column: WeightColumn | None = None,
        optimizer: OptimizerLike = "Ftrl",
        config: RunConfig | None = None,
        warm_start_from: WarmStart | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
        sparse_combiner: str = "sum",
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        model_fn = linear_model_fn(head, feature_columns, sparse_combiner, optimizer)
        super().__init__(model_fn, model_dir, config, warm_start_from=warm_start_from)


def linear_logit_fn_builder(
    units: int, feature_columns: Columns, sparse_combiner: str = "sum"
) -> Callable[[Features], Tensor]:
    """Returns a function of features that returns logits, (batch, units), for use in a model_fn.

    Args:
        units: Number of logits.
        feature_columns: Dense or categorical feature columns.
        sparse_combiner: The combiner of the weights of a column's categories: "sum", "mean" or "sqrtn".

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.compat.v1.estimator.experimental.linear_logit_fn_builder.
    """
    # Checked now: the function returned is called in a model_fn, far from its arguments.
    count, linear = check_units(units), LinearModel.create(feature_columns, sparse_combiner)
    # The mode makes no difference to a linear model.
    return lambda features: linear.logits(features, ModeKeys.TRAIN, count)
