"""Readers of checkpoints: single variables, or all of them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from lockstep.checkpoint._archive import Archive
from lockstep.checkpoint._format import DType
from lockstep.checkpoint._listing import newest
from lockstep.checkpoint._names import file_of, path_of, prefix_of
from lockstep.errors import ArgumentError

_TENSOR = ":0"


class CheckpointReader:
    """Reads variables of one checkpoint, one by one; also after its file is removed.

    Names may end with `:0`, as those of TensorFlow's tensors do.

    Args:
        prefix: The checkpoint's name.

    Raises:
        CheckpointError: If it is not there, or is damaged.

    Source: `tf.train.load_checkpoint`.
    """

    def __init__(self, prefix: str | os.PathLike[str]) -> None:
        self._archive = Archive(file_of(prefix))

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Returns the shape of each variable, by name."""
        return {name: list(layout.shape) for name, layout in self._archive.manifest.layouts.items()}

    def get_variable_to_dtype_map(self) -> dict[str, DType]:
        """Returns the numpy dtype of each variable, by name."""
        return {name: layout.dtype for name, layout in self._archive.manifest.layouts.items()}

    def has_tensor(self, tensor_str: str) -> bool:
        """Returns whether there is a variable of this name."""
        return _find(tensor_str, self._archive.manifest.layouts) is not None

    def get_tensor(self, tensor_str: str) -> NDArray[Any]:
        """Returns the value of a variable.

        Raises:
            ArgumentError: If there is no variable of this name.
            CheckpointError: If its value is damaged.
        """
        names = self._archive.manifest.layouts
        name = _find(tensor_str, names)
        if name is None:
            close = difflib.get_close_matches(tensor_str.removesuffix(_TENSOR), names, n=3)
            advice = f"Did you mean {' or '.join(map(repr, close))}?" if close else "list_variables lists them."
            raise ArgumentError(
                f"{self._archive.file} has no variable {tensor_str!r:.200}; it has {len(names)}. {advice}"
            )
        return self._archive.read(name)


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
    """

    prefix: str
    step: int
    arrays: dict[str, NDArray[Any]]
    extra: dict[str, Any]
    time: float


def load(prefix: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint, and verifies the checksum of every part.

    Args:
        prefix: The checkpoint's name.

    Raises:
        CheckpointError: If it is not there, or is damaged; it names file, variable and cause.
    """
    with Archive(file_of(prefix)) as archive:
        manifest = archive.manifest
        arrays = {key: archive.read(key) for key in manifest.layouts}
    return Checkpoint(prefix_of(prefix), manifest.step, arrays, manifest.extra, manifest.time)


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
