"""Canned baselines: estimators that ignore features, to compare others with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import keras

from lockstep._types import PyTree
from lockstep.errors import ArgumentError
from lockstep.estimator._canned._parts import Features, OptimizerLike, Path, WeightColumn, part_model_fn
from lockstep.estimator._estimator import Estimator
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._heads import Head, RegressionHead
from lockstep.estimator._heads._classifiers import classifier_head
from lockstep.estimator._heads._loss_head import SUM_OVER_BATCH_SIZE
from lockstep.estimator._run_config import RunConfig
from lockstep.estimator.feature_column._numeric import NumericColumn


def baseline_model_fn(
    head: Head, optimizer: OptimizerLike, weight_column: WeightColumn = None
) -> Callable[..., EstimatorSpec]:
    """Returns the model_fn of a bias with a head."""
    # tf.estimator's baseline reads of the features how many examples there are, and nothing else.
    key = weight_column.key if isinstance(weight_column, NumericColumn) else weight_column

    def logits(features: Features, mode: str, units: int) -> jax.Array:
        # Zeros, so that the first predictions are 1/2 or 0, as tf.estimator's baseline starts.
        bias = keras.Variable("zeros", shape=(units,), dtype="float32", name="bias")
        return jnp.broadcast_to(bias.value, (batch_size(features, key), units))

    # 0.3 is TensorFlow's learning rate of an optimizer given by name.
    return part_model_fn("baseline", head, logits, optimizer, 0.3)


def batch_size(features: PyTree, weight_key: str | None) -> int:
    """Returns the number of examples in a batch of features."""
    # All must agree, as TensorFlow asserts; not weights: a serving input has none, or a placeholder of another size.
    columns = features if isinstance(features, Mapping) else {"features": features}
    # An input_fn without a dataset may return lists or tuples of numbers, and TensorFlow takes their length.
    sizes = {
        key: value.shape[0] if hasattr(value, "shape") else len(value)
        for key, value in columns.items()
        if key != weight_key
    }
    if len(set(sizes.values())) != 1:
        raise ArgumentError(f"Features must tell how many examples there are, all the same. Received: {sizes}.")
    return next(iter(sizes.values()))


class BaselineEstimator(Estimator):
    """A baseline with a head: learns constant logits.

    Args:
        head: A head of `lockstep.estimator`, or a custom one.
        model_dir: The directory of checkpoints and event files.
        optimizer: An optimizer's name ("Adagrad", "Adam", "Ftrl", "RMSProp", "SGD", with a learning rate of 0.3), an
            optimizer of Keras, lockstep.estimator.train or optax, or a function that returns one.
        config: A `RunConfig`.

    Source: tf.estimator.BaselineEstimator.
    """

    def __init__(
        self,
        head: Head,
        model_dir: Path | None = None,
        optimizer: OptimizerLike = "Ftrl",
        config: RunConfig | None = None,
    ) -> None:
        super().__init__(baseline_model_fn(head, optimizer), model_dir, config)


class BaselineClassifier(Estimator):
    """A baseline classifier: learns the frequencies of classes.

    Args:
        model_dir: The directory of checkpoints and event files.
        n_classes: Number of classes.
        weight_column: The feature of example weights: its name, or a numeric column.
        label_vocabulary: Labels as text, in the order of the classes; `None` for integer labels.
        optimizer: See `BaselineEstimator`.
        config: A `RunConfig`.
        loss_reduction: The reduction of the examples' losses.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.BaselineClassifier.
    """

    def __init__(
        self,
        model_dir: Path | None = None,
        n_classes: int = 2,
        weight_column: WeightColumn | None = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        optimizer: OptimizerLike = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
    ) -> None:
        head = classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(baseline_model_fn(head, optimizer, weight_column), model_dir, config)


class BaselineRegressor(Estimator):
    """A baseline regressor: learns the mean of labels.

    Args:
        model_dir: The directory of checkpoints and event files.
        label_dimension: Number of labels per example.
        weight_column: The feature of example weights: its name, or a numeric column.
        optimizer: See `BaselineEstimator`.
        config: A `RunConfig`.
        loss_reduction: The reduction of the examples' losses.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.BaselineRegressor.
    """

    def __init__(
        self,
        model_dir: Path | None = None,
        label_dimension: int = 1,
        weight_column: WeightColumn | None = None,
        optimizer: OptimizerLike = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(baseline_model_fn(head, optimizer, weight_column), model_dir, config)
