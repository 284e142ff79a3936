"""Embedding columns that share one table."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import keras
from keras.src.backend.common import global_state

from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.scope import ModelScope, demand
from lockstep.estimator.feature_column._columns import CategoricalColumn, DenseColumn, VariableProvider, scope_name
from lockstep.estimator.feature_column._embedding import Table, check_norm, create_table
from lockstep.estimator.feature_column._features import Features
from lockstep.estimator.feature_column._lookup import check_combiner, combine_rows
from lockstep.estimator.feature_column._weighted import WeightedCategoricalColumn, check_categorical

# The tables of each model_fn call; weak, so that they end with its scope.
_tables: weakref.WeakKeyDictionary[ModelScope, dict[SharedTable, Any]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class SharedTable:
    """An embedding table of several columns.

    Attributes:
        name: Name of its variable.
        rows: Number of categories.
        table: Settings of the table.
    """

    name: str
    rows: int
    table: Table

    def variable(self) -> Any:
        """Returns its variable in the current model_fn call.

        Raises:
            StartupOrderError: Outside of a model_fn.
        """
        tables = _tables.setdefault(demand("shared_embeddings"), {})
        if self not in tables:
            tables[self] = self._create()
        return tables[self]

    def _create(self) -> Any:
        with _root_name_scope():
            return keras.Variable(
                self.table.first_values,
                shape=(self.rows, self.table.dimension),
                dtype="float32",
                trainable=self.table.trainable,
                name=scope_name(self.name),
            )


@contextlib.contextmanager
def _root_name_scope() -> Generator[None]:
    """Leaves all name scopes, within the context: a shared variable belongs to no layer."""
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
    table = create_table(dimension, initializer, ckpt_to_load_from, tensor_name_in_ckpt, trainable)
    check_combiner("combiner", combiner)
    _check_same_kind(columns)
    # Sorted, so that the name does not depend on the order of columns, as in TensorFlow.
    name = shared_embedding_collection_name or "_".join(sorted(c.name for c in columns)) + "_shared_embedding"
    shared = SharedTable(name, columns[0].num_buckets, table)
    norm = check_norm(max_norm)
    return [SharedEmbeddingColumn(c, shared, combiner, norm, use_safe_embedding_lookup) for c in columns]


def _check_same_kind(columns: list[CategoricalColumn]) -> None:
    if not columns:
        raise ArgumentError("categorical_columns must hold a column. Received: none.")
    for column in columns:
        check_categorical("categorical_columns", column)
    kinds = {(type(_strip_weights(column)).__name__, column.num_buckets) for column in columns}
    if len(kinds) > 1:
        raise ArgumentError(
            "Columns that share embeddings must be of one kind and have as many categories. Received: "
            f"{', '.join(f'{kind} of {count}' for kind, count in sorted(kinds))}."
        )


def _strip_weights(column: CategoricalColumn) -> CategoricalColumn:
    return _strip_weights(column.categorical_column) if isinstance(column, WeightedCategoricalColumn) else column
