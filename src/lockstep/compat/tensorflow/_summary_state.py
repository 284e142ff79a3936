"""Which summaries are written, and for which step: tf.summary's settings of a thread."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import warnings
from collections.abc import Callable, Generator
from typing import Any

import jax
import numpy as np

from lockstep.errors import ArgumentError, StartupOrderError

_settings = threading.local()
_trace: dict[str, Any] = {}


@contextlib.contextmanager
def record_if(condition: bool | Callable[[], Any]) -> Generator[None]:
    """Opens a context in which summaries are written if a condition is true when they are.

    Source: tf.summary.record_if.

    Args:
        condition: A truth value, or a function that returns one.
    """
    before = getattr(_settings, "condition", None)
    _settings.condition = condition
    try:
        yield
    finally:
        _settings.condition = before


def is_recording() -> bool:
    """Returns whether the condition that is open on this thread is true, or none is open."""
    condition = getattr(_settings, "condition", None)
    if condition is None:
        return True
    return bool(np.asarray(condition() if callable(condition) else condition))


def set_step(step: Any) -> None:
    """Sets the step of summaries that have none, on this thread. Source: tf.summary.experimental.set_step."""
    _settings.step = step


def get_step() -> Any:
    """Returns the step of summaries that have none, or `None`. Source: tf.summary.experimental.get_step."""
    return getattr(_settings, "step", None)


def trace_on(graph: bool = True, profiler: bool = False, profiler_outdir: str | None = None) -> None:
    """Starts a profile, with `profiler=True`. Graphs there are none, of which a warning tells.

    Source: tf.summary.trace_on.
    """
    if _trace:
        raise StartupOrderError("A trace has been started. Call tf.summary.trace_export or trace_off first.")
    _trace.update(graph=graph, profiler=profiler, directory=profiler_outdir)
    if profiler:
        # JAX wants the directory now, TensorFlow's programs may name it at the end.
        _trace["written"] = profiler_outdir or tempfile.mkdtemp()
        jax.profiler.start_trace(_trace["written"])


def trace_export(name: str, step: Any = None, profiler_outdir: str | None = None) -> None:
    """Ends the profile and writes it into `profiler_outdir`, where TensorBoard finds it.

    Source: tf.summary.trace_export.

    Raises:
        StartupOrderError: If no trace was started.
        ArgumentError: If there is a profile, and no directory for it.
    """
    if not _trace:
        raise StartupOrderError("No trace was started. Call tf.summary.trace_on before.")
    trace = dict(_trace)
    trace_off()
    if trace["graph"]:
        warnings.warn(
            "tf.summary.trace_export writes no graph: JAX compiles functions without one that TensorBoard shows. "
            "jax.make_jaxpr(function)(*arguments) prints the operations of a function.",
            stacklevel=2,
        )
    if trace["profiler"] and trace["directory"] is None:
        if profiler_outdir is None:
            raise ArgumentError("profiler_outdir says where the profile is written. Received none.")
        shutil.copytree(trace["written"], profiler_outdir, dirs_exist_ok=True)
        shutil.rmtree(trace["written"])


def trace_off() -> None:
    """Ends the trace. Source: tf.summary.trace_off."""
    if _trace.get("profiler"):
        jax.profiler.stop_trace()
    _trace.clear()
