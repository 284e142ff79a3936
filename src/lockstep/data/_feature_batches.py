"""`make_batched_features_dataset`: batches of the features of serialised examples in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from lockstep._types import PyTree
from lockstep.data import _check
from lockstep.data._csv_batches import shuffle_and_repeat
from lockstep.data._dataset import Dataset
from lockstep.data._example.parse import parse_example
from lockstep.data._file_datasets import TFRecordDataset
from lockstep.data._options import AUTOTUNE
from lockstep.errors import ArgumentError


def make_batched_features_dataset(
    file_pattern: PyTree,
    batch_size: int,
    features: Mapping[str, Any],
    reader: Callable[..., Dataset] | None = None,
    label_key: str | None = None,
    reader_args: Sequence[Any] | None = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    shuffle_buffer_size: int = 10000,
    shuffle_seed: int | None = None,
    prefetch_buffer_size: int | None = None,
    reader_num_threads: int | None = None,
    parser_num_threads: int | None = None,
    sloppy_ordering: bool = False,
    drop_final_batch: bool = False,
) -> Dataset:
    """Returns a dataset of batches of the features of serialised examples, dicts of what `features` describes.

    Args:
        file_pattern: A file or a pattern, or several.
        batch_size: Number of examples.
        features: The descriptions of features by name, as for `tf.io.parse_example`.
        reader: Returns a dataset of the examples of a file, or of pairs of a key and an example, for a file's name and
            `reader_args`; `TFRecordDataset` by default.
        label_key: The feature that is the label: elements are pairs of features and labels then.
        reader_args: Further arguments of `reader`.
        num_epochs: How often the examples are repeated; endlessly by default, and then without a smaller last batch.
        shuffle: Shuffles files, and examples.
        shuffle_buffer_size: Number of examples of which the next one is chosen.
        shuffle_seed: Seed of the order.
        prefetch_buffer_size: Number of batches that wait at most; by default as for `prefetch(AUTOTUNE)`.
        reader_num_threads: From how many files examples are taken in turns; one by default.
        parser_num_threads: At least 1; batches are parsed on as many threads as `Options.threading` says.
        sloppy_ordering: Permits another order, which is never needed.
        drop_final_batch: Drops a last batch with fewer examples.

    Raises:
        ArgumentError: If an argument is wrong.
        DataNotFoundError: If no file matches.
        InputError: While iterating, if an example does not have the features.

    Source: tf.data.experimental.make_batched_features_dataset.
    """
    size = _check.at_least(1, batch_size, "batch_size")
    _check.parallel_calls(parser_num_threads)
    if label_key is not None and label_key not in features:
        raise ArgumentError(
            f"The `label_key` provided ({label_key}) must be one of the `features` keys: {list(features)}."
        )
    read, arguments = TFRecordDataset if reader is None else reader, reader_args or ()
    turns = 1 if reader_num_threads is None else reader_num_threads

    def examples_of(file: Any) -> Dataset:
        return read(file, *arguments)

    def parse(serialized: Any) -> Any:
        parsed = parse_example(np.asarray(serialized, object), features)
        return parsed if label_key is None else (parsed, parsed.pop(label_key))

    dataset = Dataset.list_files(file_pattern, shuffle=bool(shuffle), seed=shuffle_seed)
    dataset = dataset.interleave(examples_of, None if turns == AUTOTUNE else turns, 1)
    # Pairs of a key and an example, as readers of tables give them.
    if len(jax.tree.leaves(dataset.element_spec)) == 2:
        dataset = dataset.map(lambda _, example: example)
    dataset = shuffle_and_repeat(dataset, shuffle, shuffle_buffer_size, shuffle_seed, num_epochs)
    dataset = dataset.batch(size, drop_remainder=drop_final_batch or num_epochs is None).map(parse)
    return dataset.prefetch(AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)
