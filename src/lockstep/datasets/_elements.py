"""Datasets and arrays of selected examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lockstep.datasets._data_set import Table
from lockstep.datasets._split import Part

if TYPE_CHECKING:
    from lockstep.data import Dataset


from collections.abc import Iterator

from lockstep._types import PyTree
from lockstep.errors import UnsupportedError


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


WHOLE = -1


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


def select_examples(tables: Mapping[str, Table], parts: Sequence[Part]) -> Table:
    """Returns the examples of some parts of splits, one part after another."""
    first = tables[parts[0].split]
    pieces = [{k: v[p.start : p.stop] for k, v in tables[p.split].columns.items()} for p in parts]
    if len(pieces) == 1:
        return Table(pieces[0], first.decode)
    # Slices of one split are views; only sums of splits are copied.
    return Table({k: np.concatenate([piece[k] for piece in pieces]) for k in pieces[0]}, first.decode)


def as_arrays(table: Table, reading: Reading) -> Any:
    """Returns all examples as arrays; sizes that differ are filled up with zeros."""
    # The columns are the result: no dataset is built for them. Copies, because the table is shared.
    if not table.decode and not reading.shuffle and reading.config.input_context is None:
        return _structure({name: column.copy() for name, column in table.columns.items()}, reading.keys)
    count = len(table)
    # One batch of everything, which also fills up sizes that differ.
    return next(iter(_examples(table, reading).padded_batch(count)))


def as_dataset(table: Table, reading: Reading) -> Dataset:
    """Returns a dataset of the examples."""
    examples = _examples(table, reading)
    if reading.batch_size is None:
        return examples
    if table.decode:
        return examples.padded_batch(reading.batch_size)
    return examples.batch(reading.batch_size)


def _examples(table: Table, reading: Reading) -> Dataset:
    # Imported late: data sets as arrays need neither JAX nor Keras.
    from lockstep.data import AUTOTUNE, Dataset

    config, context = reading.config, reading.config.input_context
    result = Dataset.from_tensor_slices(_structure(table.columns, reading.keys))
    # Before the shuffle, so that pipelines are disjoint whatever their seeds are.
    if context is not None:
        result = result.shard(context.num_input_pipelines, context.input_pipeline_id)
    if reading.shuffle:
        again = config.shuffle_reshuffle_each_iteration
        # A buffer for all: it holds references, so a uniformly random order costs next to nothing.
        result = result.shuffle(len(table), config.shuffle_seed, True if again is None else again)
    if table.decode:
        # After the shuffle: elements are decoded in the order in which they are used.
        result = result.map(_decoding(table.decode, reading.keys), num_parallel_calls=AUTOTUNE)
    return result if config.options is None else result.with_options(config.options)


def _structure(columns: Mapping[str, Any], keys: tuple[str, ...] | None) -> Any:
    return dict(columns) if keys is None else tuple(columns[key] for key in keys)


def _decoding(decode: Mapping[str, Callable[[Any], Any]], keys: tuple[str, ...] | None) -> Callable[..., Any]:
    if keys is None:

        def decode_features(features: Mapping[str, Any]) -> dict[str, Any]:
            return {name: decode[name](value) if name in decode else value for name, value in features.items()}

        return decode_features

    # A map function of a tuple gets its items as arguments.
    def decode_pair(*values: Any) -> tuple[Any, ...]:
        return tuple(decode[key](v) if key in decode else v for key, v in zip(keys, values, strict=True))

    return decode_pair


class NumpyElements:
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
        return NumpyElements(dataset)
    return dataset if isinstance(dataset, bytes) else np.asarray(dataset)
