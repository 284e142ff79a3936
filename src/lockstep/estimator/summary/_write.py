"""Summaries of a model_fn, computed, as protocol buffers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from lockstep.estimator._model_fn.records import SummaryOp
from lockstep.summary.internal import EventFile, as_bytes
from lockstep.summary.internal import protos as _protos


def write(event_file: EventFile, summary_op: SummaryOp, value: Any, step: int) -> None:
    """Writes a summary.

    Args:
        event_file: To which file.
        summary_op: What it is; its own value is not used.
        value: What came out: an array, or the words of a text.
        step: After which step.
    """
    event_file.add_summary(as_summary(replace(summary_op, value=value)), step)


def as_summary(op: SummaryOp) -> Any:
    """Returns a summary with a computed value as the protocol buffer `Summary`."""
    if op.kind == "text":
        texts = _texts(op.value)
        return _protos.text_value(op.tag, [_encoded(t) for t in texts.flat], "text", texts.shape)
    value = np.asarray(op.value)
    if op.kind == "scalar":
        return _protos.scalar_value(op.tag, value)
    if op.kind == "histogram":
        return _protos.histogram_value(op.tag, value)
    return _images(op.tag, as_bytes(value[: op.max_outputs]), numbered=op.max_outputs > 1)


def _images(tag: str, pictures: list[np.ndarray], numbered: bool) -> Any:
    merged = _protos.messages("summary").Summary()
    for number, picture in enumerate(pictures):
        merged.MergeFrom(_protos.image_value(f"{tag}/image/{number}" if numbered else f"{tag}/image", picture))
    return merged


def _texts(value: Any) -> np.ndarray:
    return np.asarray(value.on_host() if hasattr(value, "on_host") else value, object)


def _encoded(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)
