"""tf.image: functions of images `[height, width, channels]`, or batches of them."""

# ruff: noqa: F403

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from typing import Any as _Any

from lockstep.compat.tensorflow import _forward, _missing
from lockstep.compat.tensorflow._ops import boxes as _boxes
from lockstep.compat.tensorflow._ops import color as _color
from lockstep.compat.tensorflow._ops import images as _images
from lockstep.compat.tensorflow._ops import jpeg as _jpeg
from lockstep.compat.tensorflow._ops import similarity as _similarity
from lockstep.compat.tensorflow._ops import suppression as _suppression
from lockstep.compat.tensorflow._ops.boxes import *
from lockstep.compat.tensorflow._ops.color import *
from lockstep.compat.tensorflow._ops.images import *
from lockstep.compat.tensorflow._ops.jpeg import *
from lockstep.compat.tensorflow._ops.patches import extract_patches as extract_patches
from lockstep.compat.tensorflow._ops.patches import sobel_edges as sobel_edges
from lockstep.compat.tensorflow._ops.similarity import *
from lockstep.compat.tensorflow._ops.suppression import *

# lockstep.data's, whose functions get and give tensors here.
_NAMES = (
    *("ResizeMethod", "decode_bmp", "decode_gif", "decode_image", "decode_jpeg", "decode_png", "encode_jpeg"),
    *("encode_png", "resize"),
)

__all__ = [*_NAMES, "extract_patches", "sobel_edges"]
__all__ += _boxes.__all__
__all__ += _color.__all__
__all__ += _images.__all__
__all__ += _jpeg.__all__
__all__ += _similarity.__all__
__all__ += _suppression.__all__

_other = _missing.getter(__name__)


def __getattr__(name: str) -> _Any:
    return _forward.find_in_data(name) if name in _NAMES else _other(name)


__dir__ = _missing.lister(globals(), dict.fromkeys(_NAMES, ""))
