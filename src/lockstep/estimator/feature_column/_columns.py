"""Base classes of feature columns, and checks of lists of columns."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp

from lockstep._types import DType, Variable
from lockstep.errors import ArgumentError
from lockstep.estimator.feature_column._features import Features

Initializer: TypeAlias = Any
"""The name of a Keras initializer, or a function of shape and dtype."""


class FeatureColumn(ABC):
    """A feature column: immutable, and equal to a column with the same attributes."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Returns the column's name, unique in a model."""

    @property
    @abstractmethod
    def parse_example_spec(self) -> dict[str, Any]:
        """Returns the tf.io.parse_example spec of the features that the column needs, by key."""


class VariableProvider(Protocol):
    """Provider of columns' variables."""

    # Columns are immutable and shared between models, so variables belong to the layer or the model_fn's call.

    def get(
        self, column: FeatureColumn, name: str, shape: tuple[int, ...], initializer: Initializer, trainable: bool = True
    ) -> Any:
        """Returns the variable `name` of a column, created on first use."""
        ...


class DenseColumn(FeatureColumn):
    """A dense column: numbers for each example."""

    # DenseColumn of tf.feature_column: what input_layer and DenseFeatures take.

    @property
    @abstractmethod
    def variable_shape(self) -> tuple[int, ...]:
        """Returns the shape of an example's numbers."""

    @property
    def width(self) -> int:
        """Returns the count of an example's numbers."""
        return math.prod(self.variable_shape)

    @abstractmethod
    def dense(self, features: Features, weights: VariableProvider) -> jax.Array:
        """Computes the column: float32 (batch, *variable_shape)."""

    def make_variables(self, weights: VariableProvider) -> None:
        """Creates the column's variables, if it has any."""


@dataclass(frozen=True)
class Ids:
    """The categories of each example, integers (batch, n) of at least 32 bits, padded to a dense array.

    The dtype's minimum stands for padding, other negative numbers for unknown categories. Weights are float32
    (batch, n), or `None` for 1 everywhere.
    """

    ids: jax.Array
    weights: jax.Array | None = None

    @property
    def is_present(self) -> jax.Array:
        """Returns False for padding, and True for a category, known or not: bool (batch, n)."""
        return self.ids != missing(self.ids.dtype)


def missing(dtype: DType) -> int:
    """Returns the integer that marks padding."""
    # Not -1, as in TensorFlow's sparse tensors: crossed columns tell an unknown category, -1, from none.
    return int(jnp.iinfo(dtype).min)


class CategoricalColumn(FeatureColumn):
    """A categorical column: categories for each example, numbered from 0."""

    # TensorFlow's CategoricalColumn gives sparse tensors; steps have static shapes, so these are padded (`Ids`).

    @property
    @abstractmethod
    def num_buckets(self) -> int:
        """Returns the number of categories."""

    @abstractmethod
    def ids(self, features: Features) -> Ids:
        """Computes the categories of each example."""


def sort_columns(feature_columns: Iterable[FeatureColumn] | FeatureColumn) -> list[FeatureColumn]:
    """Sorts columns by name."""
    columns: Any = [feature_columns] if isinstance(feature_columns, FeatureColumn) else feature_columns
    if isinstance(columns, Mapping) or not isinstance(columns, Iterable):
        raise ArgumentError(
            f"feature_columns is a list of columns. Received: {type(feature_columns).__name__}. Pass its columns in a "
            "list."
        )
    by_name: dict[str, FeatureColumn] = {}
    for column in list[Any](columns):
        if not isinstance(column, FeatureColumn):
            raise ArgumentError(
                f"feature_columns holds columns of lockstep.estimator.feature_column. Received: {column!r} "
                f"({type(column).__name__}). Example: numeric_column('age')."
            )
        if column.name in by_name:
            raise ArgumentError(
                f"Each column of a model has its own name. Received two named {column.name!r}: {column} and "
                f"{by_name[column.name]}. Leave one out, or give the feature a second time under another name."
            )
        by_name[column.name] = column
    if not by_name:
        raise ArgumentError("feature_columns must not be empty. Received: no column.")
    # TensorFlow's order: it decides where a column's numbers stand, so checkpoints depend on it.
    return [by_name[name] for name in sorted(by_name)]


def dense_columns(feature_columns: Iterable[FeatureColumn] | FeatureColumn) -> Iterator[DenseColumn]:
    """Yields dense columns, sorted by name."""
    for column in sort_columns(feature_columns):
        if not isinstance(column, DenseColumn):
            raise ArgumentError(
                f"Here columns must give numbers. Received: {column.name}, which gives categories ({column}). Wrap it "
                "in indicator_column or embedding_column."
            )
        yield column


def scope_name(name: str) -> str:
    """Returns a column's name for use in variables' names."""
    # TensorFlow's `_sanitize_column_name_for_variable_scope`: names in checkpoints depend on it.
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", name)


def flatten(column: DenseColumn, values: jax.Array) -> jax.Array:
    """Reshapes a column's numbers to (batch, width)."""
    return values.reshape(values.shape[0], column.width)


def check_batches(columns: Iterable[FeatureColumn], values: Iterable[jax.Array]) -> None:
    """Checks that all columns have the same batch size."""
    # A feature of one row would broadcast to all others in a sum, and be refused in a concatenation only.
    sizes = {column.name: value.shape[0] for column, value in zip(columns, values, strict=True)}
    if len(set(sizes.values())) > 1:
        raise ArgumentError(f"All features of a batch have as many examples. Received for the columns: {sizes}.")


VariableFactory = Callable[[FeatureColumn, str, tuple[int, ...], Initializer, bool], Variable]


class ColumnVariables:
    """Variables of columns, created on first use from column, name, shape, initializer and trainability."""

    def __init__(self, create: VariableFactory) -> None:
        self._create = create
        # By equality of columns: two equal embedding columns of one model share a variable.
        self._variables: dict[tuple[FeatureColumn, str], Any] = {}

    def get(
        self, column: FeatureColumn, name: str, shape: tuple[int, ...], initializer: Initializer, trainable: bool = True
    ) -> Any:
        """Returns a variable, created on first use."""
        if (column, name) not in self._variables:
            self._variables[column, name] = self._create(column, name, shape, initializer, trainable)
        return self._variables[column, name]

    def of(self, column: FeatureColumn) -> list[Variable]:
        """Returns a column's variables so far."""
        return [variable for (owner, _), variable in self._variables.items() if owner == column]


def make_parse_example_spec(feature_columns: Iterable[Any]) -> dict[str, Any]:
    """Returns the tf.io.parse_example spec of all features that columns need.

    Args:
        feature_columns: The feature columns.

    Returns:
        A FixedLenFeature or VarLenFeature for each key.

    Raises:
        ArgumentError: If an element is no column, or two columns parse one feature differently.

    Source: tf.feature_column.make_parse_example_spec.
    """
    spec: dict[str, Any] = {}
    for column in feature_columns:
        if not isinstance(column, FeatureColumn):
            raise ArgumentError(
                f"feature_columns holds columns of lockstep.estimator.feature_column. Received: {column!r}."
            )
        # Two columns may share a feature, such as a number and its buckets, if they parse it alike.
        for key, value in column.parse_example_spec.items():
            if spec.setdefault(key, value) != value:
                raise ArgumentError(
                    f"Columns of one feature must parse it in one way. Received for {key!r}: {spec[key]} and {value}."
                )
    return spec
