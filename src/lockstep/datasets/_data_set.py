"""The interface of the files in `_sets/`: the description of a data set, and its loaded data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from lockstep.datasets._features import FeaturesDict
from lockstep.datasets._place import DataLocation


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
        name: Its name, which is that of its file, too.
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
