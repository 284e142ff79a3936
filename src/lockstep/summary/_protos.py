"""The protocol buffers of event files."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

_STRING = 7  # DT_STRING, of TensorFlow's data types.
# The content of `SummaryMetadata.PluginData` by plugin; none for any other plugin. Both are what TensorFlow writes. The
# text plugin parses its content as the protocol buffer TextPluginData (version 0 has no bytes), and one file in which
# it cannot costs the tab of the whole log directory.
_CONTENTS = {"graph_keras_model": b"1"}


@functools.cache
def messages(kind: str) -> Any:
    """Returns the generated module of a kind of protocol buffers, whose classes type checkers cannot see."""
    return importlib.import_module(f"tensorboardX.proto.{kind}_pb2")


def scalar_value(tag: str, value: Any) -> Any:
    """Returns a `Summary` of one number."""
    summaries = messages("summary")
    return summaries.Summary(value=[summaries.Summary.Value(tag=tag, simple_value=float(value))])


def histogram_value(tag: str, values: np.ndarray) -> Any:
    """Returns a `Summary` of how values of any shape are distributed; where some are not finite, of the others."""
    from tensorboardX.summary import make_histogram

    finite = values[np.isfinite(values)].astype("float64").ravel()
    summaries = messages("summary")
    if not finite.size:
        return summaries.Summary()
    return summaries.Summary(value=[summaries.Summary.Value(tag=tag, histo=make_histogram(finite, bins=30))])


def image_value(tag: str, picture: np.ndarray) -> Any:
    """Returns a `Summary` of a picture: uint8 (height, width, channels)."""
    from lockstep.data.internal import encode_png

    summaries = messages("summary")
    height, width, channels = picture.shape
    image = summaries.Summary.Image(
        height=height, width=width, colorspace=channels, encoded_image_string=encode_png(picture)
    )
    return summaries.Summary(value=[summaries.Summary.Value(tag=tag, image=image)])


def text_value(tag: str, texts: Sequence[bytes], plugin: str, shape: Sequence[int] | None = None) -> Any:
    """Returns a `Summary` of texts that one of TensorBoard's plugins understands.

    Args:
        tag: Its name.
        texts: One after another.
        plugin: The plugin's name.
        shape: Of the array of texts; `None` leaves it out.
    """
    summaries = messages("summary")
    about = summaries.SummaryMetadata.PluginData(plugin_name=plugin, content=_CONTENTS.get(plugin, b""))
    value = summaries.Summary.Value(
        tag=tag,
        tensor=messages("tensor").TensorProto(
            dtype=_STRING, string_val=texts, tensor_shape=None if shape is None else _shape(shape)
        ),
        metadata=summaries.SummaryMetadata(plugin_data=about),
    )
    return summaries.Summary(value=[value])


def _shape(shape: Sequence[int]) -> Any:
    shapes = messages("tensor_shape")
    return shapes.TensorShapeProto(dim=[shapes.TensorShapeProto.Dim(size=size) for size in shape])
