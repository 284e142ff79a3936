"""The writer of a directory of checkpoints."""

from __future__ import annotations

import logging
import operator
import os
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from lockstep.checkpoint import _host, _json, _of_tensorflow
from lockstep.checkpoint._background import Background
from lockstep.checkpoint._directory import Directory
from lockstep.checkpoint._names import SUFFIX, path_of
from lockstep.checkpoint._retention import Retention
from lockstep.errors import ArgumentError, CheckpointError

_log = logging.getLogger("lockstep")

_SECONDS_PER_HOUR = 3600.0


class CheckpointStore:
    """Writes the checkpoints of one directory, in the background, and removes old ones.

    A checkpoint is one file, `<directory>/<basename>-<step>.npz`, which appears whole or not at all, and is listed in
    the file `checkpoint` beside it. A directory has one writer at a time; readers need not know of it. Not to be used
    by several threads at once.

    Args:
        directory: Where; made when the first checkpoint is saved.
        basename: What their names begin with.
        keep_max: How many stay, the newest ones; `None` or 0 for all. What an earlier writer listed counts.
        keep_every_n_hours: Besides, one is kept for ever for each so many hours.

    Raises:
        ArgumentError: If an argument is not as described.
        CheckpointError: If the directory holds checkpoints of TensorFlow.

    Source: `tf.compat.v1.train.Saver`.

    Examples:
        >>> with CheckpointStore("/tmp/model") as store:
        ...     prefix = store.save(120, {"dense/kernel": kernel})
        >>> load(prefix).arrays["dense/kernel"]
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        basename: str = "model.ckpt",
        keep_max: int | None = 5,
        keep_every_n_hours: float = 10000.0,
    ) -> None:
        self._path = path_of(directory)
        self._basename = _checked_basename(basename)
        period = _checked_hours(keep_every_n_hours) * _SECONDS_PER_HOUR
        _of_tensorflow.refuse_in(self._path)
        retention = Retention(_checked_count("keep_max", keep_max or 0), period, time.time())
        # Absolute: the program may go to another directory while the background writes.
        self._directory = Directory(os.path.abspath(self._path), basename, retention)
        self._background = Background()
        self._is_closed = False

    def __enter__(self) -> CheckpointStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self.close()
        except CheckpointError as failure:
            # What ended the block is the first cause.
            if error is None:
                raise
            _log.error("%s", failure)

    def prefix_of(self, step: int) -> str:
        """Returns the name of the checkpoint of a step, whether it was saved or not."""
        return os.path.join(self._path, f"{self._basename}-{step}")

    def save(self, step: int, arrays: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> str:
        """Saves a checkpoint.

        Copies everything to the host's memory, starts to write, and returns; `wait` says when it is on the disk. While
        an earlier one is being written, waits for that first.

        Args:
            step: Its step, at least 0. A checkpoint of the same step is replaced.
            arrays: numpy or jax arrays by name; they may be donated or changed afterwards. Of an array that is spread
                over processes, each must hold all.
            extra: JSON that is kept beside them.

        Returns:
            Its name, `<directory>/<basename>-<step>`.

        Raises:
            ArgumentError: If the arguments cannot be kept in a file.
            CheckpointError: If the one before could not be written (this one is not being written then), or the store
                is closed.
        """
        if self._is_closed:
            raise CheckpointError(f"The store of {self._path} is closed. Make a new CheckpointStore to save in it.")
        step = _checked_count("step", step)
        kept = _json.snapshot(extra or {})
        self._background.join()
        copies = _host.copied(arrays)
        self._background.start(lambda: self._directory.save(step, copies, kept))
        return self.prefix_of(step)

    def wait(self) -> None:
        """Waits until what was saved is on the disk, listed, and old ones are removed.

        Raises:
            CheckpointError: If it could not be written.
        """
        self._background.join()

    def check(self) -> None:
        """Finds out, without waiting, whether what was saved last could be written.

        Raises:
            CheckpointError: If it could not; once.
        """
        self._background.check()

    def close(self) -> None:
        """Waits likewise; nothing can be saved afterwards.

        Raises:
            CheckpointError: If what was saved last could not be written.
        """
        self._is_closed = True
        self._background.close()


def _checked_basename(basename: Any) -> str:
    if not isinstance(basename, str) or not basename or "/" in basename or "\0" in basename:
        raise ArgumentError(
            f"Names of checkpoints begin with a basename such as 'model.ckpt', without '/'; got {basename!r}."
        )
    if basename.startswith(".") or basename.endswith(SUFFIX):
        raise ArgumentError(
            f"A basename neither begins with '.' nor ends with {SUFFIX!r}; {basename!r} does. Choose another."
        )
    return basename


def _checked_count(name: str, value: Any) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        count = -1
    if count < 0 or isinstance(value, bool):
        raise ArgumentError(f"{name} is an integer, at least 0; got {value!r}.")
    return count


def _checked_hours(hours: Any) -> float:
    if isinstance(hours, bool) or not isinstance(hours, int | float) or not hours >= 0:
        raise ArgumentError(f"keep_every_n_hours is a number of hours, at least 0; got {hours!r}.")
    return float(hours)
