"""Waiting for checkpoints that another process writes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator

from lockstep.checkpoint._names import path_of
from lockstep.checkpoint._newest import newest, whole

_log = logging.getLogger("lockstep")

_PAUSE = 0.2


def checkpoints_iterator(
    checkpoint_dir: str | os.PathLike[str],
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:
    """Yields the newest checkpoint of a directory whenever there is a new one; those in between are passed over.

    Args:
        checkpoint_dir: The directory, which need not be there yet.
        min_interval_secs: How many seconds lie at least between two of them.
        timeout: How many seconds to wait at most for the next one. Default: for ever.
        timeout_fn: Called after that time; if it returns `True` the iterator ends, else it goes on waiting. Default: it
            ends.

    Yields:
        The name of a checkpoint.

    Raises:
        CheckpointError: If the directory cannot be read.

    Source: `tf.train.checkpoints_iterator`.
    """
    path = path_of(checkpoint_dir)
    last: str | None = None
    while True:
        new = _wait_for_another(path, last, timeout)
        if new is None:
            if timeout_fn is None:
                _log.info("Timed-out waiting for a checkpoint.")
                return
            if timeout_fn():
                return
            continue
        began = time.monotonic()
        last = new
        yield new
        _pause(began + min_interval_secs - time.monotonic())


def _wait_for_another(directory: str, last: str | None, timeout: float | None) -> str | None:
    _log.info("Waiting for new checkpoint at %s", directory)
    end = None if timeout is None else time.monotonic() + timeout
    warned: set[str] = set()
    while True:
        new = newest(directory, whole, warn=lambda text: _warn_once(text, warned))
        if new is not None and new != last:
            _log.info("Found new checkpoint at %s", new)
            return new
        if end is not None and time.monotonic() + _PAUSE > end:
            return None
        _pause(_PAUSE)


def _warn_once(text: str, warned: set[str]) -> None:
    if text not in warned:
        warned.add(text)
        _log.warning("%s", text)


def _pause(seconds: float) -> None:
    threading.Event().wait(max(0.0, seconds))
