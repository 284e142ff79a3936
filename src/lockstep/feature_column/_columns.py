"""What columns are: descriptions of how features become numbers for a model."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from lockstep.errors import ArgumentError
from lockstep.feature_column._features import Features


class FeatureColumn(ABC):
    """A column; immutable, and equal to one that says the same."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Its name, unique among the columns of a model."""

    @property
    @abstractmethod
    def parse_example_spec(self) -> dict[str, Any]:
        """How to parse the features that it needs from tf.train.Example messages, by key."""


class Weights(Protocol):
    """Where columns find their variables."""

    def get(
        self, column: FeatureColumn, name: str, shape: tuple[int, ...], initializer: Any, trainable: bool = True
    ) -> Any:
        """Returns the variable `name` of a column; makes it the first time."""
        ...


class DenseColumn(FeatureColumn):
    """A column that gives numbers."""

    @property
    @abstractmethod
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of its numbers, without the batch."""

    @property
    def width(self) -> int:
        """How many numbers it gives for an example."""
        return math.prod(self.variable_shape)

    @abstractmethod
    def dense(self, features: Features, weights: Weights) -> jax.Array:
        """Returns its numbers: float32 (batch, *variable_shape)."""

    def make_variables(self, weights: Weights) -> None:
        """Makes its variables, if it has any."""


@dataclass(frozen=True)
class Ids:
    """What a categorical column finds in each example: some categories.

    Attributes:
        ids: Integers (batch, n), at least 32 bits; the least one of their type where there is nothing, negative for a
            category that is not known.
        weights: float32 (batch, n), or `None` for 1 everywhere.
    """

    ids: jax.Array
    weights: jax.Array | None = None

    @property
    def is_present(self) -> jax.Array:
        """Where there is a category, known or not: bool (batch, n)."""
        return self.ids != missing(self.ids.dtype)


def missing(dtype: Any) -> int:
    """The integer that stands for nothing."""
    return int(jnp.iinfo(dtype).min)


class CategoricalColumn(FeatureColumn):
    """A column that gives categories, numbered from 0."""

    @property
    @abstractmethod
    def num_buckets(self) -> int:
        """How many categories there are."""

    @abstractmethod
    def ids(self, features: Features) -> Ids:
        """Returns the categories of each example."""


def normalised(feature_columns: Any) -> list[FeatureColumn]:
    """Returns columns in the order of their names.

    Raises:
        ArgumentError: If there is none, or what is none, or two have the same name.
    """
    columns = _listed(feature_columns)
    for column in columns:
        if not isinstance(column, FeatureColumn):
            raise ArgumentError(
                f"feature_columns holds columns of lockstep.feature_column. Received: {column!r} "
                f"({type(column).__name__}). Example: numeric_column('age')."
            )
    if not columns:
        raise ArgumentError("feature_columns must not be empty. Received: no column.")
    _check_names(columns)
    return sorted(columns, key=lambda column: column.name)


def _listed(feature_columns: Any) -> list[Any]:
    if isinstance(feature_columns, FeatureColumn):
        return [feature_columns]
    if isinstance(feature_columns, Mapping) or not isinstance(feature_columns, Iterable):
        raise ArgumentError(
            f"feature_columns is a list of columns. Received: {type(feature_columns).__name__}. Pass its columns in a "
            "list."
        )
    return list(feature_columns)


def _check_names(columns: list[FeatureColumn]) -> None:
    seen: dict[str, FeatureColumn] = {}
    for column in columns:
        if column.name in seen:
            raise ArgumentError(
                f"Each column of a model has its own name. Received two named {column.name!r}: {column} and "
                f"{seen[column.name]}. Leave one out, or give the feature a second time under another name."
            )
        seen[column.name] = column


def dense_columns(feature_columns: Any) -> Iterator[DenseColumn]:
    """Yields columns in the order of their names.

    Raises:
        ArgumentError: As `normalised`, and if one gives categories.
    """
    for column in normalised(feature_columns):
        if not isinstance(column, DenseColumn):
            raise ArgumentError(
                f"Here columns must give numbers. Received: {column.name}, which gives categories ({column}). Wrap it "
                "in indicator_column or embedding_column."
            )
        yield column


def scope_name(name: str) -> str:
    """Returns a column's name as it stands in names of variables."""
    return re.sub(r"[^A-Za-z0-9_.\-]", "_", name)


def flat(column: DenseColumn, values: jax.Array) -> jax.Array:
    """Returns a column's numbers as (batch, width)."""
    return values.reshape(values.shape[0], column.width)


def check_batches(columns: Iterable[FeatureColumn], values: Iterable[jax.Array]) -> None:
    """Checks that columns have found as many examples.

    Raises:
        ArgumentError: If not.
    """
    sizes = {column.name: value.shape[0] for column, value in zip(columns, values, strict=True)}
    if len(set(sizes.values())) > 1:
        raise ArgumentError(f"All features of a batch have as many examples. Received for the columns: {sizes}.")


Make = Callable[[FeatureColumn, str, tuple[int, ...], Any, bool], Any]


class KeptWeights:
    """Variables of columns, made when they are asked for.

    Args:
        make: Makes one, from its column, name, shape and initializer, and whether it is trainable.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._made: dict[tuple[FeatureColumn, str], Any] = {}

    def get(
        self, column: FeatureColumn, name: str, shape: tuple[int, ...], initializer: Any, trainable: bool = True
    ) -> Any:
        """Returns a variable; the same one on a second call."""
        if (column, name) not in self._made:
            self._made[column, name] = self._make(column, name, shape, initializer, trainable)
        return self._made[column, name]

    def of(self, column: FeatureColumn) -> list[Any]:
        """The variables of a column so far."""
        return [variable for (owner, _), variable in self._made.items() if owner == column]
