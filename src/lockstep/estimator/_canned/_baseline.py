"""Estimators that ignore features, to compare others with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras

from lockstep.errors import ArgumentError
from lockstep.estimator._canned._optimizers import optimizer_of
from lockstep.estimator._canned._parts import part
from lockstep.estimator._estimator import Estimator
from lockstep.estimator._estimator_spec import EstimatorSpec
from lockstep.estimator._heads import Head, RegressionHead
from lockstep.estimator._heads._multi_class import classifier_head
from lockstep.estimator._heads._reduction import SUM_OVER_BATCH_SIZE
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._run_config import RunConfig

# TensorFlow's: of an optimizer given by its name.
_LEARNING_RATE = 0.3


def baseline_model_fn(head: Head, optimizer: Any, weight_column: Any = None) -> Callable[..., EstimatorSpec]:
    """Returns the model_fn of a bias under a head."""
    key = getattr(weight_column, "key", weight_column)

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        found = part("baseline", lambda: _bias(batch_size(features, key), head.logits_dimension))
        return head.create_estimator_spec(
            features=features,
            mode=mode,
            labels=labels,
            logits=found.logits,
            optimizer=optimizer_of(optimizer, _LEARNING_RATE) if mode == ModeKeys.TRAIN else None,
            trainable_variables=found.variables,
        )

    return model_fn


def _bias(batch: int, units: int) -> jax.Array:
    bias = keras.Variable("zeros", shape=(units,), dtype="float32", name="bias")
    return jnp.broadcast_to(bias.value, (batch, units))


def batch_size(features: Any, weight_key: Any) -> int:
    """How many examples there are; weights do not count, so that none are needed to predict."""
    given = features if isinstance(features, Mapping) else {"features": features}
    sizes = {key: value.shape[0] for key, value in given.items() if key != weight_key}
    if len(set(sizes.values())) != 1:
        raise ArgumentError(f"Features must tell how many examples there are, all the same. Received: {sizes}.")
    return next(iter(sizes.values()))


class BaselineEstimator(Estimator):
    """Learns the best constant logits for a head.

    Args:
        head: One of `lockstep.estimator`'s, or one's own.
        model_dir: Where checkpoints and event files are kept.
        optimizer: Its name ("Adagrad", "Adam", "Ftrl", "RMSProp", "SGD", with a learning rate of 0.3), an optimizer of
            Keras, lockstep.train or optax, or a function that returns such.
        config: A `RunConfig`.

    Source: tf.estimator.BaselineEstimator.
    """

    def __init__(
        self, head: Head, model_dir: Any = None, optimizer: Any = "Ftrl", config: RunConfig | None = None
    ) -> None:
        super().__init__(baseline_model_fn(head, optimizer), model_dir, config)


class BaselineClassifier(Estimator):
    """Learns how frequent classes are.

    Args:
        model_dir: Where checkpoints and event files are kept.
        n_classes: How many classes.
        weight_column: The name of the feature of weights, or a numeric column.
        label_vocabulary: The words that labels are, in the order of the classes; `None` for integers.
        optimizer: As of `BaselineEstimator`.
        config: A `RunConfig`.
        loss_reduction: How the losses of examples become one.

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.estimator.BaselineClassifier.
    """

    def __init__(
        self,
        model_dir: Any = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
    ) -> None:
        head = classifier_head(n_classes, weight_column, label_vocabulary, loss_reduction)
        super().__init__(baseline_model_fn(head, optimizer, weight_column), model_dir, config)


class BaselineRegressor(Estimator):
    """Learns the mean of labels.

    Args:
        model_dir: Where checkpoints and event files are kept.
        label_dimension: How many numbers for each example.
        weight_column: The name of the feature of weights, or a numeric column.
        optimizer: As of `BaselineEstimator`.
        config: A `RunConfig`.
        loss_reduction: How the losses of examples become one.

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.estimator.BaselineRegressor.
    """

    def __init__(
        self,
        model_dir: Any = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str = SUM_OVER_BATCH_SIZE,
    ) -> None:
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(baseline_model_fn(head, optimizer, weight_column), model_dir, config)
