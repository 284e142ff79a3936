"""tf.summary: values for TensorBoard, in a model_fn."""

from __future__ import annotations

from typing import Any as _Any

from lockstep.compat.tensorflow._missing import getter as _getter
from lockstep.errors import ArgumentError as _ArgumentError

__all__ = ["histogram", "image", "scalar", "text"]


def _check(step: _Any, description: _Any) -> None:
    from lockstep.compat.tensorflow._ops.named import running

    scope = running()
    if description is not None or (step is not None and (scope is None or step is not scope.global_step)):
        raise _ArgumentError(
            "Summaries of a model_fn are those of its global step, and have no description. Received: "
            f"step={step!r} and description={description!r}. Leave both out."
        )


def scalar(name: str, data: _Any, step: _Any = None, description: str | None = None) -> None:
    """Shows a number, every `RunConfig.save_summary_steps` steps; only in a model_fn.

    Args:
        name: Its tag.
        data: One number.
        step: `None` or the global step.
        description: Must be `None`.

    Source: tf.summary.scalar.
    """
    from lockstep.summary import scalar as add

    _check(step, description)
    add(name, data)


def histogram(
    name: str, data: _Any, step: _Any = None, buckets: int | None = None, description: str | None = None
) -> None:
    """Shows how values are distributed; `buckets` must be `None`, else as `scalar`. Source: tf.summary.histogram."""
    from lockstep.summary import histogram as add

    _check(step, description)
    if buckets is not None:
        raise _ArgumentError(f"TensorBoard chooses the buckets. Received: buckets={buckets!r}. Leave it out.")
    add(name, data)


def image(name: str, data: _Any, step: _Any = None, max_outputs: int = 3, description: str | None = None) -> None:
    """Shows the first images of a batch; else as `scalar`. Source: tf.summary.image."""
    from lockstep.summary import image as add

    _check(step, description)
    add(name, data, max_outputs)


def text(name: str, data: _Any, step: _Any = None, description: str | None = None) -> None:
    """Shows text that does not change; else as `scalar`. Source: tf.summary.text."""
    from lockstep.summary import text as add

    _check(step, description)
    add(name, data)


__getattr__ = _getter(__name__)
