"""Dense columns of categories: multi-hot indicators, embeddings, and embeddings that share one table."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src.backend.common import global_state

from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.scope import ModelScope, demand
from lockstep.estimator.feature_column._categorical import WeightedCategoricalColumn, check_categorical
from lockstep.estimator.feature_column._columns import (
    CategoricalColumn,
    DenseColumn,
    Initializer,
    VariableProvider,
    scope_name,
)
from lockstep.estimator.feature_column._features import Features
from lockstep.estimator.feature_column._lookup import check_combiner, combine_rows, from_checkpoint

# The tables of each model_fn call; weak, so that they end with its scope.
_tables: weakref.WeakKeyDictionary[ModelScope, dict[SharedTable, Any]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class IndicatorColumn(DenseColumn):
    """Column of `indicator_column`."""

    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_indicator"

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_example_spec

    @property
    def variable_shape(self) -> tuple[int, ...]:
        # [1, num_buckets] is TensorFlow's shape, too; a layer flattens it.
        return (1, self.categorical_column.num_buckets)

    def dense(self, features: Features, weights: VariableProvider) -> jax.Array:
        return features.cached(self, lambda: self._multi_hot(features))

    def _multi_hot(self, features: Features) -> jax.Array:
        categories = self.categorical_column.ids(features)
        batch, size = categories.ids.shape[0], self.categorical_column.num_buckets
        # mode="drop" drops an index past the end, but a negative one counts from the end.
        indices = jnp.where(categories.ids < 0, size, categories.ids)
        amounts = jnp.ones(indices.shape, jnp.float32) if categories.weights is None else categories.weights
        counts = jnp.zeros((batch, size), jnp.float32)
        return counts.at[jnp.arange(batch)[:, None], indices].add(amounts, mode="drop")[:, None]


def indicator_column(categorical_column: CategoricalColumn) -> IndicatorColumn:
    """Describes a multi-hot array of a column's categories: counts, or sums of weights.

    Args:
        categorical_column: The categorical column.

    Raises:
        ArgumentError: If it is not categorical.

    Source: tf.feature_column.indicator_column.
    """
    check_categorical("categorical_column", categorical_column)
    return IndicatorColumn(categorical_column)


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
        # As an initializer, so that a checkpoint of this program's own takes precedence on restart.
        if self.ckpt_to_load_from is not None and self.tensor_name_in_ckpt is not None:
            return from_checkpoint(self.ckpt_to_load_from, self.tensor_name_in_ckpt)
        # TensorFlow's default: a truncated normal distribution whose embeddings have a length of about 1.
        return self.initializer or keras.initializers.TruncatedNormal(0.0, self.dimension**-0.5)


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
        categories = self.categorical_column.ids(features)
        return combine_rows(self.make_variables(weights), categories, self.combiner, self.max_norm)

    def make_variables(self, weights: VariableProvider) -> Any:
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
    table = _create_table(dimension, initializer, ckpt_to_load_from, tensor_name_in_ckpt, trainable)
    check_combiner("combiner", combiner)
    return EmbeddingColumn(categorical_column, table, combiner, _check_norm(max_norm), use_safe_embedding_lookup)


def _create_table(
    dimension: object,
    initializer: Initializer,
    checkpoint: str | os.PathLike[str] | None,
    name: str | None,
    trainable: bool,
) -> Table:
    """Checks arguments and returns the settings of an embedding table."""
    if not isinstance(dimension, (int, np.integer)) or dimension < 1:
        raise ArgumentError(f"dimension must be an integer from 1 up. Received: {dimension!r}.")
    # TensorFlow refuses one without the other, too.
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


def _check_norm(max_norm: object) -> float | None:
    if max_norm is None:
        return None
    if not isinstance(max_norm, (int, float, np.number)) or not max_norm > 0:
        raise ArgumentError(f"max_norm must be a number above 0. Received: {max_norm!r}.")
    return float(max_norm)


@dataclass(frozen=True)
class SharedTable:
    """An embedding table of several columns, with the name of its variable and the number of categories."""

    name: str
    rows: int
    table: Table

    def variable(self) -> Any:
        """Returns its variable in the current model_fn call."""
        tables = _tables.setdefault(demand("shared_embeddings"), {})
        if self not in tables:
            with _root_name_scope():
                tables[self] = keras.Variable(
                    self.table.first_values,
                    shape=(self.rows, self.table.dimension),
                    dtype="float32",
                    trainable=self.table.trainable,
                    name=scope_name(self.name),
                )
        return tables[self]


@contextlib.contextmanager
def _root_name_scope() -> Generator[None]:
    """Leaves all name scopes, within the context: a shared variable belongs to no layer."""
    # Keras can only nest scopes, so its stack is put aside.
    before = global_state.get_global_attribute("name_scope_stack")
    global_state.set_global_attribute("name_scope_stack", None)
    try:
        yield
    finally:
        global_state.set_global_attribute("name_scope_stack", before)


@dataclass(frozen=True)
class SharedEmbeddingColumn(DenseColumn):
    """Column of `shared_embeddings`."""

    categorical_column: CategoricalColumn
    shared: SharedTable
    combiner: str
    max_norm: float | None
    use_safe_embedding_lookup: bool

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_shared_embedding"

    @property
    def dimension(self) -> int:
        """Returns the number of dimensions of an embedding."""
        return self.shared.table.dimension

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_example_spec

    @property
    def variable_shape(self) -> tuple[int, ...]:
        return (self.dimension,)

    def dense(self, features: Features, weights: VariableProvider) -> jax.Array:
        categories = self.categorical_column.ids(features)
        return combine_rows(self.shared.variable(), categories, self.combiner, self.max_norm)


def shared_embeddings(
    categorical_columns: Iterable[CategoricalColumn],
    dimension: int,
    combiner: str = "mean",
    initializer: Callable[..., Any] | None = None,
    shared_embedding_collection_name: str | None = None,
    ckpt_to_load_from: str | os.PathLike[str] | None = None,
    tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None,
    trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> list[SharedEmbeddingColumn]:
    """Describes embeddings of several columns that share one variable; for use in a model_fn.

    Args:
        categorical_columns: Columns of one class, with the same number of categories.
        dimension: Returns the number of dimensions of an embedding.
        combiner: The combiner of the embeddings of an example's categories: "mean", "sqrtn" or "sum".
        initializer: See `embedding_column`.
        shared_embedding_collection_name: The name of the variable; `None` for the columns' names, joined by "_", with
            "_shared_embedding" behind them.
        ckpt_to_load_from: A checkpoint, or a directory of checkpoints, with the first values.
        tensor_name_in_ckpt: The variable's name in the checkpoint.
        max_norm: The maximum L2 norm of embeddings, to which longer ones are clipped.
        trainable: Whether optimizers update the variable.
        use_safe_embedding_lookup: See `embedding_column`.

    Returns:
        A column for each, in their order.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.feature_column.shared_embeddings.
    """
    columns = list(categorical_columns)
    table = _create_table(dimension, initializer, ckpt_to_load_from, tensor_name_in_ckpt, trainable)
    check_combiner("combiner", combiner)
    if not columns:
        raise ArgumentError("categorical_columns must hold a column. Received: none.")
    for column in columns:
        check_categorical("categorical_columns", column)
    # TensorFlow's rule: one row of the table is to mean one category in all columns. Weights do not change that.
    kinds = {(type(_strip_weights(column)).__name__, column.num_buckets) for column in columns}
    if len(kinds) > 1:
        raise ArgumentError(
            "Columns that share embeddings must be of one kind and have as many categories. Received: "
            f"{', '.join(f'{kind} of {count}' for kind, count in sorted(kinds))}."
        )
    # Sorted, so that the name does not depend on the order of columns, as in TensorFlow.
    name = shared_embedding_collection_name or "_".join(sorted(c.name for c in columns)) + "_shared_embedding"
    shared = SharedTable(name, columns[0].num_buckets, table)
    norm = _check_norm(max_norm)
    return [SharedEmbeddingColumn(c, shared, combiner, norm, use_safe_embedding_lookup) for c in columns]


def _strip_weights(column: CategoricalColumn) -> CategoricalColumn:
    return _strip_weights(column.categorical_column) if isinstance(column, WeightedCategoricalColumn) else column
