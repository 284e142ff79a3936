"""The protocol buffers of event files, and images as they hold them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

# DT_STRING, of TensorFlow's data types.
_STRING = 7
# The content of `SummaryMetadata.PluginData` by plugin; none for any other plugin. Both are what TensorFlow writes. The
# text plugin parses its content as the protocol buffer TextPluginData (version 0 has no bytes), and one file in which
# it cannot costs the tab of the whole log directory.
_CONTENTS = {"graph_keras_model": b"1"}
# Smaller values than this are all shown as zero.
_LEAST = 1e-6


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

    # make_histogram raises for NaN and infinities, and a histogram must not end a training.
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
    """Returns a `Summary` of texts for one of TensorBoard's plugins; `shape` is that of their array, if any."""
    summaries, shapes = messages("summary"), messages("tensor_shape")
    sizes = None if shape is None else [shapes.TensorShapeProto.Dim(size=size) for size in shape]
    about = summaries.SummaryMetadata.PluginData(plugin_name=plugin, content=_CONTENTS.get(plugin, b""))
    value = summaries.Summary.Value(
        tag=tag,
        tensor=messages("tensor").TensorProto(
            dtype=_STRING, string_val=texts, tensor_shape=None if sizes is None else shapes.TensorShapeProto(dim=sizes)
        ),
        metadata=summaries.SummaryMetadata(plugin_data=about),
    )
    return summaries.Summary(value=[value])


def tensor_value(tag: str, array: np.ndarray) -> Any:
    """Returns a summary of an array of numbers or texts, as readers of event files find it."""
    tensors, shapes, types = messages("tensor"), messages("tensor_shape"), messages("types")
    shape = shapes.TensorShapeProto(dim=[shapes.TensorShapeProto.Dim(size=size) for size in array.shape])
    if array.dtype.kind in "OSU":
        texts = [text.encode() if isinstance(text, str) else bytes(text) for text in array.flat]
        tensor = tensors.TensorProto(dtype=types.DT_STRING, tensor_shape=shape, string_val=texts)
    else:
        known = {"float32": "FLOAT", "float64": "DOUBLE"}
        kind = getattr(types, f"DT_{known.get(array.dtype.name, array.dtype.name.upper())}")
        tensor = tensors.TensorProto(dtype=kind, tensor_shape=shape, tensor_content=array.tobytes())
    return messages("summary").Summary(value=[messages("summary").Summary.Value(tag=tag, tensor=tensor)])


def as_bytes(images: np.ndarray) -> list[np.ndarray]:
    """Returns each image of a batch as uint8 (height, width, channels).

    Floats are scaled image by image: without negative values, so that the largest is 255; else, so that zero is 128 and
    the value farthest from zero is 1 or 255. Pixels that are not finite become bright red, or white in images of one
    channel.

    Args:
        images: (batch, height, width, 1, 3 or 4); uint8 is taken as it is.

    Source: tf.compat.v1.summary.image.
    """
    if images.dtype == np.uint8:
        return list(images)
    return [_as_pixels(image.astype("float32")) for image in images]


def _as_pixels(image: np.ndarray) -> np.ndarray:
    bad = ~np.isfinite(image).all(axis=-1)
    good = image[~bad]
    pixels = np.empty(image.shape, np.uint8)
    pixels[~bad] = _scale(good) if good.size else good
    pixels[bad] = np.array([255, 0, 0, 255][: image.shape[-1]], np.uint8)
    return pixels


def _scale(values: np.ndarray) -> np.ndarray:
    low, high = float(values.min()), float(values.max())
    if low < 0:
        farthest = max(-low, high)
        return values * np.float32(127 / farthest if farthest >= _LEAST else 0) + np.float32(128)
    return values * np.float32(255 / high if high >= _LEAST else 0)
