"""tf.image: functions of images `[height, width, channels]`, or batches of them."""

# ruff: noqa: F403, F405

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from typing import Any as _Any

from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow._bound import find_in_data as _find_in_data
from lockstep.compat.tensorflow._bound import on_host as _on_host
from lockstep.compat.tensorflow._ops import color as _color
from lockstep.compat.tensorflow._ops import images as _images
from lockstep.compat.tensorflow._ops.color import *
from lockstep.compat.tensorflow._ops.images import *

# lockstep.data's functions, which get and give tensors here.
_FUNCTIONS = (
    *("decode_bmp", "decode_gif", "decode_image", "decode_jpeg", "decode_png", "encode_jpeg", "encode_png"),
    *("decode_and_crop_jpeg", "extract_jpeg_shape", "is_jpeg", "resize"),
)
_CLASSES = ("ResizeMethod",)

__all__ = ["ResizeMethod", "decode_gif", "decode_image", "decode_jpeg", "decode_png", "encode_jpeg", "encode_png"]
__all__ += ["resize"]
__all__ += _images.__all__
__all__ += _color.__all__

_other = _missing.getter(__name__)


def __getattr__(name: str) -> _Any:
    value = _on_host(name) if name in _FUNCTIONS else _find_in_data(name) if name in _CLASSES else None
    return _other(name) if value is None else value


__dir__ = _missing.lister(globals(), dict.fromkeys((*_FUNCTIONS, *_CLASSES), ""))
