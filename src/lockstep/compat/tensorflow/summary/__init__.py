"""tf.summary: values for TensorBoard, in a model_fn, and by writers in loops."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from typing import Any as _Any

from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow import _summary_state as _state
from lockstep.compat.tensorflow._ops.named import model_fn_scope as _model_fn_scope
from lockstep.compat.tensorflow._summary_state import record_if as record_if
from lockstep.compat.tensorflow._summary_state import trace_export as trace_export
from lockstep.compat.tensorflow._summary_state import trace_off as trace_off
from lockstep.compat.tensorflow._summary_state import trace_on as trace_on
from lockstep.errors import ArgumentError as _ArgumentError

_LAZY = {"experimental": f"{__name__}.experimental"}

__all__ = ["create_file_writer", "create_noop_writer", "experimental", "flush", "histogram", "image", "record_if"]
__all__ += ["scalar", "should_record_summaries", "text", "trace_export", "trace_off", "trace_on"]


def create_file_writer(
    logdir: _Any, max_queue: int | None = None, flush_millis: int | None = None, filename_suffix: str | None = None
) -> _Any:
    """Returns a writer of event files for TensorBoard, for loops of one's own: `with writer.as_default(): ...`.

    In a job of several processes each writes what it is told to: let the chief alone do it, or each into its directory.

    Args:
        logdir: The directory.
        max_queue: How many summaries may wait; none ever does.
        flush_millis: After how many milliseconds, at the latest, a further summary makes all visible; default: 120 s.
        filename_suffix: The end of the file's name.

    Source: tf.summary.create_file_writer.
    """
    from lockstep.compat.tensorflow._summary_writer import SummaryWriter
    from lockstep.estimator.summary import FileWriter

    # TensorFlow's default.
    seconds = 120.0 if flush_millis is None else flush_millis / 1000
    return SummaryWriter(FileWriter(logdir, None, max_queue or 10, seconds, None, filename_suffix))


def _add(kind: str, name: str, data: _Tensor, step: _Tensor, description: _Any, *options: _Any) -> None:
    scope = _model_fn_scope()
    # A model_fn's summaries are written for the step that it is called in; another number would be ignored.
    if description is not None or (step is not None and scope is not None and step is not scope.global_step):
        raise _ArgumentError(
            "Summaries have no description, and those of a model_fn are of its global step. Received: "
            f"step={step!r} and description={description!r}. Leave both out."
        )
    # Imported late: programs without summaries need no Estimator.
    if not _state.is_recording():
        return
    if scope is None:
        from lockstep.compat.tensorflow._summary_writer import write

        write(kind, name, data, step, *options)
    else:
        from lockstep.estimator import summary

        getattr(summary, kind)(name, data, *options)


def scalar(name: str, data: _Tensor, step: _Tensor = None, description: str | None = None) -> None:
    """Shows a number: of a model_fn every `RunConfig.save_summary_steps` steps, in a loop by the default writer.

    Args:
        name: Its tag.
        data: One number.
        step: In a model_fn `None` or the global step; in a loop the number of the step.
        description: Must be `None`.

    Source: tf.summary.scalar.
    """
    _add("scalar", name, data, step, description)


def histogram(
    name: str, data: _Tensor, step: _Tensor = None, buckets: int | None = None, description: str | None = None
) -> None:
    """Shows how values are distributed; `buckets` must be `None`, else as `scalar`. Source: tf.summary.histogram."""
    # The event file has the values' histogram; TensorBoard draws it.
    if buckets is not None:
        raise _ArgumentError(f"TensorBoard chooses the buckets. Received: buckets={buckets!r}. Leave it out.")
    _add("histogram", name, data, step, description)


def image(name: str, data: _Tensor, step: _Tensor = None, max_outputs: int = 3, description: str | None = None) -> None:
    """Shows the first images of a batch; else as `scalar`. Source: tf.summary.image."""
    _add("image", name, data, step, description, max_outputs)


def text(name: str, data: _Tensor, step: _Tensor = None, description: str | None = None) -> None:
    """Shows text that does not change; else as `scalar`. Source: tf.summary.text."""
    _add("text", name, data, step, description)


def create_noop_writer() -> _Any:
    """Returns a writer that writes nothing: `with writer.as_default(): ...`. Source: tf.summary.create_noop_writer."""
    from lockstep.compat.tensorflow._summary_writer import NoWriter

    return NoWriter()


def flush(writer: _Any = None, name: str | None = None) -> None:
    """Makes what a writer wrote visible, by default the one that is open. Source: tf.summary.flush."""
    from lockstep.compat.tensorflow._summary_writer import current_writer

    found = current_writer() if writer is None else writer
    if found is not None:
        found.flush()


def should_record_summaries() -> bool:
    """Returns whether summaries are written here: a writer is open, and the condition of `record_if` is true.

    Source: tf.summary.should_record_summaries.
    """
    from lockstep.compat.tensorflow._summary_writer import current_writer

    return (_model_fn_scope() is not None or current_writer() is not None) and _state.is_recording()


__getattr__ = _missing.getter(__name__, _LAZY)
__dir__ = _missing.lister(globals(), _LAZY)
