"""tf.summary's writers, for training loops of one's own."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from lockstep._types import Tensor
from lockstep.compat.tensorflow._summary_state import get_step
from lockstep.errors import ArgumentError, StartupOrderError, UnsupportedError
from lockstep.estimator.internal import SummaryOp
from lockstep.estimator.summary import FileWriter

_open = threading.local()


class SummaryWriter:
    """Writes summaries into a directory. Source: tf.summary.SummaryWriter."""

    def __init__(self, file: FileWriter) -> None:
        self._file = file

    @contextlib.contextmanager
    def as_default(self, step: Any = None) -> Generator[SummaryWriter]:
        """Makes it the one that summaries are written by, on this thread; `step` is that of those which have none."""
        # Writers nest, as contexts; each thread has its own.
        before = _default()
        _open.writer = self, step
        try:
            yield self
        finally:
            _open.writer = before
            self.flush()

    def set_as_default(self, step: Any = None) -> None:
        """Makes it the one that summaries are written by, from now on."""
        _open.writer = self, step

    def write(self, op: SummaryOp, step: Any) -> None:
        """Writes a summary."""
        self._file.add_summary(op, int(np.asarray(step)))

    def flush(self) -> None:
        """Makes what was written visible to readers."""
        self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class NoWriter(SummaryWriter):
    """A writer that writes nothing. Source: tf.summary.create_noop_writer."""

    def __init__(self) -> None:
        """Creates it; there is no file."""

    def write(self, op: SummaryOp, step: Any) -> None:
        """Drops a summary."""

    def flush(self) -> None:
        """Changes nothing."""

    def close(self) -> None:
        """Changes nothing."""


def current_writer() -> SummaryWriter | None:
    """Returns the writer that is open on this thread, or `None`."""
    return _default()[0]


def write(kind: Any, name: str, data: Tensor, step: Any, max_outputs: int = 3) -> bool:
    """Writes a summary by the default writer, if there is one.

    Returns:
        `False` where no writer is open, as in TensorFlow: programs leave the writer out to log nothing.

    Raises:
        StartupOrderError: If there is a writer, but no step.
        UnsupportedError: In code that JAX compiles.
        ArgumentError: If a scalar is none.
    """
    writer, own = _default()
    if writer is None:
        return False
    own = get_step() if own is None else own
    at = own if step is None else step
    if at is None:
        raise StartupOrderError(
            f"A writer writes summaries for a step. Received: tf.summary.{kind}({name!r}) without one. Write: "
            f"tf.summary.{kind}({name!r}, ..., step=step), or: with writer.as_default(step=step): ..."
        )
    # A file cannot be written from compiled code, where this line runs once.
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((data, at))):
        raise UnsupportedError(
            f"Summaries are written outside of what is compiled. Received: tf.summary.{kind}({name!r}) in a function "
            "of strategy.run. Return the value, and write it in the loop."
        )
    value = data if kind == "text" else np.asarray(data)
    if kind == "scalar" and np.ndim(value):
        raise ArgumentError(f"tf.summary.scalar shows one number. Received: {name!r} of shape {np.shape(value)}.")
    writer.write(SummaryOp(kind, name, value, max_outputs), at)
    return True


def _default() -> tuple[SummaryWriter | None, Any]:
    return getattr(_open, "writer", (None, None))
