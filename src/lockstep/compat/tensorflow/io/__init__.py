"""tf.io: files, records, examples, images."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

import sys as _sys
from typing import Any as _Any

from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow._bound import find_in_data as _find_in_data
from lockstep.compat.tensorflow._bound import on_host as _on_host
from lockstep.compat.tensorflow._ops.strings import decode_base64 as decode_base64
from lockstep.compat.tensorflow._ops.strings import encode_base64 as encode_base64
from lockstep.compat.tensorflow.io._files import decode_compressed as decode_compressed
from lockstep.compat.tensorflow.io._files import decode_csv as decode_csv
from lockstep.compat.tensorflow.io._files import decode_raw as decode_raw
from lockstep.compat.tensorflow.io._files import matching_files as matching_files
from lockstep.compat.tensorflow.io._files import read_file as read_file
from lockstep.compat.tensorflow.io._files import write_file as write_file

_LAZY = {"gfile": f"{__name__}.gfile"}
# lockstep.data's functions, which get and give tensors here.
_FUNCTIONS = (
    *("decode_bmp", "decode_gif", "decode_image", "decode_jpeg", "decode_png", "encode_jpeg", "encode_png"),
    *("extract_jpeg_shape", "is_jpeg", "decode_and_crop_jpeg"),
    *("parse_example", "parse_sequence_example", "parse_single_example", "parse_single_sequence_example"),
    *("parse_tensor", "serialize_tensor"),
)
_CLASSES = (
    *("FixedLenFeature", "FixedLenSequenceFeature", "RaggedFeature", "TFRecordOptions", "TFRecordWriter"),
    "VarLenFeature",
)

__all__ = ["FixedLenFeature", "FixedLenSequenceFeature", "RaggedFeature", "TFRecordOptions", "TFRecordWriter"]
__all__ += ["VarLenFeature", "decode_base64", "decode_compressed", "decode_csv", "decode_gif", "decode_image"]
__all__ += ["decode_jpeg", "decode_png", "decode_raw", "encode_base64", "encode_jpeg", "encode_png", "gfile"]
__all__ += ["matching_files", "parse_example", "parse_single_example", "parse_single_sequence_example", "parse_tensor"]
__all__ += ["read_file", "serialize_tensor", "write_file"]

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
    parse: _Any = _on_host("parse_example")
    return parse(serialized, features, example_names, name)


def __getattr__(name: str) -> _Any:
    if name == "parse_example":
        return _parse_example
    value = _on_host(name) if name in _FUNCTIONS else _find_in_data(name) if name in _CLASSES else None
    return _other(name) if value is None else value


__dir__ = _missing.lister(globals(), {**_LAZY, **dict.fromkeys((*_FUNCTIONS, *_CLASSES), "")})
