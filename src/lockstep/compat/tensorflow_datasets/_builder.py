"""Data sets by name, as datasets of `lockstep.compat.tensorflow`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import lockstep.data
from lockstep import datasets
from lockstep._types import Tensor
from lockstep.compat.tensorflow._tensor import as_tensor
from lockstep.compat.tensorflow._types import Argument
from lockstep.compat.tensorflow.data._dataset import from_lockstep
from lockstep.datasets import DatasetInfo, ReadConfig, disable_progress_bar, enable_progress_bar
from lockstep.errors import ArgumentError, UnsupportedError

# What tensorflow_datasets accepts, and the values that ask for nothing.
_LOAD = {
    "decoders": None,
    "builder_kwargs": None,
    "download_and_prepare_kwargs": None,
    "try_gcs": False,
    "file_format": None,
}
_PREPARE = {"download_dir": None, "download_config": None, "file_format": None}
_AS_DATASET = {"decoders": None}


class DatasetBuilder:
    """A data set by name (tfds.core.DatasetBuilder).

    Args:
        name: One of `list_builders()`.
        data_dir: The only directory to look in; see `load`.

    Raises:
        ArgumentError: If there is no data set of that name.
    """

    def __init__(self, name: str, *, data_dir: str | os.PathLike[str] | None = None) -> None:
        self._builder = datasets.builder(name, data_dir=data_dir)

    @property
    def name(self) -> str:
        """The name of the data set."""
        return self._builder.name

    @property
    def info(self) -> DatasetInfo:
        """The description of the data set."""
        return self._builder.info

    def download_and_prepare(self, **options: Argument) -> None:
        """Finds the data, in the network if need be; nothing else is prepared.

        Raises:
            UnsupportedError: If an option asks for something.
            DataNotFoundError: If the data is nowhere.
        """
        _check_neutral("download_and_prepare", options, _PREPARE)
        self._builder.download_and_prepare()

    def as_dataset(
        self,
        split: Argument = None,
        *,
        batch_size: int | None = None,
        shuffle_files: bool = False,
        read_config: ReadConfig | None = None,
        as_supervised: bool = False,
        **options: Argument,
    ) -> Any:
        """Returns examples, as `load` does, which describes the arguments."""
        _check_neutral("as_dataset", options, _AS_DATASET)
        return to_tensorflow(
            self._builder.as_dataset(
                split,
                batch_size=batch_size,
                shuffle_files=shuffle_files,
                read_config=read_config,
                as_supervised=as_supervised,
            )
        )


def builder(name: str, *, data_dir: str | os.PathLike[str] | None = None, try_gcs: bool = False) -> DatasetBuilder:
    """Returns a data set by name without loading it (tfds.builder).

    Args:
        name: One of `list_builders()`.
        data_dir: The only directory to look in; see `load`.
        try_gcs: Must be false.

    Raises:
        ArgumentError: If there is no data set of that name.
    """
    # Files come from where they are published, not from a bucket.
    _check_neutral("builder", {"try_gcs": try_gcs}, _LOAD)
    return DatasetBuilder(name, data_dir=data_dir)


def load(
    name: str,
    split: Argument = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    shuffle_files: bool = False,
    download: bool = True,
    as_supervised: bool = False,
    read_config: ReadConfig | None = None,
    with_info: bool = False,
    as_dataset_kwargs: Mapping[str, Any] | None = None,
    **options: Argument,
) -> Any:
    """Returns a data set by name (tfds.load).

    Args:
        name: One of `list_builders()`.
        split: "train", "test[:80%]", `Split.TRAIN`, `core.ReadInstruction`, or a list, tuple or dict of such. Defaults
            to a dict of all splits.
        data_dir: The only directory to look in. Defaults to `$LOCKSTEP_DATA_DIR`; without it, Keras' cache and the
            network are used.
        batch_size: The size of batches; -1 for tensors of all examples. Defaults to single examples.
        shuffle_files: Whether the examples come in random order.
        download: Whether the network may be used.
        as_supervised: Whether elements are `(input, label)`, not dicts of all features.
        read_config: More about how to read.
        with_info: Whether to return `(data, info)`.
        as_dataset_kwargs: More arguments of `as_dataset`.
        **options: Others of tensorflow_datasets, with the values that ask for nothing.

    Returns:
        A dataset of `lockstep.compat.tensorflow`, or a structure of them like that of `split`.

    Raises:
        ArgumentError: If there is no such data set, split or option.
        DataNotFoundError: If the data is nowhere; the message says where it was looked for and what to do.
        InputError: If a file is damaged; the message names it.
    """
    _check_neutral("load", options, _LOAD)
    data_builder = datasets.builder(name, data_dir=data_dir)
    # Before the dataset is made, so that missing data is an error of load.
    data_builder.download_and_prepare(download=download)
    arguments: dict[str, Any] = {
        "split": split,
        "batch_size": batch_size,
        "shuffle_files": shuffle_files,
        "read_config": read_config,
        "as_supervised": as_supervised,
    }
    more = as_dataset_kwargs or {}
    _check_neutral("as_dataset", {k: v for k, v in more.items() if k not in arguments}, _AS_DATASET)
    arguments |= {k: v for k, v in more.items() if k in arguments}
    data = to_tensorflow(data_builder.as_dataset(**arguments))
    return (data, data_builder.info) if with_info else data


def _check_neutral(function: str, options: Mapping[str, Any], neutral: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if name not in neutral:
            raise ArgumentError(f"{function} has no argument {name!r}. Received: {name}={value!r}. Leave it away.")
        # Arguments that ask for nothing are accepted, for programs give them.
        if value not in (neutral[name], None, {}):
            raise UnsupportedError(
                f"{function} cannot honour {name!r}: lockstep reads data sets from where they are published. "
                f"Received: {name}={value!r}. Leave it away."
            )


def to_tensorflow(data: Tensor) -> Any:
    """Returns datasets and arrays, in tuples, lists and dicts, as datasets and tensors of compat.tensorflow."""
    if isinstance(data, dict):
        return {key: to_tensorflow(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        # A split may be a list, a tuple or a dict of names, and so is the result.
        return type(data)(map(to_tensorflow, data))
    # batch_size=-1 gives arrays instead of a dataset.
    return from_lockstep(data) if isinstance(data, lockstep.data.Dataset) else as_tensor(data)


def display_progress_bar(enable: bool = True) -> None:
    """Shows the progress of downloads, or does not (tfds.display_progress_bar)."""
    if enable:
        enable_progress_bar()
    else:
        disable_progress_bar()
