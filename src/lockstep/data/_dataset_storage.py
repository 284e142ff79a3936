"""The methods of `Dataset` that write elements to disk and read them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockstep._nest import canonical
from lockstep._types import PyTree
from lockstep.data import _columns, _structure
from lockstep.data._dataset_base import DatasetBase, check_dataset
from lockstep.data._files.elements import ElementWriter, StoredElements, read_description
from lockstep.data._plan import Node
from lockstep.data._sources import Arrays
from lockstep.data._spec import as_signature
from lockstep.data._transforms.snapshot import Read, Snapshot, StoredFiles, files_of, shard_function, write_all
from lockstep.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from lockstep.data._dataset import Dataset


class DatasetStorage(DatasetBase):
    """A dataset with the methods that write and read elements."""

    def save(
        self,
        path: str | bytes | os.PathLike[str],
        compression: str | None = None,
        shard_func: Callable[..., Any] | None = None,
        checkpoint_args: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes the elements to a directory, for `load`. It appears when it is complete; a former one is replaced.

        Args:
            path: The directory. What is in it is read by lockstep, not by TensorFlow.
            compression: None, "NONE" or "GZIP".
            shard_func: Returns the number of the shard of an element, a whole number; one shard by default. Workers
                that share files by `AutoShardPolicy.FILE` share shards.
            checkpoint_args: Must be `None`: a directory is written as a whole.

        Raises:
            ArgumentError: If the path holds something else than a saved dataset, or an argument is wrong.
            InputError: If an element cannot be computed or saved; nothing is written then.

        Source: tf.data.Dataset.save.
        """
        if checkpoint_args is not None:
            raise UnsupportedError(
                "save writes a dataset as a whole, or nothing. Received: checkpoint_args. Leave it out; to write what "
                "a long pass computes, use snapshot or cache(filename)."
            )
        writer = ElementWriter(_as_path(path), _as_compression(compression))
        shard_of = None if shard_func is None else shard_function(shard_func, self._convert_function(shard_func))
        write_all(writer, self._plan, self._next_run(), shard_of, replace=True)

    @classmethod
    def load(
        cls,
        path: str | bytes | os.PathLike[str],
        element_spec: PyTree = None,
        compression: str | None = None,
        reader_func: Callable[[Dataset], Dataset] | None = None,
    ) -> Dataset:
        """Returns the dataset of the elements that `save` wrote.

        Args:
            path: The directory.
            element_spec: What the elements look like; needed for named tuples alone, whose type no file holds.
            compression: As for `save`.
            reader_func: Returns a dataset of elements for a dataset whose elements are datasets, one for each shard;
                by default elements of the shards are taken in turns.

        Raises:
            DataNotFoundError: If nothing was saved there.
            ArgumentError: If `element_spec` or `compression` are not those of what was saved.

        Source: tf.data.Dataset.load.
        """
        stored = read_description(_as_path(path), as_signature(canonical(element_spec)))
        if _as_compression(compression) != stored.compression:
            raise ArgumentError(
                f"compression must be that of the saved dataset, {stored.compression or None!r}. Received: "
                f"{compression!r}."
            )
        return cls._from_plan(files_of(stored) if reader_func is None else cls._reader(reader_func)(stored))

    def snapshot(
        self,
        path: str | bytes | os.PathLike[str],
        compression: str | None = "AUTO",
        reader_func: Callable[[Dataset], Dataset] | None = None,
        shard_func: Callable[..., Any] | None = None,
        name: str | None = None,
    ) -> Dataset:
        """Writes the elements of the first pass to a directory, and reads them from it in all later ones.

        Args:
            path: The directory, also for later runs. It appears when the first pass is complete.
            compression: None, "AUTO" (none) or "GZIP".
            reader_func: As for `load`. With it, or with `shard_func`, all elements are written before the first comes.
            shard_func: As for `save`.
            name: Ignored; accepted for TensorFlow's signature.

        Source: tf.data.Dataset.snapshot.
        """
        kind = _as_compression(None if compression == "AUTO" else compression)
        shard_of = None if shard_func is None else shard_function(shard_func, self._convert_function(shard_func))
        read = None if reader_func is None else self._reader(reader_func)
        return self._add(Snapshot(self._plan, _as_path(path), kind, shard_of, read))

    @classmethod
    def _reader(cls, reader_func: Callable[[Dataset], Dataset]) -> Read:
        if not callable(reader_func):
            raise ArgumentError(f"reader_func must be a function of a dataset. Received: {reader_func!r}.")

        def read(stored: StoredElements) -> Node:
            shards = [cls._kind._from_plan(StoredFiles([file], stored)) for file in stored.files]
            if not shards:
                return files_of(stored)
            return check_dataset(reader_func(cls._kind._from_plan(Arrays(_columns.column(shards)))))

        return read


def _as_path(path: str | bytes | os.PathLike[str]) -> Path:
    text = _structure.normalize(path)
    if not isinstance(text, bytes) or not text:
        raise ArgumentError(f"path must name a directory. Received: {path!r}.")
    return Path(text.decode())


def _as_compression(value: str | None) -> str:
    if value in (None, "", "NONE"):
        return ""
    if value == "GZIP":
        return "GZIP"
    raise UnsupportedError(f'compression must be None, "NONE" or "GZIP". Received: {value!r}. Example: "GZIP"')
