"""The format of a checkpoint's file: its manifest, the names and headers of its parts, and dtypes as text.

A file is a zip archive of `.npy` files, stored without compression, which `numpy.load` reads too, and of the manifest
`metadata.json`, which lists them. The header of an array is a function of dtype and shape, so that it is compared when
reading, never evaluated.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np

DType = np.dtype[Any]

METADATA = "metadata.json"
# A zip archive counts the bytes of a name in 16 bits.
LONGEST = 65_535
_FORMAT = "lockstep checkpoint"
_VERSION = 1
# numpy's limit.
_MAX_AXES = 64
_MAGIC = b"\x93NUMPY\x01\x00"
# numpy's, so that the values can be mapped into memory.
_ALIGNMENT = 64
# Characters that a zip archive cannot hold or would cut off, and the sign of escapes itself.
_ESCAPED = re.compile("[%\x00-\x1f\x7f\ud800-\udfff]")
# Dtypes of numpy are named by their codes, such as `<f4`, those of ml_dtypes by their names, such as `bfloat16`.
_CODE = re.compile(r"[<>|][biufcSUmM][0-9]{1,9}(\[[0-9A-Za-z]{1,20}\])?")
_KINDS = "biufcSUmM"
_EXTRA: dict[str, DType] = {
    np.dtype(value).name: np.dtype(value)
    for value in vars(ml_dtypes).values()
    if isinstance(value, type) and issubclass(value, np.generic)
}


def text_of(dtype: DType) -> str | None:
    """Returns the text of a dtype, or `None` if values of it are not kept in checkpoints."""
    if dtype.name in _EXTRA:
        return dtype.name
    # Structured dtypes, objects and text of length 0 have codes that do not match.
    code = dtype.str
    return code if dtype.kind in _KINDS and dtype.itemsize and _CODE.fullmatch(code) else None


def dtype_of(text: Any) -> DType:
    """Returns the dtype of a text.

    Raises:
        ValueError: If it is not the text of a dtype that is kept in checkpoints.
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r:.40} is not a dtype")
    if text in _EXTRA:
        return _EXTRA[text]
    try:
        dtype = np.dtype(text) if _CODE.fullmatch(text) else None
    except TypeError:
        dtype = None
    # One spelling for each dtype: a file that says it in another way was not written here.
    if dtype is None or text_of(dtype) != text:
        raise ValueError(f"{text!r:.40} is not a dtype that is kept in checkpoints here")
    return dtype


def stored_as(dtype: DType) -> str:
    """Returns the code of the dtype for numpy's own reader, which sees the bits of ml_dtypes' values."""
    return f"<u{dtype.itemsize}" if dtype.name in _EXTRA else dtype.str


@dataclass(frozen=True)
class Layout:
    """Dtype and shape of an array."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The number of bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize

    def header(self) -> bytes:
        """Returns the header before the values: NPY format 1.0."""
        fields = f"'descr': {stored_as(self.dtype)!r}, 'fortran_order': False, 'shape': {self.shape!r}, "
        text = f"{{{fields}}}".encode("ascii")
        length = len(text) + 1
        length += -(len(_MAGIC) + 2 + length) % _ALIGNMENT
        return _MAGIC + length.to_bytes(2, "little") + text.ljust(length - 1) + b"\n"


@dataclass(frozen=True)
class Manifest:
    """Contents of a checkpoint's file.

    Attributes:
        step: The step that was saved.
        time: When, in seconds since the epoch.
        layouts: The dtype and shape of each array.
        extra: The JSON that was kept beside the arrays.
    """

    step: int
    time: float
    layouts: Mapping[str, Layout]
    extra: dict[str, Any]


def member_of(key: str) -> str:
    """Returns the name of an array's part."""

    def escape(found: re.Match[str]) -> str:
        return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))

    return _ESCAPED.sub(escape, key) + ".npy"


def encode_manifest(manifest: Manifest) -> bytes:
    """Returns a manifest as JSON."""
    fields = {
        "format": _FORMAT,
        "version": _VERSION,
        "step": manifest.step,
        "time": manifest.time,
        "arrays": {key: [text_of(layout.dtype), layout.shape] for key, layout in manifest.layouts.items()},
        "extra": manifest.extra,
    }
    return json.dumps(fields).encode("ascii")


def decode_manifest(data: bytes) -> Manifest:
    """Returns the manifest that JSON of `encode_manifest` holds.

    Raises:
        ValueError: If it is something else.
    """
    try:
        fields = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError("it is no JSON object")
    fields = cast("dict[str, Any]", fields)
    if fields.get("format") != _FORMAT:
        raise ValueError("it does not describe a checkpoint")
    if fields.get("version") != _VERSION:
        raise ValueError(f"its version is {fields.get('version')!r:.40}, which is not known here; update lockstep")
    layouts = {key: _layout(key, value) for key, value in _object(fields, "arrays").items()}
    time = fields.get("time")
    if not isinstance(time, int | float) or isinstance(time, bool):
        raise ValueError(f"{time!r:.40} is not a time")
    return Manifest(_count(fields.get("step")), float(time), layouts, _object(fields, "extra"))


def _object(fields: dict[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    if not isinstance(value, dict):
        raise ValueError(f"its {name} are not an object")
    return cast("dict[str, Any]", value)


def _layout(key: str, value: Any) -> Layout:
    try:
        dtype, shape = value
        sizes = tuple(_count(size) for size in shape)
        if len(sizes) > _MAX_AXES:
            raise ValueError(f"it has {len(sizes)} axes")
        return Layout(dtype_of(dtype), sizes)
    except (TypeError, ValueError) as error:
        raise ValueError(f"it does not say what variable {key!r:.80} is ({error})") from None


def _count(value: object) -> int:
    # Not isinstance: True is an int.
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.40} is not a count")
    return value
