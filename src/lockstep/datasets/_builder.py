"""Data sets by name: `load`, `builder`."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from typing import Any, TypeAlias

from lockstep.datasets import _elements
from lockstep.datasets._data_set import LoadedDataSet
from lockstep.datasets._elements import WHOLE, ReadConfig, Reading
from lockstep.datasets._info import DatasetInfo, Splits
from lockstep.datasets._place import data_location
from lockstep.datasets._registry import look_up
from lockstep.datasets._split import Part, SplitLike, resolve
from lockstep.errors import ArgumentError

# A split, or a list, tuple or dict of splits.
Splitting: TypeAlias = "SplitLike | list[Any] | tuple[Any, ...] | dict[Any, Any]"

# Messages, so that a data set that is loaded for training and for testing says it once.
_printed: set[str] = set()
_printed_lock = threading.Lock()


class DatasetBuilder:
    """A data set by name (tfds.core.DatasetBuilder); `builder` makes one.

    Args:
        name: One of `names()`.
        data_dir: The only directory to look in. Defaults to `$LOCKSTEP_DATA_DIR`; without it, Keras' cache and the
            network are used.

    Raises:
        ArgumentError: If there is no data set of that name.
    """

    def __init__(self, name: str, *, data_dir: str | os.PathLike[str] | None = None) -> None:
        self._data_set = look_up(name)
        self._data_dir = data_dir
        self._loaded: LoadedDataSet | None = None

    @property
    def name(self) -> str:
        """Returns the name of the data set."""
        return self._data_set.name

    @property
    def info(self) -> DatasetInfo:
        """Returns the data set's description; once it is loaded, with its sizes on this machine."""
        known, loaded = self._data_set, self._loaded
        # On this machine a data set may be a sample, or a directory of the user's own.
        sizes = {k: len(t) for k, t in loaded.tables.items()} if loaded else known.sizes
        return DatasetInfo(
            name=known.name,
            description=known.description,
            homepage=known.homepage,
            features=loaded.features if loaded and loaded.features else known.features,
            supervised_keys=known.supervised_keys,
            splits=Splits(sizes),
            source=loaded.source if loaded else None,
        )

    def download_and_prepare(self, *, download: bool = True) -> None:
        """Finds the data: in the user's directory, else in Keras' cache, else in the network.

        Args:
            download: Whether the network may be used.

        Raises:
            DataNotFoundError: If it is nowhere.
            InputError: If it is damaged.
        """
        # A builder loads once: splits, slices and repeated calls share the arrays.
        if self._loaded is None:
            self._loaded = self._data_set.load(data_location(self._data_dir, download))
        # On each load: a program that trains on a sample must say so, whichever builder loaded it.
        if self._loaded.substitute:
            _print_once(f"{self.name} is {self._loaded.source}")

    def as_dataset(
        self,
        split: Splitting | None = None,
        *,
        batch_size: int | None = None,
        shuffle_files: bool = False,
        read_config: ReadConfig | None = None,
        as_supervised: bool = False,
    ) -> Any:
        """Returns examples, as `load` does, which describes the arguments."""
        self.download_and_prepare()
        keys = self._data_set.supervised_keys if as_supervised else None
        reading = Reading(keys, shuffle_files, _check_batch_size(batch_size), read_config or ReadConfig())
        if split is None:
            return {name: self._build_split(name, reading) for name in self.info.splits}
        return self._build(split, reading)

    def _build(self, split: Any, reading: Reading) -> Any:
        # tfds.load returns the structure that `split` has.
        if isinstance(split, dict):
            return {key: self._build(value, reading) for key, value in split.items()}
        if isinstance(split, (list, tuple)):
            return type(split)(self._build(value, reading) for value in split)
        return self._build_split(split, reading)

    def _build_split(self, split: SplitLike, reading: Reading) -> Any:
        assert self._loaded is not None
        tables = self._loaded.tables
        parts = resolve(split, {name: len(table) for name, table in tables.items()})
        table = _elements.select_examples(tables, _drop_empty(parts, split))
        return (
            _elements.as_arrays(table, reading) if reading.batch_size == WHOLE else _elements.as_dataset(table, reading)
        )


def builder(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> DatasetBuilder:
    """Returns a data set by name without loading it (tfds.builder). Arguments as of `DatasetBuilder`."""
    return DatasetBuilder(name, data_dir=data_dir)


def load(
    name: str,
    split: Splitting | None = None,
    *,
    as_supervised: bool = False,
    with_info: bool = False,
    shuffle_files: bool = False,
    batch_size: int | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    download: bool = True,
    read_config: ReadConfig | None = None,
) -> Any:
    """Returns a data set by name (tfds.load).

    Args:
        name: One of `names()`: "mnist", "cifar10", "cats_vs_dogs" and others.
        split: Which examples: "train", "test[:80%]", "train[100:200]+test", a `ReadInstruction`; or a list, tuple or
            dict of such. Defaults to a dict of all splits.
        as_supervised: Whether elements are `(input, label)`, by `info.supervised_keys`, not dicts of all features.
        with_info: Whether to return `(data, DatasetInfo)`.
        shuffle_files: Whether the examples come in random order, another one each time.
        batch_size: The size of batches, in which arrays of different sizes are filled up with zeros; -1 for arrays of
            all examples instead of a dataset. Defaults to single examples.
        data_dir: The only directory to look in. Defaults to `$LOCKSTEP_DATA_DIR`; without it, Keras' cache and the
            network are used.
        download: Whether the network may be used.
        read_config: More about how to read.

    Returns:
        A `lockstep.data.Dataset`, or a structure of them like that of `split`.

    Raises:
        ArgumentError: If there is no such data set or split.
        DataNotFoundError: If the data is nowhere; the message says where it was looked for and what to do.
        InputError: If a file is damaged; the message names it.
    """
    data_set = builder(name, data_dir=data_dir)
    data_set.download_and_prepare(download=download)
    data = data_set.as_dataset(
        split,
        batch_size=batch_size,
        shuffle_files=shuffle_files,
        read_config=read_config,
        as_supervised=as_supervised,
    )
    return (data, data_set.info) if with_info else data


def _check_batch_size(batch_size: int | None) -> int | None:
    # True is an int, and would make batches of one.
    if batch_size is not None and (isinstance(batch_size, bool) or (batch_size < 1 and batch_size != WHOLE)):
        raise ArgumentError(f"batch_size must be at least 1, or -1 for all examples. Received: {batch_size!r}.")
    return batch_size


def _drop_empty(parts: list[Part], split: SplitLike) -> list[Part]:
    # A slice such as train[:1%] of a small split may round to nothing.
    filled = [part for part in parts if part.stop > part.start]
    if not filled:
        raise ArgumentError(f"A split must hold at least one example. Received: {split!r}, which holds none: {parts}.")
    return filled


def _print_once(message: str) -> None:
    """Prints a line once per job: in the process that the user started, not in its children."""
    with _printed_lock:
        # Workers that a pool starts load the data again, and would all print.
        if message in _printed or multiprocessing.parent_process() is not None:
            return
        _printed.add(message)
    print(f"lockstep: {message}", file=sys.stderr)
