"""Data sets by name: `load`, and the form in which examples are read."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lockstep._types import PyTree
from lockstep.datasets._data_set import LoadedDataSet, Table, look_up
from lockstep.datasets._info import DatasetInfo, Splits
from lockstep.datasets._location import data_location
from lockstep.datasets._split import SplitLike, resolve
from lockstep.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from lockstep.data import Dataset

WHOLE = -1
# A split, or a list, tuple or dict of splits.
Splitting: TypeAlias = "SplitLike | list[Any] | tuple[Any, ...] | dict[Any, Any]"
# Messages, so that a data set that is loaded for training and for testing says it once.
_printed: set[str] = set()
_printed_lock = threading.Lock()


@dataclass(frozen=True)
class ReadConfig:
    """Options of reading a data set (tfds.ReadConfig); options that are not listed cannot be set.

    Attributes:
        options: `lockstep.data.Options` of the dataset. Defaults to none.
        shuffle_seed: The seed of `shuffle_files=True`. Defaults to another order in each run.
        shuffle_reshuffle_each_iteration: Whether `shuffle_files=True` gives another order each time. Defaults to true.
        input_context: With `num_input_pipelines` and `input_pipeline_id`: reads only the examples of that pipeline.
        try_autocache: Must be false; call `Dataset.cache`.
        skip_prefetch: Must be true; call `Dataset.prefetch`.

    Raises:
        UnsupportedError: If one of the last two is otherwise.
    """

    options: Any = None
    shuffle_seed: int | None = None
    shuffle_reshuffle_each_iteration: bool | None = None
    input_context: Any = None
    try_autocache: bool = False
    skip_prefetch: bool = True

    def __post_init__(self) -> None:
        """Refuses options that would be ignored."""
        if self.try_autocache:
            raise UnsupportedError(
                "Data sets are not cached by themselves; those of arrays are in memory anyway. Received: "
                "try_autocache=True. Leave it away, and call cache() on the dataset."
            )
        if not self.skip_prefetch:
            raise UnsupportedError(
                "Data sets do not read ahead by themselves. Received: skip_prefetch=False. Leave it away, and call "
                "prefetch(AUTOTUNE) on the dataset."
            )


@dataclass(frozen=True)
class Reading:
    """The form in which examples are returned.

    Attributes:
        keys: The features of a tuple; `None` for a dict of all.
        shuffle: Whether in random order.
        batch_size: In batches of so many; `WHOLE` for arrays of all examples; `None` for single examples.
        config: More.
    """

    keys: tuple[str, ...] | None
    shuffle: bool
    batch_size: int | None
    config: ReadConfig


def _examples(table: Table, reading: Reading) -> Dataset:
    # Imported late: data sets as arrays need neither JAX nor Keras.
    from lockstep.data import AUTOTUNE, Dataset

    config, context = reading.config, reading.config.input_context
    result = Dataset.from_tensor_slices(_select(table.columns, reading.keys))
    # Before the shuffle, so that pipelines are disjoint whatever their seeds are.
    if context is not None:
        result = result.shard(context.num_input_pipelines, context.input_pipeline_id)
    if reading.shuffle:
        again = config.shuffle_reshuffle_each_iteration
        # A buffer for all: it holds references, so a uniformly random order costs next to nothing.
        result = result.shuffle(len(table), config.shuffle_seed, True if again is None else again)
    if table.decode:
        # After the shuffle: elements are decoded in the order in which they are used.
        result = result.map(_decoder(table.decode, reading.keys), num_parallel_calls=AUTOTUNE)
    return result if config.options is None else result.with_options(config.options)


def _select(columns: Mapping[str, Any], keys: tuple[str, ...] | None) -> Any:
    return dict(columns) if keys is None else tuple(columns[key] for key in keys)


def _decoder(decode: Mapping[str, Callable[[Any], Any]], keys: tuple[str, ...] | None) -> Callable[..., Any]:
    # A map function of a dict gets it as its argument, one of a tuple gets the tuple's items.
    def decode_element(*values: Any) -> Any:
        features = values[0] if keys is None else dict(zip(keys, values, strict=True))
        return _select({name: decode[name](v) if name in decode else v for name, v in features.items()}, keys)

    return decode_element


class _NumpyElements:
    """A repeatable iterable over a dataset's elements as NumPy arrays."""

    def __init__(self, dataset: PyTree) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        """Iterates over the elements."""
        return iter(self._dataset.as_numpy_iterator())

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._dataset)


def as_numpy(dataset: PyTree) -> Any:
    """Returns datasets and arrays as NumPy (tfds.as_numpy).

    Args:
        dataset: A dataset, an array, or a structure of them in tuples, lists and dicts.

    Returns:
        The same structure; each dataset is an iterable, each array a NumPy array.
    """
    if isinstance(dataset, Mapping):
        return {key: as_numpy(value) for key, value in dataset.items()}
    # A named tuple takes its items as arguments, a tuple as one iterable.
    if isinstance(dataset, tuple) and hasattr(dataset, "_fields"):
        return type(dataset)(*map(as_numpy, dataset))
    if isinstance(dataset, (list, tuple)):
        return type(dataset)(map(as_numpy, dataset))
    if hasattr(dataset, "as_numpy_iterator"):
        return _NumpyElements(dataset)
    return dataset if isinstance(dataset, bytes) else np.asarray(dataset)


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
        # True is an int, and would make batches of one.
        if batch_size is not None and (isinstance(batch_size, bool) or (batch_size < 1 and batch_size != WHOLE)):
            raise ArgumentError(f"batch_size must be at least 1, or -1 for all examples. Received: {batch_size!r}.")
        reading = Reading(keys, shuffle_files, batch_size, read_config or ReadConfig())
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
        # A slice such as train[:1%] of a small split may round to nothing.
        parts = resolve(split, {name: len(table) for name, table in tables.items()})
        filled = [part for part in parts if part.stop > part.start]
        if not filled:
            raise ArgumentError(
                f"A split must hold at least one example. Received: {split!r}, which holds none: {parts}."
            )
        pieces = [{k: v[p.start : p.stop] for k, v in tables[p.split].columns.items()} for p in filled]
        # Slices of one split are views; only sums of splits are copied.
        joined = {k: np.concatenate([piece[k] for piece in pieces]) for k in pieces[0]} if pieces[1:] else pieces[0]
        table = Table(joined, tables[filled[0].split].decode)
        if reading.batch_size != WHOLE:
            examples = _examples(table, reading)
            if reading.batch_size is None:
                return examples
            # Decoded pictures differ in size: they are filled up with zeros.
            return (examples.padded_batch if table.decode else examples.batch)(reading.batch_size)
        # The columns are the result: no dataset is built for them. Copies, because the table is shared.
        if not table.decode and not reading.shuffle and reading.config.input_context is None:
            return _select({name: column.copy() for name, column in table.columns.items()}, reading.keys)
        # One batch of everything, which also fills up sizes that differ.
        return next(iter(_examples(table, reading).padded_batch(len(table))))


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


def _print_once(message: str) -> None:
    """Prints a line once per job: in the process that the user started, not in its children."""
    with _printed_lock:
        # Workers that a pool starts load the data again, and would all print.
        if message in _printed or multiprocessing.parent_process() is not None:
            return
        _printed.add(message)
    print(f"lockstep: {message}", file=sys.stderr)
