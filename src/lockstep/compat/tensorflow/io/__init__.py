"""tf.io: files, records, examples, images."""

# ruff: noqa: F403, F405

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

import sys as _sys
from typing import Any as _Any

from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow import _forward, _missing
from lockstep.compat.tensorflow._ops.jpeg import decode_and_crop_jpeg as decode_and_crop_jpeg
from lockstep.compat.tensorflow._ops.jpeg import extract_jpeg_shape as extract_jpeg_shape
from lockstep.compat.tensorflow._ops.jpeg import is_jpeg as is_jpeg
from lockstep.compat.tensorflow.io import _files
from lockstep.compat.tensorflow.io._files import *

_LAZY = {"gfile": f"{__name__}.gfile"}
# lockstep.data's, whose functions get and give tensors here.
_NAMES = (
    *("FixedLenFeature", "FixedLenSequenceFeature", "RaggedFeature", "TFRecordOptions", "TFRecordWriter"),
    *("VarLenFeature", "decode_bmp", "decode_gif", "decode_image", "decode_jpeg", "decode_png", "encode_jpeg"),
    *("encode_png", "parse_example", "parse_single_example", "parse_single_sequence_example", "parse_tensor"),
    "serialize_tensor",
)

__all__ = ["decode_and_crop_jpeg", "extract_jpeg_shape", "gfile", "is_jpeg", *_NAMES]
__all__ += _files.__all__

_other = _missing.getter(__name__, _LAZY)


def _parse_example(
    serialized: _Tensor, features: _Tensor, example_names: _Tensor = None, name: str | None = None
) -> _Any:
    """Parses serialised examples: on the host, or as inputs of an exported model in a serving_input_receiver_fn.

    Source: tf.io.parse_example.
    """
    # Placeholders exist only while a model is exported, which imports that module.
    export: _Any = _sys.modules.get("lockstep.estimator._export.placeholders")
    if export and isinstance(serialized, (export.Placeholder, export.TextPlaceholder, export.ParsedText)):
        return export.parse_example(serialized, features)
    # example_names are for TensorFlow's messages alone.
    return _forward.find_in_data("parse_example")(serialized, features)


def _parse_single_example(
    serialized: _Tensor, features: _Tensor, example_names: _Tensor = None, name: str | None = None
) -> _Any:
    """Parses one serialised example. Source: tf.io.parse_single_example."""
    return _forward.find_in_data("parse_single_example")(serialized, features)


_FUNCTIONS = {"parse_example": _parse_example, "parse_single_example": _parse_single_example}


def __getattr__(name: str) -> _Any:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    return _forward.find_in_data(name) if name in _NAMES else _other(name)


__dir__ = _missing.lister(globals(), {**_LAZY, **dict.fromkeys(_NAMES, "")})
