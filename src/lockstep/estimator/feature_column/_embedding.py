"""Embedding columns: a trained vector for each category."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from lockstep.errors import ArgumentError
from lockstep.estimator.feature_column._columns import CategoricalColumn, DenseColumn, Initializer, VariableProvider
from lockstep.estimator.feature_column._features import Features
from lockstep.estimator.feature_column._lookup import check_combiner, combine_rows, default_initializer, from_checkpoint
from lockstep.estimator.feature_column._weighted import check_categorical


@dataclass(frozen=True)
class Table:
    """The settings of an embedding table; see `embedding_column`."""

    dimension: int
    initializer: Callable[..., Any] | None
    ckpt_to_load_from: str | None
    tensor_name_in_ckpt: str | None
    trainable: bool

    @property
    def first_values(self) -> Callable[..., Any]:
        """Returns the variable's initializer."""
        if self.ckpt_to_load_from is not None and self.tensor_name_in_ckpt is not None:
            return from_checkpoint(self.ckpt_to_load_from, self.tensor_name_in_ckpt)
        return default_initializer(self.initializer, self.dimension)


@dataclass(frozen=True)
class EmbeddingColumn(DenseColumn):
    """Column of `embedding_column`."""

    categorical_column: CategoricalColumn
    table: Table
    combiner: str
    max_norm: float | None
    use_safe_embedding_lookup: bool

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_embedding"

    @property
    def dimension(self) -> int:
        """Returns the number of dimensions of an embedding."""
        return self.table.dimension

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_example_spec

    @property
    def variable_shape(self) -> tuple[int, ...]:
        return (self.dimension,)

    def dense(self, features: Features, weights: VariableProvider) -> jax.Array:
        return combine_rows(
            self._variable(weights), self.categorical_column.ids(features), self.combiner, self.max_norm
        )

    def make_variables(self, weights: VariableProvider) -> None:
        self._variable(weights)

    def _variable(self, weights: VariableProvider) -> Any:
        shape = (self.categorical_column.num_buckets, self.dimension)
        return weights.get(self, "embedding_weights", shape, self.table.first_values, self.table.trainable)


def embedding_column(
    categorical_column: CategoricalColumn,
    dimension: int,
    combiner: str = "mean",
    initializer: Callable[..., Any] | None = None,
    ckpt_to_load_from: str | os.PathLike[str] | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> EmbeddingColumn:
    """Describes a trained embedding of the categories of a column.

    Args:
        categorical_column: The categorical column.
        dimension: Number of dimensions of an embedding.
        combiner: The combiner of the embeddings of an example's categories: "mean", "sqrtn" or "sum".
        initializer: The variable's initializer, called with a shape and dtype; `None` for a normal distribution of
            deviation 1/sqrt(dimension), cut at two deviations.
        ckpt_to_load_from: A checkpoint, or a directory of checkpoints, with the first values.
        tensor_name_in_ckpt: The variable's name in the checkpoint.
        max_norm: The maximum L2 norm of embeddings, to which longer ones are clipped.
        trainable: Whether optimizers update the variable.
        use_safe_embedding_lookup: Accepted for TensorFlow's sake: examples without a category always get zeros.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.feature_column.embedding_column.
    """
    check_categorical("categorical_column", categorical_column)
    table = create_table(dimension, initializer, ckpt_to_load_from, tensor_name_in_ckpt, trainable)
    check_combiner("combiner", combiner)
    return EmbeddingColumn(categorical_column, table, combiner, check_norm(max_norm), use_safe_embedding_lookup)


def create_table(
    dimension: object,
    initializer: Initializer,
    checkpoint: str | os.PathLike[str] | None,
    name: str | None,
    trainable: bool,
) -> Table:
    """Checks arguments and returns the settings of an embedding table.

    Raises:
        ArgumentError: If an argument is invalid.
    """
    if not isinstance(dimension, (int, np.integer)) or dimension < 1:
        raise ArgumentError(f"dimension must be an integer from 1 up. Received: {dimension!r}.")
    if (checkpoint is None) != (name is None):
        raise ArgumentError(
            "ckpt_to_load_from and tensor_name_in_ckpt belong together: a checkpoint, and a variable in it. Received: "
            f"{checkpoint!r} and {name!r}."
        )
    if initializer is not None and not callable(initializer):
        raise ArgumentError(
            "initializer must be a function of shape and dtype, such as one of keras.initializers. Received: "
            f"{initializer!r}."
        )
    return Table(
        int(dimension), initializer, None if checkpoint is None else os.fspath(checkpoint), name, bool(trainable)
    )


def check_norm(max_norm: object) -> float | None:
    """Checks a maximum norm.

    Raises:
        ArgumentError: If it is no positive number.
    """
    if max_norm is None:
        return None
    if not isinstance(max_norm, (int, float, np.number)) or not max_norm > 0:
        raise ArgumentError(f"max_norm must be a number above 0. Received: {max_norm!r}.")
    return float(max_norm)
