"""Readers of checkpoints: single variables, or all of them."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray

from lockstep.checkpoint._archive import Archive
from lockstep.checkpoint._format import DType
from lockstep.checkpoint._listing import newest
from lockstep.checkpoint._names import path_of, prefix_of, step_in
from lockstep.checkpoint._source import ArchiveOfTables, dtypes_of, open_source, shapes_of
from lockstep.checkpoint._tables import Tables
from lockstep.checkpoint._tensorflow.bundle import GRAPH, Bundle
from lockstep.checkpoint._tensorflow.objects import full_names
from lockstep.errors import ArgumentError, CheckpointError

_TENSOR = ":0"
_GLOBAL_STEP = "global_step"


class CheckpointReader:
    """Reads variables of one checkpoint, one by one; of lockstep's own also after its file is removed.

    Names may end with `:0`, as those of TensorFlow's tensors do. TensorFlow's own checkpoints have the names that
    TensorFlow's readers show, and text in them is an array of `bytes`.

    Args:
        prefix: The checkpoint's name.

    Raises:
        CheckpointError: If it is not there, or is damaged.

    Source: `tf.train.load_checkpoint`.
    """

    def __init__(self, prefix: str | os.PathLike[str]) -> None:
        self._source = open_source(prefix)
        self._by_full_name = _keys_by_full_name(self._source)

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the shape of each variable, by name."""
        return {name: list(shape) for name, shape in shapes_of(self._source).items()}

    def get_variable_to_dtype_map(self) -> dict[str, DType]:
        """Returns the numpy dtype of each variable, by name."""
        return dict(dtypes_of(self._source))

    def has_tensor(self, tensor_str: str) -> bool:
        """Returns whether there is a variable of this name."""
        return self._find(tensor_str) is not None

    def get_tensor(self, tensor_str: str) -> NDArray[Any]:
        """Returns the value of a variable.

        Raises:
            ArgumentError: If there is no variable of this name.
            CheckpointError: If its value is damaged.
        """
        names = shapes_of(self._source)
        name = self._find(tensor_str)
        if name is None:
            close = difflib.get_close_matches(tensor_str.removesuffix(_TENSOR), names, n=3)
            advice = f"Did you mean {' or '.join(map(repr, close))}?" if close else "list_variables lists them."
            raise ArgumentError(
                f"{self._source.file} has no variable {tensor_str!r:.200}; it has {len(names)}. {advice}"
            )
        return self._source.read(name)

    def _find(self, name: object) -> str | None:
        found = _find(name, shapes_of(self._source))
        # Of objects, such as Keras' models, a program knows the names that its variables have, not the paths to them.
        return self._by_full_name.get(str(name).removesuffix(_TENSOR)) if found is None else found


def _keys_by_full_name(source: Archive | Bundle) -> dict[str, str]:
    """Returns the names in a checkpoint of TensorFlow's objects, by those in programs that only one variable has."""
    if not isinstance(source, Bundle) or GRAPH not in source.layouts:
        return {}
    names = full_names(source.object_graph())
    counts = Counter(names.values())
    return {name: key for key, name in names.items() if counts[name] == 1 and key in source.layouts}


def load_checkpoint(ckpt_dir_or_file: str | os.PathLike[str]) -> CheckpointReader:
    """Opens a checkpoint, or the newest one of a directory, to read single variables.

    Args:
        ckpt_dir_or_file: The directory or the checkpoint's name.

    Raises:
        ArgumentError: If the directory has no checkpoint.
        CheckpointError: If the checkpoint is not there, or is damaged.

    Source: `tf.train.load_checkpoint`.
    """
    path = path_of(ckpt_dir_or_file)
    if not os.path.isdir(path):  # TensorFlow's rule: a directory stands for its newest checkpoint.
        return CheckpointReader(path)
    reader = newest(path, CheckpointReader)
    if reader is None:
        raise ArgumentError(
            f"Couldn't find 'checkpoint' file or checkpoints in given directory {path}. Pass the directory in which "
            "the model was saved, or a checkpoint's name such as 'dir/model.ckpt-120'."
        )
    return reader


def list_variables(ckpt_dir_or_file: str | os.PathLike[str]) -> list[tuple[str, list[int]]]:
    """Returns the names and shapes of a checkpoint's variables, sorted.

    Args:
        ckpt_dir_or_file: A directory, for its newest one, or the checkpoint's name.

    Raises:
        ArgumentError: If the directory has no checkpoint.
        CheckpointError: If the checkpoint is not there, or is damaged.

    Source: `tf.train.list_variables`.
    """
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())


def load_variable(ckpt_dir_or_file: str | os.PathLike[str], name: str) -> NDArray[Any]:
    """Returns the value of one variable of a checkpoint; only this one is read.

    Args:
        ckpt_dir_or_file: A directory, for its newest one, or the checkpoint's name.
        name: The variable's name; `:0` at its end is left out.

    Raises:
        ArgumentError: If there is no variable of this name, or the directory has no checkpoint.
        CheckpointError: If the checkpoint is not there, or is damaged.

    Source: `tf.train.load_variable`.
    """
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name)


def _find(name: object, names: Collection[str]) -> str | None:
    if not isinstance(name, str):
        raise ArgumentError(f"A variable is named by a str; got {name!r:.80} of type {type(name).__name__}.")
    if name in names:
        return name
    # TensorFlow's programs name tensors as often as variables.
    short = name.removesuffix(_TENSOR)
    return short if short in names else None


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A checkpoint that was loaded.

    Attributes:
        prefix: The checkpoint's name.
        step: Its step.
        arrays: numpy arrays by name, in the order in which they were saved.
        extra: The JSON that was kept beside them.
        time: When it was written, in seconds since the epoch.
        full_names: Of one of TensorFlow's: the name of each variable in its program, by its name in the checkpoint;
            they differ where objects were saved, as Keras does. `None` for one of lockstep's.
        tables: What is read by rows, and is not among the arrays; `None` for what `load` and `load_newest` return.
    """

    prefix: str
    step: int
    arrays: dict[str, NDArray[Any]]
    extra: dict[str, Any]
    time: float
    full_names: Mapping[str, str] | None = None
    tables: Tables | None = None

    TENSORFLOW: ClassVar[str] = "tensorflow"
    """The name in `extra` under which a converted checkpoint of TensorFlow says what it was."""


def load(prefix: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint, and verifies the checksum of every part.

    One of TensorFlow's has its variables under TensorFlow's names, and nothing beside them; text is left out.

    Args:
        prefix: The checkpoint's name.

    Raises:
        CheckpointError: If it is not there, or is damaged; it names file, variable and cause.
    """
    source = open_source(prefix)
    if isinstance(source, Bundle):
        return _load_bundle(prefix_of(prefix), source)
    with source as archive:
        manifest = archive.manifest
        arrays = {key: archive.read(key) for key in manifest.layouts}
    # One that was converted has TensorFlow's names still.
    names = {key: key for key in arrays} if Checkpoint.TENSORFLOW in manifest.extra else None
    return Checkpoint(prefix_of(prefix), manifest.step, arrays, manifest.extra, manifest.time, names)


def _load_bundle(prefix: str, bundle: Bundle) -> Checkpoint:
    arrays = {name: bundle.read(name) for name, layout in bundle.layouts.items() if layout.dtype.kind != "O"}
    names = full_names(bundle.object_graph()) if GRAPH in bundle.layouts else {}
    # An Estimator's counts its steps; others say in their name how often was saved.
    counted = arrays.get(next((key for key, name in names.items() if name == _GLOBAL_STEP), _GLOBAL_STEP))
    step = int(counted.item()) if counted is not None and counted.size == 1 else step_in(prefix) or 0
    known = {name: names.get(name, name) for name in arrays}
    return Checkpoint(prefix, step, arrays, {}, bundle.time(), known)


def load_by_rows(prefix: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint as `load` does, but leaves tables in their files, of which it verifies every part, too.

    Raises:
        CheckpointError: If it is not there, or is damaged.
    """
    source = open_source(prefix)
    if not isinstance(source, ArchiveOfTables):
        return load(prefix)
    with source:
        source.tables.verify()
        arrays = {key: source.read(key) for key in source.own}
    manifest = source.manifest
    return Checkpoint(prefix_of(prefix), manifest.step, arrays, manifest.extra, manifest.time, tables=source.tables)


def has_tables(prefix: str | os.PathLike[str]) -> bool:
    """Returns whether a checkpoint has tables that are read by rows; one that cannot be read has none."""
    try:
        source = open_source(prefix)
    except CheckpointError:
        return False
    if isinstance(source, Archive):
        source.close()
    return isinstance(source, ArchiveOfTables)


def load_newest_by_rows(directory: str | os.PathLike[str], strict: bool = False) -> Checkpoint | None:
    """Reads the newest checkpoint of a directory as `load_newest` does, with `load_by_rows`."""
    return newest(directory, load_by_rows, strict=strict)


def load_newest(directory: str | os.PathLike[str], strict: bool = False) -> Checkpoint | None:
    """Reads the newest checkpoint of a directory that is not damaged; the log warns of each one passed over.

    Args:
        directory: The directory.
        strict: Whether none may be passed over.

    Returns:
        The checkpoint, or `None` if there is none.

    Raises:
        CheckpointError: If the directory cannot be read; or, if `strict`, the newest one is damaged, or the file that
            lists them is.
    """
    return newest(directory, load, strict=strict)
