"""The writer of a directory of checkpoints."""

from __future__ import annotations

import itertools
import json
import logging
import operator
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from lockstep.checkpoint._directory import Directory, Retention
from lockstep.checkpoint._format import LONGEST, member_of, text_of
from lockstep.checkpoint._names import SUFFIX, path_of
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

    Source: `tf.compat.v1.train.Saver`.

    Examples:
        >>> with CheckpointStore("runs/model") as store:
        ...     prefix = store.save(120, {"dense/kernel": kernel})
        >>> ls.checkpoint.load(prefix).arrays["dense/kernel"]
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        basename: str = "model.ckpt",
        keep_max: int | None = 5,
        keep_every_n_hours: float = 10000.0,
    ) -> None:
        self._path = path_of(directory)
        self._basename = _check_basename(basename)
        period = _check_hours(keep_every_n_hours) * _SECONDS_PER_HOUR
        retention = Retention(_check_count("keep_max", keep_max or 0), period, time.time())
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
        step = _check_count("step", step)
        kept = snapshot(extra or {})
        # One at a time: each that waits would hold another copy of the model in memory.
        self._background.join()
        copies = copy_to_host(arrays)
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
        self._is_closed = True  # Also if the last save has failed: its error is raised once.
        self._background.close()


def _check_basename(basename: Any) -> str:
    if not isinstance(basename, str) or not basename or "/" in basename or "\0" in basename:
        raise ArgumentError(
            f"Names of checkpoints begin with a basename such as 'model.ckpt', without '/'; got {basename!r}."
        )
    if basename.startswith(".") or basename.endswith(SUFFIX):
        raise ArgumentError(
            f"A basename neither begins with '.' nor ends with {SUFFIX!r}; {basename!r} does. Choose another."
        )
    return basename


def _check_count(name: str, value: Any) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        count = -1
    if count < 0 or isinstance(value, bool):
        raise ArgumentError(f"{name} is an integer, at least 0; got {value!r}.")
    return count


def _check_hours(hours: Any) -> float:
    if isinstance(hours, bool) or not isinstance(hours, int | float) or not hours >= 0:
        raise ArgumentError(f"keep_every_n_hours is a number of hours, at least 0; got {hours!r}.")
    return float(hours)


class Background:
    """Runs one piece of work at a time on a thread; the interpreter does not end before it is done."""

    def __init__(self) -> None:
        # It stays: starting a thread for each piece costs the caller up to an interval of the interpreter's lock, 5 ms.
        self._thread = ThreadPoolExecutor(1, "lockstep-checkpoint")
        self._work: Future[None] | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Starts a piece of work; the one before is awaited first, and raises what it raised."""
        self.join()
        self._work = self._thread.submit(work)

    def check(self) -> None:
        """Raises once what the last piece of work raised, if it has ended; does not wait."""
        if self._work is not None and self._work.done():
            self.join()

    def join(self) -> None:
        """Waits for the work under way, and raises once what it raised."""
        if (work := self._work) is None:
            return
        error = work.exception()
        # Unless a signal's handler has saved in the meantime.
        if self._work is work:
            self._work = None
        if error is not None:
            raise error

    def close(self) -> None:
        """Waits likewise, and lets go of the thread."""
        self._thread.shutdown()
        self.join()


_ALIGNMENT = 64


def copy_to_host(arrays: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Returns copies in the host's memory; all transfers from devices are started before the first is awaited.

    Raises:
        ArgumentError: If a key is not text, or a value not an array that can be kept in a file.
    """
    for key, value in arrays.items():
        _check_key(key)
        if start := getattr(value, "copy_to_host_async", None):
            _attempt(key, start)
    # On a CPU, jax hands out its own buffer, which a step may be given to write to: always copied.
    found = {key: _on_host(key, value) for key, value in arrays.items()}
    copies = _allocate(list(found.values()))
    for copy, array in zip(copies, found.values(), strict=True):
        np.copyto(copy, array)
    return dict(zip(found, copies, strict=True))


def _allocate(arrays: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Returns new arrays of the same shapes and dtypes."""
    # In one piece of memory: the system hands that out faster than many.
    starts = [0, *itertools.accumulate(-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in arrays)]
    memory = np.empty(starts[-1], np.uint8)
    return [
        np.ndarray(array.shape, array.dtype, buffer=memory.data, offset=start)
        for array, start in zip(arrays, starts, strict=False)
    ]


def _on_host(key: str, value: Any) -> NDArray[Any]:
    array: NDArray[Any] = _attempt(key, lambda: np.asarray(value))
    if text_of(array.dtype) is None:
        raise ArgumentError(
            f"Checkpoints keep arrays of numbers, truth values, text of fixed length and times; variable {key!r} has "
            f"dtype {array.dtype}. Convert it, or keep it in `extra` as JSON."
        )
    return array


def _attempt(key: str, work: Any) -> Any:
    try:
        return work()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(
            f"The value of variable {key!r} cannot be copied to the host ({error}). Pass a numpy array, or a jax array "
            "of this process that is still alive (not donated to a step)."
        ) from error


def _check_key(key: Any) -> None:
    if not isinstance(key, str):
        raise ArgumentError(f"Variables are saved by names, which are text; {key!r:.80} is {type(key).__name__}.")
    if (length := len(member_of(key).encode())) > LONGEST:
        raise ArgumentError(f"A variable's name has at most {LONGEST} bytes; {key[:40]!r}... has {length}.")


def snapshot(extra: Any) -> dict[str, Any]:
    """Returns a copy of `extra`, as it will be read again.

    Raises:
        ArgumentError: If something in it is not JSON.
    """
    if not isinstance(extra, Mapping):
        raise ArgumentError(f"What is kept beside the arrays is a dict of JSON values; got {extra!r:.80}.")
    try:
        _check(dict(extra), "extra")
        return json.loads(json.dumps(dict(extra)))  # Tuples become lists now, and not only when it is read.
    except RecursionError:
        raise ArgumentError("extra is nested too deeply for JSON, or contains itself. Make it flatter.") from None


def _check(value: Any, place: str) -> None:
    if isinstance(value, dict):
        for key, inner in cast("dict[Any, Any]", value).items():
            if not isinstance(key, str):
                raise ArgumentError(f"JSON's keys are text; {place} has the key {key!r:.80}. Use str({key!r:.80}).")
            _check(inner, f"{place}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(cast("list[Any]", value)):
            _check(inner, f"{place}[{index}]")
    elif value is not None and type(value) not in (str, int, float, bool):
        raise ArgumentError(
            f"What is kept beside the arrays must be JSON (dict, list, str, int, float, bool, None); {place} is "
            f"{value!r:.80} of type {type(value).__name__}. Convert it, or save it as an array."
        )
