"""Data sets and their examples, and the table of their names."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lockstep.datasets._info import FeaturesDict
from lockstep.datasets._location import DataLocation
from lockstep.errors import ArgumentError, UnsupportedError

# The file in `_sets` that holds each data set; it is imported when the data set is looked up.
_FILES = {
    "boston_housing": "housing",
    "california_housing": "housing",
    "cats_vs_dogs": "cats_vs_dogs",
    "cifar10": "cifar",
    "cifar100": "cifar",
    "fashion_mnist": "mnist",
    "imdb": "imdb",
    "imdb_reviews": "imdb",
    "mnist": "mnist",
}


@dataclass(frozen=True, eq=False)
class Table:
    """The examples of one split.

    Attributes:
        columns: For each feature one array, all equally long.
        decode: For some features, a function from what the column holds to the feature itself; called for each
            element when it is read.
    """

    columns: Mapping[str, NDArray[Any]]
    # Photographs stay files until they are read: decoded, they would take many times the memory.
    decode: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict[str, Callable[[Any], Any]])

    def __len__(self) -> int:
        """Returns how many examples there are."""
        return len(next(iter(self.columns.values())))


@dataclass(frozen=True, eq=False)
class LoadedDataSet:
    """The data of a data set.

    Attributes:
        tables: Its splits.
        source: In words, which data this is and where it was found.
        substitute: Whether it is less than what its name promises, which the user must be told.
        features: What its elements hold, if that is known only now.
    """

    tables: Mapping[str, Table]
    source: str
    substitute: bool = False
    features: FeaturesDict | None = None


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set that can be loaded by name.

    Attributes:
        name: Its name.
        description: What it is, in words.
        homepage: Where it comes from.
        features: What its elements hold.
        supervised_keys: The features that make up `(input, label)`.
        sizes: How many examples each split has, as published.
        load: Finds the data.
        configs: What may follow its name after a "/", all meaning the same.
    """

    name: str
    description: str
    homepage: str
    features: FeaturesDict
    supervised_keys: tuple[str, str]
    sizes: Mapping[str, int]
    load: Callable[[DataLocation], LoadedDataSet]
    configs: tuple[str, ...] = ()


def fixed_order(count: int) -> NDArray[np.int64]:
    """Returns a fixed pseudo-random order of `count` examples, the same on every machine.

    Data sets that are published class by class are put into it, so that any slice of them holds all classes.
    """
    # A fixed seed: all workers must have the same order.
    return np.random.default_rng(0).permutation(count)


def names() -> list[str]:
    """Returns the names that `load` knows, sorted (tfds.list_builders)."""
    return sorted(_FILES)


def look_up(name: str) -> DataSet:
    """Returns a data set by its name.

    Raises:
        ArgumentError: If there is none; the message names those that there are, the most similar first.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"The name of a data set is a text. Received: {name!r}. There are {', '.join(names())}.")
    # "mnist:3.*.*", as tensorflow_datasets writes versions.
    base, _, version = name.partition(":")
    base, _, config = base.partition("/")
    if base not in _FILES:
        similar = sorted(names(), key=lambda known: -difflib.SequenceMatcher(None, base.lower(), known).ratio())
        raise ArgumentError(
            f"A data set is one of those that there are. Received: {name!r}. Take the name of one, nearest first: "
            f"{', '.join(similar)}."
        )
    module = importlib.import_module(f"lockstep.datasets._sets.{_FILES[base]}")
    data_set = next(data_set for data_set in module.DATA_SETS if data_set.name == base)
    if version or (config and config not in data_set.configs):
        raise UnsupportedError(
            f"lockstep has one version and configuration of each data set. Received: {name!r}. Write {base!r}."
        )
    return data_set
