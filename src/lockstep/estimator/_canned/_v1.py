"""Canned estimators as TensorFlow 1 has them.

They are those of TensorFlow 2 with other defaults: losses are summed over a batch, and optimizers given by their names
are those of `lockstep.train`.

Source: tf.compat.v1.estimator.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax

from lockstep import train
from lockstep.errors import ArgumentError
from lockstep.estimator._canned import _baseline, _combined, _dnn, _linear
from lockstep.estimator._canned._dnn import Columns, refuse_partitioner
from lockstep.estimator._heads import Head
from lockstep.estimator._run_config import RunConfig

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

_SUM = "weighted_sum"
_BY_NAME = {
    "Adagrad": train.AdagradOptimizer,
    "Adam": train.AdamOptimizer,
    "Ftrl": train.FtrlOptimizer,
    "RMSProp": train.RMSPropOptimizer,
    "SGD": train.GradientDescentOptimizer,
}


def _optimizer(given: Any, learning_rate: float) -> Any:
    """Returns what makes the optimizer of a name; what is given otherwise as it is."""
    if not isinstance(given, str):
        return given
    if given not in _BY_NAME:
        raise ArgumentError(f"The names of optimizers are {', '.join(_BY_NAME)}. Received: {given!r}.")
    return functools.partial(_BY_NAME[given], learning_rate)


_baseline_optimizer = functools.partial(_optimizer, learning_rate=0.3)
_dnn_optimizer = functools.partial(_optimizer, learning_rate=0.05)
_deep_optimizer = functools.partial(_optimizer, learning_rate=0.001)


def _linear_optimizer(given: Any, columns: Sequence[Any], most: float, by_name: bool) -> Any:
    rate = min(most, max(len(columns), 1) ** -0.5) if by_name or given is None else most
    return _optimizer("Ftrl" if given is None else given, rate)


def _listed(columns: Any) -> list[Any]:
    return [] if columns is None else list(columns)


class LinearEstimator(_linear.LinearEstimator):
    """As `lockstep.estimator.LinearEstimator`; `partitioner` must be `None`.

    Source: tf.compat.v1.estimator.LinearEstimator.
    """

    def __init__(
        self,
        head: Head,
        feature_columns: Columns,
        model_dir: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        partitioner: None = None,
        sparse_combiner: str = "sum",
        warm_start_from: Any = None,
    ) -> None:
        refuse_partitioner("partitioner", partitioner)
        columns = _listed(feature_columns)
        chosen = _linear_optimizer(optimizer, columns, 0.2, False)
        super().__init__(head, columns, model_dir, chosen, config, sparse_combiner, warm_start_from)


class LinearClassifier(_linear.LinearClassifier):
    """As `lockstep.estimator.LinearClassifier`; `partitioner` must be `None`.

    Source: tf.compat.v1.estimator.LinearClassifier.
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
        partitioner: None = None,
        warm_start_from: Any = None,
        loss_reduction: str = _SUM,
        sparse_combiner: str = "sum",
    ) -> None:
        refuse_partitioner("partitioner", partitioner)
        columns = _listed(feature_columns)
        super().__init__(
            columns,
            model_dir,
            n_classes,
            weight_column,
            label_vocabulary,
            _linear_optimizer(optimizer, columns, 0.2, False),
            config,
            warm_start_from,
            loss_reduction,
            sparse_combiner,
        )


class LinearRegressor(_linear.LinearRegressor):
    """As `lockstep.estimator.LinearRegressor`; `partitioner` must be `None`.

    Source: tf.compat.v1.estimator.LinearRegressor.
    """

    def __init__(
        self,
        feature_columns: Columns,
        model_dir: Any = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        partitioner: None = None,
        warm_start_from: Any = None,
        loss_reduction: str = _SUM,
        sparse_combiner: str = "sum",
    ) -> None:
        refuse_partitioner("partitioner", partitioner)
        columns = _listed(feature_columns)
        super().__init__(
            columns,
            model_dir,
            label_dimension,
            weight_column,
            _linear_optimizer(optimizer, columns, 0.2, False),
            config,
            warm_start_from,
            loss_reduction,
            sparse_combiner,
        )


class DNNEstimator(_dnn.DNNEstimator):
    """As `lockstep.estimator.DNNEstimator`; `input_layer_partitioner` must be `None`.

    Source: tf.compat.v1.estimator.DNNEstimator.
    """

    def __init__(
        self,
        head: Head,
        hidden_units: Iterable[int],
        feature_columns: Columns,
        model_dir: Any = None,
        optimizer: Any = "Adagrad",
        activation_fn: Any = jax.nn.relu,
        dropout: float | None = None,
        input_layer_partitioner: None = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        batch_norm: bool = False,
    ) -> None:
        refuse_partitioner("input_layer_partitioner", input_layer_partitioner)
        super().__init__(
            head,
            hidden_units,
            feature_columns,
            model_dir,
            _dnn_optimizer(optimizer),
            activation_fn,
            dropout,
            config,
            warm_start_from,
            batch_norm,
        )


class DNNClassifier(_dnn.DNNClassifier):
    """As `lockstep.estimator.DNNClassifier`; `input_layer_partitioner` must be `None`.

    Source: tf.compat.v1.estimator.DNNClassifier.
    """

    def __init__(
        self,
        hidden_units: Iterable[int],
        feature_columns: Columns,
        model_dir: Any = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        optimizer: Any = "Adagrad",
        activation_fn: Any = jax.nn.relu,
        dropout: float | None = None,
        input_layer_partitioner: None = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = _SUM,
        batch_norm: bool = False,
    ) -> None:
        refuse_partitioner("input_layer_partitioner", input_layer_partitioner)
        super().__init__(
            hidden_units,
            feature_columns,
            model_dir,
            n_classes,
            weight_column,
            label_vocabulary,
            _dnn_optimizer(optimizer),
            activation_fn,
            dropout,
            config,
            warm_start_from,
            loss_reduction,
            batch_norm,
        )


class DNNRegressor(_dnn.DNNRegressor):
    """As `lockstep.estimator.DNNRegressor`; `input_layer_partitioner` must be `None`.

    Source: tf.compat.v1.estimator.DNNRegressor.
    """

    def __init__(
        self,
        hidden_units: Iterable[int],
        feature_columns: Columns,
        model_dir: Any = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Adagrad",
        activation_fn: Any = jax.nn.relu,
        dropout: float | None = None,
        input_layer_partitioner: None = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = _SUM,
        batch_norm: bool = False,
    ) -> None:
        refuse_partitioner("input_layer_partitioner", input_layer_partitioner)
        super().__init__(
            hidden_units,
            feature_columns,
            model_dir,
            label_dimension,
            weight_column,
            _dnn_optimizer(optimizer),
            activation_fn,
            dropout,
            config,
            warm_start_from,
            loss_reduction,
            batch_norm,
        )


class DNNLinearCombinedEstimator(_combined.DNNLinearCombinedEstimator):
    """As `lockstep.estimator.DNNLinearCombinedEstimator`; `input_layer_partitioner` must be `None`.

    Source: tf.compat.v1.estimator.DNNLinearCombinedEstimator.
    """

    def __init__(
        self,
        head: Head,
        model_dir: Any = None,
        linear_feature_columns: Columns | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Columns | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Iterable[int] | None = None,
        dnn_activation_fn: Any = jax.nn.relu,
        dnn_dropout: float | None = None,
        input_layer_partitioner: None = None,
        config: RunConfig | None = None,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        refuse_partitioner("input_layer_partitioner", input_layer_partitioner)
        wide = _listed(linear_feature_columns)
        super().__init__(
            head,
            model_dir,
            wide,
            _linear_optimizer(linear_optimizer, wide, 0.005, True),
            dnn_feature_columns,
            _deep_optimizer(dnn_optimizer),
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            config,
            batch_norm,
            linear_sparse_combiner,
        )


class DNNLinearCombinedClassifier(_combined.DNNLinearCombinedClassifier):
    """As `lockstep.estimator.DNNLinearCombinedClassifier`; `input_layer_partitioner` must be `None`.

    Source: tf.compat.v1.estimator.DNNLinearCombinedClassifier.
    """

    def __init__(
        self,
        model_dir: Any = None,
        linear_feature_columns: Columns | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Columns | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Iterable[int] | None = None,
        dnn_activation_fn: Any = jax.nn.relu,
        dnn_dropout: float | None = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        input_layer_partitioner: None = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = _SUM,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        refuse_partitioner("input_layer_partitioner", input_layer_partitioner)
        wide = _listed(linear_feature_columns)
        super().__init__(
            model_dir,
            wide,
            _linear_optimizer(linear_optimizer, wide, 0.005, True),
            dnn_feature_columns,
            _deep_optimizer(dnn_optimizer),
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            n_classes,
            weight_column,
            label_vocabulary,
            config,
            warm_start_from,
            loss_reduction,
            batch_norm,
            linear_sparse_combiner,
        )


class DNNLinearCombinedRegressor(_combined.DNNLinearCombinedRegressor):
    """As `lockstep.estimator.DNNLinearCombinedRegressor`; `input_layer_partitioner` must be `None`.

    Source: tf.compat.v1.estimator.DNNLinearCombinedRegressor.
    """

    def __init__(
        self,
        model_dir: Any = None,
        linear_feature_columns: Columns | None = None,
        linear_optimizer: Any = "Ftrl",
        dnn_feature_columns: Columns | None = None,
        dnn_optimizer: Any = "Adagrad",
        dnn_hidden_units: Iterable[int] | None = None,
        dnn_activation_fn: Any = jax.nn.relu,
        dnn_dropout: float | None = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        input_layer_partitioner: None = None,
        config: RunConfig | None = None,
        warm_start_from: Any = None,
        loss_reduction: str = _SUM,
        batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ) -> None:
        refuse_partitioner("input_layer_partitioner", input_layer_partitioner)
        wide = _listed(linear_feature_columns)
        super().__init__(
            model_dir,
            wide,
            _linear_optimizer(linear_optimizer, wide, 0.005, True),
            dnn_feature_columns,
            _deep_optimizer(dnn_optimizer),
            dnn_hidden_units,
            dnn_activation_fn,
            dnn_dropout,
            label_dimension,
            weight_column,
            config,
            warm_start_from,
            loss_reduction,
            batch_norm,
            linear_sparse_combiner,
        )


class BaselineEstimator(_baseline.BaselineEstimator):
    """As `lockstep.estimator.BaselineEstimator`.

    Source: tf.compat.v1.estimator.BaselineEstimator.
    """

    def __init__(
        self, head: Head, model_dir: Any = None, optimizer: Any = "Ftrl", config: RunConfig | None = None
    ) -> None:
        super().__init__(head, model_dir, _baseline_optimizer(optimizer), config)


class BaselineClassifier(_baseline.BaselineClassifier):
    """As `lockstep.estimator.BaselineClassifier`.

    Source: tf.compat.v1.estimator.BaselineClassifier.
    """

    def __init__(
        self,
        model_dir: Any = None,
        n_classes: int = 2,
        weight_column: Any = None,
        label_vocabulary: Sequence[str | bytes] | None = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str = _SUM,
    ) -> None:
        chosen = _baseline_optimizer(optimizer)
        super().__init__(model_dir, n_classes, weight_column, label_vocabulary, chosen, config, loss_reduction)


class BaselineRegressor(_baseline.BaselineRegressor):
    """As `lockstep.estimator.BaselineRegressor`.

    Source: tf.compat.v1.estimator.BaselineRegressor.
    """

    def __init__(
        self,
        model_dir: Any = None,
        label_dimension: int = 1,
        weight_column: Any = None,
        optimizer: Any = "Ftrl",
        config: RunConfig | None = None,
        loss_reduction: str = _SUM,
    ) -> None:
        chosen = _baseline_optimizer(optimizer)
        super().__init__(model_dir, label_dimension, weight_column, chosen, config, loss_reduction)
