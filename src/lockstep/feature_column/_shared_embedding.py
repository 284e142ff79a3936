"""Columns of embeddings that share one table."""

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

from lockstep._model_fn.scope import ModelScope, demand
from lockstep.errors import ArgumentError
from lockstep.feature_column._columns import CategoricalColumn, DenseColumn, Weights, scope_name
from lockstep.feature_column._embedding import Table, checked_norm, checked_table
from lockstep.feature_column._features import Features
from lockstep.feature_column._lookup import check_combiner, combined
from lockstep.feature_column._weighted import WeightedCategoricalColumn, check_categorical

# The tables of each call of a model_fn, by their names.
_tables: weakref.WeakKeyDictionary[ModelScope, dict[Shared, Any]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Shared:
    """A table that several columns share.

    Attributes:
        name: Of its variable.
        rows: How many categories there are.
        table: What it is made of.
    """

    name: str
    rows: int
    table: Table

    def variable(self) -> Any:
        """Returns its variable in the running call of a model_fn.

        Raises:
            StartupOrderError: If none is running.
        """
        made = _tables.setdefault(demand("shared_embeddings"), {})
        if self not in made:
            made[self] = self._made()
        return made[self]

    def _made(self) -> Any:
        with _no_scope():
            return keras.Variable(
                self.table.first_values,
                shape=(self.rows, self.table.dimension),
                dtype="float32",
                trainable=self.table.trainable,
                name=scope_name(self.name),
            )


@contextlib.contextmanager
def _no_scope() -> Generator[None]:
    """While open, names of variables begin anew: a shared one belongs to no layer."""
    before = global_state.get_global_attribute("name_scope_stack")
    global_state.set_global_attribute("name_scope_stack", None)
    try:
        yield
    finally:
        global_state.set_global_attribute("name_scope_stack", before)


@dataclass(frozen=True)
class SharedEmbeddingColumn(DenseColumn):
    """One of what `shared_embeddings` returns; see there."""

    categorical_column: CategoricalColumn
    shared: Shared
    combiner: str
    max_norm: float | None
    use_safe_embedding_lookup: bool

    @property
    def name(self) -> str:
        return f"{self.categorical_column.name}_shared_embedding"

    @property
    def dimension(self) -> int:
        """How many numbers there are for each category."""
        return self.shared.table.dimension

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        return self.categorical_column.parse_example_spec

    @property
    def variable_shape(self) -> tuple[int, ...]:
        return (self.dimension,)

    def dense(self, features: Features, weights: Weights) -> jax.Array:
        found = self.categorical_column.ids(features)
        return combined(self.shared.variable(), found, self.combiner, self.max_norm)


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
    """Describes columns as `embedding_column` does, which share one variable; for use inside of a model_fn.

    Args:
        categorical_columns: Columns of one kind, with as many categories.
        dimension: How many numbers there are for each category.
        combiner: How the rows of an example's categories become one: "mean", "sqrtn" or "sum".
        initializer: Of the variable, as of `embedding_column`.
        shared_embedding_collection_name: The name of the variable; `None` for the columns' names, joined by "_", with
            "_shared_embedding" behind them.
        ckpt_to_load_from: A checkpoint, or a directory of them, that holds the first values.
        tensor_name_in_ckpt: The name of the variable there.
        max_norm: Rows longer than this are shortened to it.
        trainable: Whether optimizers change the variable.
        use_safe_embedding_lookup: As of `embedding_column`.

    Returns:
        A column for each, in their order.

    Raises:
        ArgumentError: If an argument is wrong.

    Source: tf.feature_column.shared_embeddings.
    """
    columns = list(categorical_columns)
    table = checked_table(dimension, initializer, ckpt_to_load_from, tensor_name_in_ckpt, trainable)
    check_combiner("combiner", combiner)
    _check_alike(columns)
    name = shared_embedding_collection_name or "_".join(sorted(c.name for c in columns)) + "_shared_embedding"
    shared = Shared(name, columns[0].num_buckets, table)
    norm = checked_norm(max_norm)
    return [SharedEmbeddingColumn(c, shared, combiner, norm, use_safe_embedding_lookup) for c in columns]


def _check_alike(columns: list[CategoricalColumn]) -> None:
    if not columns:
        raise ArgumentError("categorical_columns must hold a column. Received: none.")
    for column in columns:
        check_categorical("categorical_columns", column)
    found = {(type(_unweighted(column)).__name__, column.num_buckets) for column in columns}
    if len(found) > 1:
        raise ArgumentError(
            "Columns that share embeddings must be of one kind and have as many categories. Received: "
            f"{', '.join(f'{kind} of {count}' for kind, count in sorted(found))}."
        )


def _unweighted(column: CategoricalColumn) -> CategoricalColumn:
    return _unweighted(column.categorical_column) if isinstance(column, WeightedCategoricalColumn) else column
