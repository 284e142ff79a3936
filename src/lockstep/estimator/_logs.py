"""Logging of Estimators: by the chief, to standard error unless the program has configured logging."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator

_log = logging.getLogger("lockstep")


def show() -> None:
    """Shows messages from INFO up, as TensorFlow does, unless the program decides on that itself."""
    # A program with its own handlers would see each message twice.
    if _log.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
    _log.addHandler(handler)
    if _log.level == logging.NOTSET:
        _log.setLevel(logging.INFO)


@contextlib.contextmanager
def only_on(is_chief: bool) -> Generator[None]:
    """Raises the log level to WARNING except on the chief, within the context."""
    before = _log.level
    if not is_chief:
        _log.setLevel(max(before, logging.WARNING))
    try:
        yield
    finally:
        _log.setLevel(before)
