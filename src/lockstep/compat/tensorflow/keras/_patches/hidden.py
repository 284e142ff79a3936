"""What is remembered of Keras' objects, out of sight of its own bookkeeping of attributes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import Any

BATCH_SHAPE = "_lockstep_batch_shape"

_local = threading.local()


def put(owner: Any, name: str, value: Any) -> None:
    """Sets an attribute that Keras does not track."""
    object.__setattr__(owner, name, value)


def get(owner: Any, name: str) -> Any:
    """Returns what was `put`, or None."""
    return vars(owner).get(name)


@contextlib.contextmanager
def hiding_shapes() -> Generator[None]:
    """While open, `input_shape` and `output_shape` of plain layers are as absent as they are in Keras 3."""
    before = shapes_are_hidden()
    _local.hides = True
    try:
        yield
    finally:
        _local.hides = before


def shapes_are_hidden() -> bool:
    """Whether Keras is asking a question that it decides by the absence of these attributes."""
    return getattr(_local, "hides", False)
