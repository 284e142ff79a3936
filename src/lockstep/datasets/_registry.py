"""The data sets by name: each is a file in `_sets/` that defines `DATA_SET`."""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from lockstep.datasets import _sets
from lockstep.datasets._data_set import DataSet
from lockstep.errors import ArgumentError, UnsupportedError


def names() -> list[str]:
    """Returns the names that `load` knows, sorted (tfds.list_builders)."""
    # Read from the directory: a new data set is one new file, and nothing else.
    return sorted(m.name for m in pkgutil.iter_modules(_sets.__path__) if not m.name.startswith("_"))


def look_up(name: str) -> DataSet:
    """Returns a data set by its name.

    Raises:
        ArgumentError: If there is none; the message names those that there are, the most similar first.
    """
    # "mnist:3.*.*", as tensorflow_datasets writes versions.
    base, version = _without_version(name)
    base, _, config = base.partition("/")
    if base not in names():
        raise ArgumentError(f"There is no data set {name!r}. There are {', '.join(_most_similar_first(base))}.")
    data_set: DataSet = importlib.import_module(f"{_sets.__name__}.{base}").DATA_SET
    if version or (config and config not in data_set.configs):
        raise UnsupportedError(
            f"lockstep has one version and configuration of each data set. Received: {name!r}. Write {base!r}."
        )
    return data_set


def _without_version(name: object) -> tuple[str, str]:
    if not isinstance(name, str):
        raise ArgumentError(f"The name of a data set is a text. Received: {name!r}. There are {', '.join(names())}.")
    base, _, version = name.partition(":")
    return base, version


def _most_similar_first(name: str) -> list[str]:
    def difference(known: str) -> float:
        return -difflib.SequenceMatcher(None, name.lower(), known).ratio()

    return sorted(names(), key=difference)
