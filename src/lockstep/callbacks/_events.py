"""Event files, which TensorBoard reads, without TensorFlow."""

from __future__ import annotations

import importlib
import itertools
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

_count = itertools.count()
_STRING = 7  # DT_STRING, of TensorFlow's data types.


class EventFile:
    """One new event file in a directory, created by the first thing that is written.

    Args:
        directory: Where; it is created too.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._open: Any = None

    def scalar(self, tag: str, value: Any, step: int) -> None:
        """Writes one number."""
        from tensorboardX import summary

        self._write(summary.scalar(tag, float(np.asarray(value))), step)

    def histogram(self, tag: str, values: np.ndarray, step: int) -> None:
        """Writes how values of any shape are distributed; where some are not finite, only the others."""
        from tensorboardX import summary

        finite = values[np.isfinite(values)].astype("float64").ravel()
        if finite.size:
            self._write(summary.histogram(tag, finite, bins=30), step)

    def image(self, tag: str, picture: np.ndarray, step: int) -> None:
        """Writes a picture of shape (height, width, channels), of values from 0 to 255."""
        from lockstep.data._image.encode import encode_png

        height, width, channels = picture.shape
        summaries = _messages("summary")
        image = summaries.Summary.Image(
            height=height,
            width=width,
            colorspace=channels,
            encoded_image_string=encode_png(picture.astype("uint8")),
        )
        self._write(summaries.Summary(value=[summaries.Summary.Value(tag=tag, image=image)]), step)

    def text_of_plugin(self, tag: str, plugin: str, text: str, step: int) -> None:
        """Writes a text that one of TensorBoard's plugins understands."""
        summaries, tensors = _messages("summary"), _messages("tensor")
        about = summaries.SummaryMetadata.PluginData(plugin_name=plugin, content=b"1")
        value = summaries.Summary.Value(
            tag=tag,
            tensor=tensors.TensorProto(dtype=_STRING, string_val=[text.encode()]),
            metadata=summaries.SummaryMetadata(plugin_data=about),
        )
        self._write(summaries.Summary(value=[value]), step)

    def flush(self) -> None:
        """Makes what was written visible to readers."""
        if self._open is not None:
            self._open.flush()

    def close(self) -> None:
        """Closes the file; what is written later goes to a new one."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _write(self, summary: Any, step: int) -> None:
        event = _messages("event").Event(wall_time=time.time(), step=int(step), summary=summary)
        self._writer().write_event(event)

    def _writer(self) -> Any:
        if self._open is None:
            from tensorboardX.event_file_writer import EventsWriter

            self._directory.mkdir(parents=True, exist_ok=True)
            # The library's own names are unique per second only.
            self._open = EventsWriter(str(self._directory / "events"), f".{os.getpid()}.{next(_count)}.v2")
        return self._open


def _messages(kind: str) -> Any:
    """Returns the generated module of a kind of protocol buffers, whose classes type checkers cannot see."""
    return importlib.import_module(f"tensorboardX.proto.{kind}_pb2")
