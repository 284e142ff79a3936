"""tf.compat: text in either form, and TensorFlow 1's names."""

# What is imported late is in __all__, too.
# pyright: reportUnsupportedDunderAll=false

from __future__ import annotations

from lockstep._types import Tensor as _Tensor
from lockstep.compat.tensorflow import _missing
from lockstep.compat.tensorflow._types import PathLike as _PathLike
from lockstep.compat.tensorflow._types import Text as _Text
from lockstep.errors import ArgumentError as _ArgumentError

_LAZY = {"v1": f"{__name__}.v1", "v2": f"{__name__}.v2"}

__all__ = ["as_bytes", "as_str", "as_str_any", "as_text", "path_to_str", "v1", "v2"]


def as_bytes(bytes_or_text: _Text, encoding: str = "utf-8") -> bytes:
    """Returns text as bytes. Source: tf.compat.as_bytes."""
    # bytes(bytes) is no copy.
    if isinstance(bytes_or_text, (bytes, bytearray)):
        return bytes(bytes_or_text)
    if isinstance(bytes_or_text, str):
        return bytes_or_text.encode(encoding)
    raise _ArgumentError(f"It must be bytes or str. Received: {bytes_or_text!r}.")


def as_text(bytes_or_text: _Text, encoding: str = "utf-8") -> str:
    """Returns text as `str`. Source: tf.compat.as_text."""
    return as_bytes(bytes_or_text, encoding).decode(encoding)


def as_str(bytes_or_text: _Text, encoding: str = "utf-8") -> str:
    """Returns text as `str`. Source: tf.compat.as_str."""
    return as_text(bytes_or_text, encoding)


def as_str_any(value: _Tensor, encoding: str = "utf-8") -> str:
    """Returns `str(value)`, or bytes decoded. Source: tf.compat.as_str_any."""
    return as_text(value, encoding) if isinstance(value, bytes) else str(value)


def path_to_str(path: _PathLike) -> str:
    """Returns a path as `str`. Source: tf.compat.path_to_str."""
    import os

    return as_text(os.fspath(path))


__getattr__ = _missing.getter(__name__, _LAZY)
__dir__ = _missing.lister(globals(), _LAZY)
