"""Which checkpoints a directory has, by their files alone."""

from __future__ import annotations

import os
from collections.abc import Iterable

from lockstep.checkpoint import _of_tensorflow
from lockstep.checkpoint._archive import is_complete
from lockstep.checkpoint._names import SUFFIX, file_of, path_of, step_in, step_of
from lockstep.errors import CheckpointError


def on_disk(directory: str | os.PathLike[str]) -> list[str]:
    """Returns what is called like a checkpoint, ascending by step.

    Raises:
        CheckpointError: If the directory cannot be read, or holds checkpoints of TensorFlow.
    """
    path = path_of(directory)
    _of_tensorflow.refuse_in(path)
    try:
        names = os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CheckpointError(f"The directory {path} cannot be read: {error}. Make it readable.") from error
    stems = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX) and not name.startswith(".")]
    named = sorted((step_of(stem), stem) for stem in stems if step_in(stem) is not None)
    return [os.path.join(path, stem) for _, stem in named]


def all_checkpoints(directory: str | os.PathLike[str]) -> list[str]:
    """Returns the checkpoints that are in a directory and complete, ascending by step.

    Args:
        directory: The directory; if it is not there, it has none.

    Returns:
        Their names. Whether the values in them are undamaged shows when they are loaded.

    Raises:
        CheckpointError: If the directory cannot be read, or holds checkpoints of TensorFlow.
    """
    return [prefix for prefix in on_disk(directory) if is_complete(file_of(prefix))]


def checkpoint_exists(checkpoint_prefix: str | os.PathLike[str]) -> bool:
    """Whether there is the file of a checkpoint.

    Source: `tf.compat.v1.train.checkpoint_exists`.
    """
    return os.path.isfile(file_of(checkpoint_prefix))


def remove_checkpoint(checkpoint_prefix: str | os.PathLike[str]) -> None:
    """Removes a checkpoint, pinned or not; one that is not there is no error.

    Raises:
        OSError: If it cannot be removed.

    Source: `tf.compat.v1.train.remove_checkpoint`.
    """
    try:
        os.unlink(file_of(checkpoint_prefix))
    except FileNotFoundError:
        return


def get_checkpoint_mtimes(checkpoint_prefixes: Iterable[str | os.PathLike[str]]) -> list[float]:
    """Returns when checkpoints were written, in seconds since the epoch; those that are not there are left out.

    Source: `tf.compat.v1.train.get_checkpoint_mtimes`.
    """
    times: list[float] = []
    for prefix in checkpoint_prefixes:
        try:
            times.append(os.stat(file_of(prefix)).st_mtime)
        except FileNotFoundError:
            continue
    return times
